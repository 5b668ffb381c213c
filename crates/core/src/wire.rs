//! The only readers and writers of documents: pods, nodes, volumes, fleet files.

pub mod fleet_file;
pub mod liqo;
pub mod liqo_objects;
pub mod node;
pub mod pod;
pub mod volumes;

use serde_json::{Value, json};

use crate::model::constraints::Toleration;

/// The toleration as the API spells it: empty fields left out.
pub(crate) fn toleration(toleration: &Toleration<'_>) -> Value {
    let fields = [
        ("key", &toleration.key),
        ("operator", &toleration.operator),
        ("value", &toleration.value),
        ("effect", &toleration.effect),
    ];
    stated(fields.map(|(name, text)| (name, &**text)))
}

/// Those of the fields that say something.
pub(crate) fn stated<const N: usize>(fields: [(&str, &str); N]) -> Value {
    let fields = fields.into_iter().filter(|(_, text)| !text.is_empty());
    fields.map(|(name, text)| (name.to_owned(), json!(text))).collect()
}
