//! Generated pods and fleets for properties, as the documents they arrive as; what is logged; and our Service.

mod fleets;
#[cfg(feature = "serve")]
mod logged;
mod pods;
#[cfg(feature = "serve")]
mod service;

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::Value;

use crate::config::Config;
use crate::decide::decide;
use crate::model::site::SiteKind;
use crate::model::snapshot::Snapshot;
use crate::patch::{Stamp, patch};
use crate::pod::Pod;
use crate::room::Room;
use crate::units::{Moment, Now};
use crate::wire::fleet_file;

pub(crate) use fleets::fleet;
#[cfg(feature = "serve")]
pub(crate) use logged::Log;
pub(crate) use pods::pod;
#[cfg(feature = "serve")]
pub(crate) use service::service;

/// The time at which tests decide: midnight, a thousand seconds after the process started.
pub(crate) const NOW: Now = Now {
    moment: Moment(1_000_000_000),
    wall: jiff::Timestamp::constant(1_767_225_600, 0),
};

/// The snapshot that a fleet file stands for.
pub(crate) fn snapshot(fleet: &Value) -> Snapshot {
    fleet_file::read(fleet, &Config::default(), NOW.moment).unwrap_or_else(|faults| panic!("{faults}"))
}

/// A strategy that drops absent members, so that every field is sometimes missing.
fn object(members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    members_with(0.6, members)
}

/// The same for fields without which little happens: they are missing seldom.
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

/// Properties of what never happens hold for every code: the generated cases have to reach what they speak of.
#[test]
fn the_cases_are_not_vacuous() {
    const CASES: u32 = 2_000;
    let config = Config::default();
    let mut runner = TestRunner::deterministic();
    let cases = (fleet(), pod());
    let mut counts = BTreeMap::<&str, u32>::new();
    for _ in 0..CASES {
        let (fleet, pod) = cases.new_tree(&mut runner).unwrap().current();
        let snapshot = snapshot(&fleet);
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let workload = pod.workload("shop".into(), &config.keys);
        let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);

        let clouds = verdict.sites.iter().filter(|site| site.site.kind() == SiteKind::Cloud);
        let edge_allowed = verdict
            .sites
            .iter()
            .any(|site| site.site.kind() == SiteKind::Edge && site.allowed);
        let several = !edge_allowed && clouds.clone().filter(|site| site.allowed).count() > 1;
        let full = verdict.site().is_some() && verdict.sites[0].allowed && !verdict.sites[0].fits();
        let stamp = Stamp {
            at: NOW.wall,
            id: "id".into(),
        };
        for (what, holds) in [
            ("several clouds to choose from", clouds.count() > 1),
            ("several clouds left by the pod", several),
            ("a full edge", full),
            ("a patch", !patch(&pod, &verdict, &config, &stamp).is_empty()),
        ] {
            *counts.entry(what).or_default() += u32::from(holds);
        }
        *counts.entry(verdict.action.as_str()).or_default() += 1;
        *counts.entry(verdict.reason.as_str()).or_default() += 1;
    }
    // About half of what they are.
    for (what, least) in [
        ("edge", 400),
        ("cloud", 90),
        ("edge_feasible_slo_met", 90),
        ("edge_pinned_by_pod", 20),
        ("cloud_pinned_by_pod", 45),
        ("cloud_edge_no_capacity", 20),
        ("cloud_edge_deadline_missed", 3),
        ("cloud_best_effort", 15),
        ("edge_not_offloadable", 5),
        ("edge_wan_degraded", 25),
        ("passthrough_reinvocation", 25),
        ("several clouds to choose from", 400),
        ("several clouds left by the pod", 40),
        ("a full edge", 100),
        ("a patch", 500),
    ] {
        let found = counts.get(what).copied().unwrap_or(0);
        assert!(
            found >= least,
            "{what}: {found} of {CASES}, fewer than {least}: {counts:#?}"
        );
    }
}
