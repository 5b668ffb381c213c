//! Lists that are read as they arrive: one object at a time, however large a page is.

use std::io;
use std::pin::Pin;

use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::ListParams;
use kube::core::Request;
use kube::{Api, Client, Error, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// How many objects are asked for at a time: as many as other clients of the API server ask for.
const PAGE: u32 = 500;

/// A part of a list.
pub(crate) enum Part<K> {
    /// One object of it.
    Object(K),
    /// Its end: the version of the whole, from which it can be watched.
    End(String),
}

/// Asks for a list in pages, and for the next page when all of the last is taken. Of an answer no more is in memory than one
/// object and what the connection holds. A list that breaks off ends with an error.
///
/// # Errors
/// The first page is refused, or the API server cannot be reached.
pub(crate) async fn parts<K>(
    api: &Api<K>,
    params: ListParams,
) -> kube::Result<BoxStream<'static, kube::Result<Part<K>>>>
where
    K: Resource + Clone + DeserializeOwned + Send + 'static,
{
    let question = Question {
        client: api.clone().into_client(),
        request: Request::new(api.resource_url()),
        params: params.limit(PAGE),
    };
    let page = Some(question.ask().await?);
    Ok(stream::try_unfold(List { question, page }, List::next).boxed())
}

/// What is asked for next.
struct Question {
    client: Client,
    request: Request,
    params: ListParams,
}

impl Question {
    async fn ask(&self) -> kube::Result<Page> {
        let request = self.request.list(&self.params).map_err(Error::BuildRequest)?;
        let body = self.client.request_stream(request).await?;
        Ok(Page {
            body: Box::pin(body),
            text: Splitter::default(),
        })
    }
}

/// A list as far as it was read.
struct List {
    question: Question,
    /// `None` when all is read.
    page: Option<Page>,
}

impl List {
    async fn next<K: DeserializeOwned>(mut self) -> kube::Result<Option<(Part<K>, Self)>> {
        loop {
            let Some(page) = &mut self.page else { return Ok(None) };
            if let Some(object) = page.object().await.map_err(Error::ReadEvents)? {
                let object = serde_json::from_slice(&object).map_err(Error::SerdeError)?;
                return Ok(Some((Part::Object(object), self)));
            }
            let ListMeta {
                continue_,
                resource_version,
                ..
            } = page.text.meta().map_err(Error::SerdeError)?;
            self.question.params.continue_token = continue_.filter(|token| !token.is_empty());
            if self.question.params.continue_token.is_none() {
                self.page = None;
                return Ok(Some((Part::End(resource_version.unwrap_or_default()), self)));
            }
            self.page = Some(self.question.ask().await?);
        }
    }
}

/// The answer to one request.
struct Page {
    body: Pin<Box<dyn AsyncBufRead + Send>>,
    text: Splitter,
}

impl Page {
    /// The text of the next object; `None` at the end.
    async fn object(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let bytes = self.body.fill_buf().await?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let (taken, object) = self.text.take(bytes);
            self.body.as_mut().consume(taken);
            if object.is_some() {
                return Ok(object);
            }
        }
    }
}

/// Splits the JSON text of a list, `{…, "items": [{…}, …], …}`, into its items and the rest.
#[derive(Default)]
struct Splitter {
    /// Everything but the items.
    list: Vec<u8>,
    /// The item that has begun.
    item: Vec<u8>,
    /// How many objects and arrays are open.
    depth: usize,
    /// Whether `items` is open.
    in_items: bool,
    in_string: bool,
    is_escaped: bool,
}

/// How many are open in `items`, between two items.
const IN_ITEMS: usize = 2;

impl Splitter {
    /// Takes these bytes, or as many as end an item: how many, and the item.
    fn take(&mut self, bytes: &[u8]) -> (usize, Option<Vec<u8>>) {
        let mut begin = 0;
        for (at, byte) in bytes.iter().enumerate() {
            let was_in_item = self.is_in_item();
            self.step(*byte);
            match (was_in_item, self.is_in_item()) {
                (false, true) => begin = at,
                (true, false) => {
                    self.item.extend_from_slice(&bytes[begin..=at]);
                    return (at + 1, Some(std::mem::take(&mut self.item)));
                }
                // What is between items is white space and commas; the bracket that opens them is part of the list.
                (false, false) if !self.in_items || *byte == b'[' => self.list.push(*byte),
                _ => {}
            }
        }
        if self.is_in_item() {
            self.item.extend_from_slice(&bytes[begin..]);
        }
        (bytes.len(), None)
    }

    fn is_in_item(&self) -> bool {
        self.in_items && self.depth > IN_ITEMS
    }

    fn step(&mut self, byte: u8) {
        if self.in_string {
            self.in_string = self.is_escaped || byte != b'"';
            self.is_escaped = !self.is_escaped && byte == b'\\';
            return;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => {
                self.in_items |= byte == b'[' && self.depth + 1 == IN_ITEMS && self.is_after_items();
                self.depth += 1;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.in_items &= self.depth >= IN_ITEMS;
            }
            _ => {}
        }
    }

    /// Whether what follows is the value of `items`.
    fn is_after_items(&self) -> bool {
        let before = self.list.trim_ascii_end().strip_suffix(b":");
        before.is_some_and(|before| before.trim_ascii_end().ends_with(b"\"items\""))
    }

    /// What the list says of itself. It cannot be read where the text has broken off.
    fn meta(&self) -> serde_json::Result<ListMeta> {
        #[derive(Deserialize)]
        struct List {
            metadata: ListMeta,
        }
        let List { metadata } = serde_json::from_slice(&self.list)?;
        Ok(metadata)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    /// What comes of this text when it arrives in pieces of such a length.
    fn split(text: &str, length: usize) -> (Vec<Value>, serde_json::Result<ListMeta>) {
        let (mut splitter, mut items) = (Splitter::default(), vec![]);
        for mut piece in text.as_bytes().chunks(length) {
            while !piece.is_empty() {
                let (taken, item) = splitter.take(piece);
                piece = &piece[taken..];
                items.extend(item.map(|item| serde_json::from_slice::<Value>(&item).unwrap()));
            }
        }
        (items, splitter.meta())
    }

    #[test]
    fn a_list_falls_into_its_items_and_the_rest() {
        let text = r#"{"kind": "PodList", "x": {"items": [[1]]}, "y": ["\"items\":[", {}], "z": "items",
            "items" : [ {"a": "}]\\", "items": [{}]} , {"b": [[], "\"{"]},
            {} ], "metadata": {"continue": "c", "resourceVersion": "7", "items": []}}"#;
        for length in 1..=text.len() {
            let (items, meta) = split(text, length);
            assert_eq!(
                items,
                [
                    json!({"a": "}]\\", "items": [{}]}),
                    json!({"b": [[], "\"{"]}),
                    json!({})
                ],
                "{length}"
            );
            let meta = meta.unwrap();
            assert_eq!(meta.continue_.as_deref(), Some("c"));
            assert_eq!(meta.resource_version.as_deref(), Some("7"));
        }
    }

    #[test]
    fn a_list_without_items_is_one() {
        for items in ["[]", "null", "[ ]"] {
            let (items, meta) = split(
                &format!(r#"{{"metadata": {{"resourceVersion": "7"}}, "items": {items}}}"#),
                3,
            );
            assert!(items.is_empty());
            assert_eq!(meta.unwrap().resource_version.as_deref(), Some("7"));
        }
    }

    #[test]
    fn a_list_that_breaks_off_is_none() {
        let text = r#"{"metadata": {"resourceVersion": "7"}, "items": [{"a": 1}, {"b": 2}]}"#;
        for end in 0..text.len() {
            assert!(split(&text[..end], 5).1.is_err(), "{end}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            r#"[a"\\{}\[\],:é]{0,6}"#.prop_map(Value::from),
            Just(Value::from("items")),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(r#"items|[a"\\]{1,3}"#, inner, 0..4)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn items_are_what_a_parser_finds(
            objects in prop::collection::vec(prop::collection::btree_map("[a-c]", value(), 0..3), 0..4),
            other in value(),
            is_pretty in any::<bool>(),
            length in 1..64_usize,
        ) {
            let list = json!({"a": other, "items": objects, "metadata": {"resourceVersion": "7"}, "z": other});
            let text = if is_pretty { serde_json::to_string_pretty(&list).unwrap() } else { list.to_string() };
            let (items, meta) = split(&text, length);
            prop_assert_eq!(&Value::from(items), &list["items"]);
            let version = meta.unwrap().resource_version;
            prop_assert_eq!(version.as_deref(), Some("7"));
        }
    }
}
