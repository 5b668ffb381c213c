//! Schemas of the texts that documents share: types that only `with` attributes of schemars name.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::constraints::{LABEL_KEY, LABEL_VALUE, SUBDOMAIN};

#[macro_export]
/// Declares each kind of text with its description, its pattern and its maximum length in bytes.
macro_rules! texts {
    ($($name:ident: $title:expr, $pattern:expr, $most:expr;)+) => {$(
        #[doc = concat!("A text: ", stringify!($name), ".")]
        pub struct $name;

        impl $crate::schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut $crate::schemars::SchemaGenerator) -> $crate::schemars::Schema {
                $crate::schemars::json_schema!({"title": $title, "type": "string", "pattern": $pattern, "maxLength": $most})
            }
        }
    )+};
}

/// Pattern of the name of a namespace.
pub const NAMESPACE: &str = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";

texts! {
    LabelKey: "a label key: `[domain/]name`", LABEL_KEY, 317;
    LabelValue: "a label value: letters, digits, `-`, `_` and `.`, at most 63", LABEL_VALUE, 63;
    Namespace: "the name of a namespace: lower-case letters, digits and `-`, at most 63", NAMESPACE, 63;
    RuntimeClass: "the name of a RuntimeClass: lower-case letters, digits, `-` and `.`", SUBDOMAIN, 253;
    StorageClass: "the name of a StorageClass: lower-case letters, digits, `-` and `.`", SUBDOMAIN, 253;
    TaintKey: "a taint key: `[domain/]name`", &format!("^$|{LABEL_KEY}"), 317;
    TaintValue: "a taint value: letters, digits, `-`, `_` and `.`, at most 63", LABEL_VALUE, 63;
}

/// A map of labels.
pub struct Labels;

impl JsonSchema for Labels {
    fn schema_name() -> Cow<'static, str> {
        "Labels".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (key, value) = (LabelKey::json_schema(generator), LabelValue::json_schema(generator));
        json_schema!({"type": "object", "propertyNames": key, "additionalProperties": value})
    }
}
