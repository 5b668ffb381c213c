//! Generated pods and fleets for properties, as the documents they arrive as.

mod fleets;
mod pods;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

pub use fleets::fleet;
pub use pods::{huge_pod, pod};

/// A strategy that drops absent members, so that every field is sometimes missing.
fn object(members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    members_with(0.6, members)
}

/// An object of fields without which little happens: they are missing seldom.
fn full_object(members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    members_with(0.95, members)
}

fn members_with(share: f64, members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let members: Vec<_> = members
        .into_iter()
        .map(|(name, value)| option::weighted(share, value).prop_map(move |value| value.map(|value| (name, value))))
        .collect();
    members
        .prop_map(|members| {
            members
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()
        })
        .boxed()
}

/// `object` with the members of `more`, which win.
fn with_members(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

fn words(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    select(words).prop_map(Value::from).boxed()
}

/// A field no version of edgeward knows.
fn unknown() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map("[a-z~/]{1,4}", inner, 0..3).prop_map(|map| map.into_iter().collect()),
        ]
    })
    .boxed()
}

fn map_of(keys: &'static [&'static str], values: &'static [&'static str]) -> BoxedStrategy<Value> {
    btree_map(select(keys), select(values), 0..4)
        .prop_map(|map| {
            map.into_iter()
                .map(|(key, value)| (key.to_owned(), Value::from(value)))
                .collect()
        })
        .boxed()
}

fn or_null(strategy: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    prop_oneof![19 => strategy, 1 => Just(Value::Null)].boxed()
}
