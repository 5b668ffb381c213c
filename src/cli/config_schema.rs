//! `edgeward config-schema`: the configuration as a JSON schema.

use anyhow::Context as _;
use edgeward_core::config::{Assumed, Config, Kind, Setting};
use edgeward_core::model::slo::Class;
use serde_json::{Map, Value, json};

use super::print;
use crate::api;

pub(super) fn run() -> anyhow::Result<()> {
    let mut schema = object(&Config::SETTINGS)?;
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of edgeward");
    print(&format!("{schema:#}\n"))
}

fn object(fields: &[Setting]) -> anyhow::Result<Value> {
    let mut properties = Map::new();
    for field in fields {
        let mut schema = kind(&field.kind)?;
        schema["description"] = without_links(field.meaning).into();
        if let Assumed::Value(yaml) = field.default {
            schema["default"] = serde_saphyr::from_str(yaml).context(field.name)?;
        }
        properties.insert(field.name.to_owned(), schema);
    }
    let required = fields.iter().filter(|field| matches!(field.default, Assumed::Required));
    let required: Vec<_> = required.map(|field| field.name).collect();
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    Ok(schema)
}

fn kind(kind: &Kind) -> anyhow::Result<Value> {
    let thousandths = |bound: i64| bound as f64 / 1_000.0;
    Ok(match kind {
        Kind::Boolean => json!({"type": "boolean"}),
        Kind::Integer(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        Kind::Number(least, most) => {
            json!({"type": "number", "minimum": thousandths(*least), "maximum": thousandths(*most)})
        }
        Kind::Percent(least) => json!({"type": "number", "minimum": thousandths(*least), "maximum": 100}),
        // Zero needs no unit.
        Kind::Duration("0s", _) => json!({"anyOf": [{"const": 0}, duration()]}),
        Kind::Duration(..) => duration(),
        Kind::Word(words) => json!({"enum": words}),
        Kind::Text { pattern, .. } => json!({"type": "string", "pattern": pattern}),
        Kind::List(of) => json!({"type": "array", "items": self::kind(of)?}),
        Kind::Map(_, _, to) => json!({"type": "object", "additionalProperties": self::kind(to)?}),
        Kind::PerClass(to) => {
            let to = self::kind(to)?;
            let classes = Class::ALL.map(|class| (class.as_str().to_owned(), to.clone()));
            json!({"type": "object", "properties": Map::from_iter(classes), "additionalProperties": false})
        }
        Kind::Object(fields) => object(fields)?,
        Kind::Either(one, other) => json!({"anyOf": [self::kind(one)?, self::kind(other)?]}),
        Kind::Sites => json!({"type": "array", "items": site()?}),
    })
}

fn duration() -> Value {
    json!({"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"})
}

/// Returns the schema of a site in the configuration: the spec of a Site and a name. Drops the CEL rules, which editors
/// cannot use.
fn site() -> anyhow::Result<Value> {
    let [definition, ..] = api::definitions();
    let definition = serde_json::to_value(definition)?;
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let mut schema = definition.pointer(spec).context("a Site has no spec")?.clone();
    plain(&mut schema);
    schema["properties"]["name"] = json!({"type": "string", "description": "Unique; written on pods"});
    schema["required"] = json!(["name", "kind"]);
    schema["additionalProperties"] = json!(false);
    Ok(schema)
}

/// Removes the additions of Kubernetes to JSON Schema. `nullable` goes too, as null and absent mean the same in a
/// configuration.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|name, _| !name.starts_with("x-kubernetes-") && !["nullable", "format"].contains(&&**name));
            fields.values_mut().for_each(plain);
        }
        Value::Array(elements) => elements.iter_mut().for_each(plain),
        _ => {}
    }
}

/// Replaces each Markdown link `[text](target)` by its text.
fn without_links(markdown: &str) -> String {
    let mut pieces = markdown.split("](");
    let first = pieces.next().unwrap_or_default().to_owned();
    let text = pieces.fold(first, |text, piece| {
        text + piece.split_once(')').map_or(piece, |(_, rest)| rest)
    });
    text.replacen('[', "", markdown.matches("](").count())
}
