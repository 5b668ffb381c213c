//! JSON documents, and others that say the same.

use std::io;

use serde_json::ser::{Formatter, Serializer};
use serde_json::{Map, Value, json};

/// The document, if it is one. Of equal keys the last counts, as it does for the API server.
pub(crate) fn read(data: &[u8]) -> Option<Value> {
    serde_json::from_slice(data).ok()
}

/// The documents of a list, or the only one.
pub(crate) fn several(data: &[u8]) -> Vec<Value> {
    match read(data) {
        Some(Value::Array(list)) => list,
        other => other.into_iter().collect(),
    }
}

/// The same document with every letter of a string escaped: nothing can be borrowed from it.
pub(crate) fn escaped(document: &Value) -> String {
    struct Escapes;

    impl Formatter for Escapes {
        fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
            let mut units = text.encode_utf16();
            units.try_for_each(|unit| write!(writer, "\\u{unit:04x}"))
        }
    }

    let mut bytes = Vec::new();
    serde::Serialize::serialize(document, &mut Serializer::with_formatter(&mut bytes, Escapes)).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The same document with a field in every object that no version of Kubernetes has. Maps of strings and resource lists are
/// left: whatever is in them is known.
pub(crate) fn with_unknown_fields(document: &Value) -> Value {
    const MAPS: [&str; 10] = [
        "labels",
        "annotations",
        "nodeSelector",
        "requests",
        "limits",
        "overhead",
        "allocatable",
        "allocatedResources",
        "desiredMapping",
        "currentMapping",
    ];
    match document {
        Value::Array(list) => list.iter().map(with_unknown_fields).collect(),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| match MAPS.contains(&&**key) {
                true => (key.clone(), value.clone()),
                false => (key.clone(), with_unknown_fields(value)),
            };
            let mut fields: Map<_, _> = fields.iter().map(field).collect();
            fields.insert("fieldOfTheFuture".into(), json!([{"name": ""}, null, 1.5]));
            fields.into()
        }
        other => other.clone(),
    }
}

/// Whether everything is an object that Kubernetes has as one. A reader by serde takes the fields of a struct from a list as well,
/// in their order; no API server sends that.
pub(crate) fn is_of_objects(document: &Value) -> bool {
    const OBJECTS: [&str; 11] = [
        "metadata",
        "spec",
        "status",
        "resources",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "state",
        "terminated",
        "required",
        "latency",
    ];
    match document {
        Value::Array(list) => list.iter().all(|item| !item.is_array() && is_of_objects(item)),
        Value::Object(fields) => fields
            .iter()
            .all(|(name, value)| is_of_objects(value) && !(value.is_array() && OBJECTS.contains(&&**name))),
        _ => true,
    }
}

/// What is at this path and is a string that is not empty.
pub(crate) fn text<'d>(document: &'d Value, pointer: &str) -> Option<&'d str> {
    document.pointer(pointer)?.as_str().filter(|text| !text.is_empty())
}
