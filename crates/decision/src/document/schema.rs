//! JSON schemas of documents, made from their Rust types, and the check of a document against its schema.
//!
//! They add to JSON Schema: `x-decimals`, the maximum number of decimals; `x-duration`, the bounds of a duration; and
//! `x-default`, a default in words. `title` describes a valid value, for messages.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use regex::Regex;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::document::{Fault, parse, shown, within, without_nulls};
use crate::model::endpoint::without_user;
use edgeward_kube::excerpt::{LONGEST_NAME, excerpt};
use edgeward_kube::units::Micros;

/// Returns the schema of a document, without references and without null, which means absent.
pub fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    remove_null(&mut schema);
    schema
}

fn remove_null(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(remove_null);
            for name in ["type", "enum", "anyOf"] {
                let Some(Value::Array(list)) = fields.get_mut(name) else {
                    continue;
                };
                list.retain(|one| !one.is_null() && one != "null" && one["type"] != "null");
                if let ([_], "type" | "anyOf") = (&list[..], name) {
                    match fields.remove(name).map(|mut list| list[0].take()) {
                        Some(Value::Object(only)) => only.into_iter().for_each(|(name, part)| {
                            fields.entry(name).or_insert(part);
                        }),
                        only => fields.extend(only.map(|only| (name.to_owned(), only))),
                    }
                }
            }
            if let Some(default) = fields.remove("default").map(without_nulls)
                && ![Value::Null, "".into(), Map::new().into()].contains(&default)
            {
                fields.insert("default".to_owned(), default);
            }
        }
        Value::Array(list) => list.iter_mut().for_each(remove_null),
        _ => {}
    }
}

/// Reads a part of a document and reports every value that the schema refuses. A value of the right type is read even
/// then, so that rules that concern several fields can be checked too.
pub fn read<T: DeserializeOwned>(schema: &Value, value: &Value, at: &str, faults: &mut Vec<Fault>) -> Option<T> {
    let value = without_nulls(value.clone());
    let before = faults.len();
    check(schema, &value, at, faults);
    match parse(&value, at) {
        Ok(read) => Some(read),
        Err(fault) => {
            if faults.len() == before {
                faults.push(fault);
            }
            None
        }
    }
}

/// Reports every value of a document without nulls that the schema refuses. The length of lists is not checked.
pub(crate) fn check(schema: &Value, value: &Value, at: &str, faults: &mut Vec<Fault>) {
    match value {
        Value::Object(fields) if let Some(map) = of_type(schema, "object") => check_fields(map, fields, at, faults),
        Value::Array(list) if let Some(of) = of_type(schema, "array") => {
            for (i, element) in list.iter().enumerate() {
                check(&of["items"], element, &format!("{at}[{i}]"), faults);
            }
        }
        value if !takes(schema, value) => {
            let value = excerpt(without_user(&shown(value)), LONGEST_NAME);
            faults.push(Fault::new(at, format_args!("{value} is not {}", allowed(schema))));
        }
        _ => {}
    }
}

fn check_fields(schema: &Value, fields: &Map<String, Value>, at: &str, faults: &mut Vec<Fault>) {
    let required = schema["required"].as_array().into_iter().flatten();
    for name in required
        .filter_map(Value::as_str)
        .filter(|name| !fields.contains_key(*name))
    {
        faults.push(Fault::new(within(at, name), "is missing"));
    }
    let (keys, others) = (&schema["propertyNames"], &schema["additionalProperties"]);
    for (key, value) in fields {
        let at = within(at, key);
        if !takes(keys, &key.as_str().into()) {
            faults.push(Fault::new(&at, format_args!("{key:?} is not {}", allowed(keys))));
        }
        match schema["properties"].get(key) {
            Some(field) => check(field, value, &at, faults),
            None if *others == false => {
                let names = schema["properties"].as_object().into_iter().flat_map(Map::keys);
                let names: Vec<_> = names.map(String::as_str).collect();
                let message = format_args!("is not a field here; there are {}", names.join(", "));
                faults.push(Fault::new(at, message));
            }
            None => check(others, value, &at, faults),
        }
    }
}

/// Returns the schema, or its alternative, for values of this type.
fn of_type<'s>(schema: &'s Value, kind: &str) -> Option<&'s Value> {
    let alternatives = schema["anyOf"].as_array().into_iter().flatten();
    alternatives.chain([schema]).find(|schema| schema["type"] == kind)
}

/// Whether the schema accepts a value without parts.
fn takes(schema: &Value, value: &Value) -> bool {
    if let Some(alternatives) = schema["anyOf"].as_array() {
        return alternatives.iter().any(|alternative| takes(alternative, value));
    }
    let is_of_type = match schema["type"].as_str() {
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some(_) => false,
        None => true,
    };
    let is_listed = schema["enum"].as_array().is_none_or(|words| words.contains(value));
    is_of_type
        && is_listed
        && value.as_f64().is_none_or(|number| is_within(schema, number))
        && value.as_str().is_none_or(|text| is_text(schema, text))
}

fn is_within(schema: &Value, number: f64) -> bool {
    let is_exact = schema["x-decimals"].as_i64().is_none_or(|decimals| {
        let scaled = number * 10_f64.powi(decimals as i32);
        (scaled - scaled.round()).abs() < 1e-3
    });
    is_exact
        && schema["minimum"].as_f64().is_none_or(|least| least <= number)
        && schema["maximum"].as_f64().is_none_or(|most| number <= most)
}

fn is_text(schema: &Value, text: &str) -> bool {
    let is_between = |bounds: &Vec<Value>| {
        let bound = |i: usize| bounds.get(i).and_then(Value::as_str).and_then(Micros::parse);
        Micros::parse(text).is_some_and(|time| bound(0) <= Some(time) && Some(time) <= bound(1))
    };
    let length = text.len() as u64;
    schema["minLength"].as_u64().is_none_or(|least| least <= length)
        && schema["maxLength"].as_u64().is_none_or(|most| length <= most)
        && schema["pattern"].as_str().is_none_or(|pattern| is_match(pattern, text))
        && schema["x-duration"].as_array().is_none_or(is_between)
}

/// Whether the text matches this pattern. Each pattern is compiled once.
fn is_match(pattern: &str, text: &str) -> bool {
    static COMPILED: LazyLock<Mutex<HashMap<String, Option<Regex>>>> = LazyLock::new(Mutex::default);
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let regex = compiled
        .entry(pattern.to_owned())
        .or_insert_with(|| Regex::new(pattern).ok());
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// Description of a valid value, for messages.
pub fn allowed(schema: &Value) -> String {
    let words = schema["enum"].as_array().into_iter().flatten();
    let words: Vec<_> = words.filter_map(Value::as_str).collect();
    let alternatives = schema["anyOf"].as_array().into_iter().flatten();
    let alternatives: Vec<_> = alternatives.map(allowed).collect();
    match (schema["title"].as_str(), schema["type"].as_str()) {
        (Some(title), _) => title.to_owned(),
        _ if !alternatives.is_empty() => alternatives.join(", or "),
        _ if !words.is_empty() => format!("one of {}", words.join(", ")),
        (_, Some("boolean")) => "true or false".to_owned(),
        (_, Some("array")) => "a list".to_owned(),
        (_, Some("object")) => "a map".to_owned(),
        _ => match schema["maxLength"].as_u64() {
            Some(most) => format!("a string of at most {most} bytes"),
            None => "a string".to_owned(),
        },
    }
}
