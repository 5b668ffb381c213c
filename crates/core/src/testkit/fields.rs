//! The fields of each kind that are read, as the types say that read them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::iter;

use serde::de::value::{BorrowedStrDeserializer, Error as Fault, MapDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use crate::wire::pod::StringMap;
use crate::wire::{node, pod, volumes};

/// What is read of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    /// All that it has.
    Value,
    /// Whether it is there.
    Presence,
}

/// Fields by their paths, such as `/spec/containers/*/name`.
pub type Fields = BTreeMap<String, Read>;

/// The fields that are read of an object of this kind.
#[allow(clippy::panic)]
pub fn read_of(kind: &str) -> Fields {
    match kind {
        "Pod" => [
            read_by::<pod::Pod<'_>>(""),
            read_by::<pod::fields::Status<'_>>("/status"),
            read_by::<StringMap<'_>>("/spec/nodeSelector"),
            read_by::<pod::fields::Affinity<'_>>("/spec/affinity"),
            read_by::<Vec<pod::fields::WireToleration<'_>>>("/spec/tolerations"),
        ]
        .into_iter()
        .flatten()
        .collect(),
        "Node" => read_by::<node::Wire<'_>>(""),
        "PersistentVolumeClaim" => read_by::<volumes::Claim<'_>>(""),
        "PersistentVolume" => [
            read_by::<volumes::Volume<'_>>(""),
            read_by::<pod::NodeSelector<'_>>("/spec/nodeAffinity/required"),
        ]
        .into_iter()
        .flatten()
        .collect(),
        "StorageClass" => read_by::<volumes::Class<'_>>(""),
        _ => panic!("{kind} is not read here"),
    }
}

/// Notes what is read, each field by its path. Hands out something for all of it.
#[derive(Clone)]
struct Recorder<'p> {
    path: String,
    fields: &'p RefCell<Fields>,
}

impl Recorder<'_> {
    fn at(&self, place: &str) -> Self {
        let mut other = self.clone();
        other.path.push_str(place);
        other
    }

    fn note(&self, read: Read) {
        self.fields.borrow_mut().insert(self.path.clone(), read);
    }
}

/// As serde_json calls a text that is taken as it is.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

impl<'de> Deserializer<'de> for Recorder<'_> {
    type Error = Fault;

    // A text, for all that is asked here.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.note(Read::Value);
        visitor.visit_borrowed_str("1")
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.note(Read::Value);
        visitor.visit_bool(true)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.note(Read::Value);
        visitor.visit_i32(1)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.note(Read::Value);
        visitor.visit_i64(1)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.note(Read::Presence);
        visitor.visit_unit()
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_seq(Parts {
            parts: iter::once(("", self.at("/*"))),
            value: None,
        })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.note(Read::Value);
        visitor.visit_map(Parts {
            parts: iter::empty(),
            value: None,
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let parts = fields.iter().map(|field| (*field, self.at(&format!("/{field}"))));
        visitor.visit_map(Parts { parts, value: None })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Fault> {
        if name != RAW_VALUE {
            return visitor.visit_newtype_struct(self);
        }
        let text = BorrowedStrDeserializer::new("{}");
        visitor.visit_map(MapDeserializer::new(iter::once((RAW_VALUE, text))))
    }

    forward_to_deserialize_any! {
        i8 i16 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct enum
        identifier
    }
}

/// The parts of a struct or list.
struct Parts<'p, P> {
    parts: P,
    /// Of the part whose name was handed out last.
    value: Option<Recorder<'p>>,
}

impl<'de, 'p, P: Iterator<Item = (&'static str, Recorder<'p>)>> MapAccess<'de> for Parts<'p, P> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Fault> {
        let Some((name, value)) = self.parts.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        seed.deserialize(BorrowedStrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        seed.deserialize(
            self.value
                .take()
                .ok_or_else(|| de::Error::custom("no name was handed out"))?,
        )
    }
}

impl<'de, 'p, P: Iterator<Item = (&'static str, Recorder<'p>)>> SeqAccess<'de> for Parts<'p, P> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Fault> {
        let part = self.parts.next().map(|(_, part)| seed.deserialize(part));
        part.transpose()
    }
}

/// What `T` reads, below this path.
#[allow(clippy::expect_used)]
fn read_by<T: Deserialize<'static>>(below: &str) -> Fields {
    let fields = RefCell::default();
    let recorder = Recorder {
        path: below.to_owned(),
        fields: &fields,
    };
    T::deserialize(recorder).expect("it is handed out what it reads");
    fields.into_inner()
}
