//! A bound on what is made of a document while it is read.
//!
//! Three bytes of JSON, `"",`, become a string of 24 bytes in a list, and `{},` a container of five times as many. So what is
//! read of a document of a few MiB can take a hundred. Here each element of a list and each entry of a map is counted when
//! it is taken. What is skipped, or taken as the text it is (`RawValue`), costs nothing and does not count; nor do the fields of
//! a struct, of which each has only so many.

use std::cell::Cell;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;

use crate::excerpt::excerpt;

/// How many list elements and map entries are taken of a pod, and as many of its status: more than any that runs has in the
/// fields that are read. What is made of them takes a few MiB at most.
pub const LIMIT: usize = 10_000;

/// Why a document was not read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It has more than this many list elements and map entries where they are read.
    #[error("more than {0} list elements and map entries that edgeward reads")]
    TooMany(usize),
    /// It is not what it should be.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Reads a document of which at most `limit` list elements and map entries are taken, borrowing from it. Ends at the first
/// one more.
///
/// # Errors
/// Of both kinds; a fault that quotes a text shows the beginning of a long one.
pub fn from_str<'de, T: Deserialize<'de>>(json: &'de str, limit: usize) -> Result<T, Error> {
    let counter = Counter {
        limit,
        taken: Cell::new(0),
    };
    let mut document = serde_json::Deserializer::from_str(json);
    let read = T::deserialize(counter.counted(&mut document));
    let read = read.and_then(|value| document.end().map(|()| value));
    read.map_err(|error| match counter.is_exceeded() {
        true => Error::TooMany(limit),
        false => Error::Json(error),
    })
}

struct Counter {
    limit: usize,
    taken: Cell<usize>,
}

impl Counter {
    fn counted<T>(&self, inner: T) -> Counted<'_, T> {
        Counted {
            inner,
            counter: self,
            counts: false,
        }
    }

    fn is_exceeded(&self) -> bool {
        self.taken.get() > self.limit
    }

    fn take<E: de::Error>(&self) -> Result<(), E> {
        self.taken.set(self.taken.get() + 1);
        match self.is_exceeded() {
            true => Err(E::custom(Error::TooMany(self.limit))),
            false => Ok(()),
        }
    }
}

/// One of serde's parts, with a counter that goes along to the parts it hands out.
struct Counted<'c, T> {
    inner: T,
    counter: &'c Counter,
    /// Whether each element, or each key, that is taken here counts.
    counts: bool,
}

impl<'c, T> Counted<'c, T> {
    fn with<U>(&self, inner: U, counts: bool) -> Counted<'c, U> {
        let counter = self.counter;
        Counted { inner, counter, counts }
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counted<'_, D> {
    type Error = D::Error;

    // A list or a map, for all that is asked here.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.with(visitor, true);
        self.inner.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.with(visitor, true);
        self.inner.deserialize_option(visitor)
    }

    // serde_json hands out a `RawValue` as a newtype that is visited as a map of one entry.
    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.with(visitor, false);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    // From a map alone: serde would take the fields from a list as well, in their order.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.with(visitor, false);
        self.inner.deserialize_map(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map enum identifier
    }
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Counted<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T::Value, D::Error> {
        if self.counts {
            self.counter.take()?;
        }
        self.inner.deserialize(self.counter.counted(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Counted<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let seed = self.with(seed, self.counts);
        self.inner.next_element_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Counted<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let seed = self.with(seed, self.counts);
        self.inner.next_key_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        let seed = self.with(seed, false);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// What is wrong with a text, as far as a message shows it. The fault quotes the text, with six bytes for some characters of
/// one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Fault(String);

impl Fault {
    const SHOWN: usize = 512;

    fn told<E: de::Error>(self) -> E {
        E::custom(self)
    }
}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(fault: T) -> Self {
        Self(excerpt(fault, Self::SHOWN))
    }
}

/// Hands a plain value on.
macro_rules! forward_visits {
    ($($visit:ident: $type:ty),* $(,)?) => {$(
        fn $visit<E: de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$visit(value)
        }
    )*};
}

// An enum is refused: none is read from a pod.
impl<'de, V: Visitor<'de>> Visitor<'de> for Counted<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    forward_visits! {
        visit_bool: bool,
        visit_i64: i64,
        visit_i128: i128,
        visit_u64: u64,
        visit_u128: u128,
        visit_f64: f64,
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<V::Value, E> {
        self.inner.visit_str(text).map_err(Fault::told)
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<V::Value, E> {
        self.inner.visit_borrowed_str(text).map_err(Fault::told)
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<V::Value, E> {
        self.inner.visit_string(text).map_err(Fault::told)
    }

    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_some(self.counter.counted(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.inner.visit_newtype_struct(self.counter.counted(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        let list = self.with(list, self.counts);
        self.inner.visit_seq(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let map = self.with(map, self.counts);
        self.inner.visit_map(map)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::de::IgnoredAny;
    use serde_json::value::RawValue;

    use super::*;

    #[derive(Debug, Default, PartialEq, serde::Deserialize)]
    #[serde(default)]
    struct Document {
        list: Vec<String>,
        map: Option<BTreeMap<String, Vec<i64>>>,
        inner: Vec<Document>,
        skipped: Option<IgnoredAny>,
    }

    fn read(json: &str, limit: usize) -> Result<Document, Error> {
        from_str(json, limit)
    }

    fn is_too_many(json: &str, limit: usize) -> bool {
        matches!(read(json, limit), Err(Error::TooMany(at)) if at == limit)
    }

    #[test]
    fn elements_and_entries_count_wherever_they_are() {
        for (taken, json) in [
            (0, r#"{"list": [], "map": null, "inner": []}"#),
            (3, r#"{"list": ["a", "b", "c"]}"#),
            (5, r#"{"map": {"a": [1, 2], "b": [3]}}"#),
            (6, r#"{"inner": [{"list": ["a", "b"]}, {"inner": [{}, {"map": {}}]}]}"#),
        ] {
            let whole: Document = serde_json::from_str(json).unwrap();
            assert_eq!(read(json, taken).unwrap(), whole, "{json}");
            assert!(taken == 0 || is_too_many(json, taken - 1), "{json}");
        }
    }

    #[test]
    fn what_is_skipped_or_taken_as_text_does_not_count() {
        let many = format!(r#"[{{"a": [1, 2]}}{}]"#, r#", """#.repeat(100));
        read(&format!(r#"{{"skipped": {many}, "unknown": {many}}}"#), 0).unwrap();

        #[derive(serde::Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            text: Option<&'a RawValue>,
            texts: Vec<Box<RawValue>>,
        }
        let json = format!(r#"{{"text": {many}, "texts": [{many}, null]}}"#);
        let raw: Raw<'_> = from_str(&json, 2).unwrap();
        assert_eq!(raw.text.unwrap().get(), many);
        assert_eq!((raw.texts[0].get(), raw.texts[1].get()), (&*many, "null"));
        assert!(matches!(from_str::<Raw<'_>>(&json, 1), Err(Error::TooMany(1))));
    }

    #[test]
    fn other_faults_are_told_as_without_a_limit() {
        for json in [
            "",
            "{",
            "{} {}",
            r#"{"list": 1}"#,
            r#"{"map": {"a": ["b"]}}"#,
            r#"{"list": [null]}"#,
        ] {
            let plain = serde_json::from_str::<Document>(json).unwrap_err().to_string();
            let Err(Error::Json(counted)) = read(json, 10) else {
                panic!("{json} was read");
            };
            assert_eq!(counted.to_string(), plain, "{json}");
        }
    }

    #[test]
    fn a_fault_of_a_long_text_is_short() {
        let json = format!(r#"{{"map": {{"a": ["{}"]}}}}"#, "\u{7f}".repeat(100_000));
        let Err(Error::Json(fault)) = read(&json, 10) else {
            panic!("it was read");
        };
        let told = fault.to_string();
        assert!(told.starts_with(r#"invalid type: string "\u{7f}\u{7f}"#), "{told}");
        assert!(told.contains("… at line 1 column "), "{told}");
        assert!(told.len() < 600, "{told}");
    }

    #[test]
    fn a_list_is_no_object() {
        for json in [r#"[["a"]]"#, r#"{"inner": [[["a"]]]}"#] {
            let Err(Error::Json(fault)) = read(json, 10) else {
                panic!("{json} was read");
            };
            let told = fault.to_string();
            assert!(
                told.starts_with("invalid type: sequence, expected struct Document"),
                "{told}"
            );
        }
    }
}
