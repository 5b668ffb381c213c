use std::collections::BTreeMap;

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;

use serde_json::json;

use super::*;
use crate::config::map;
use crate::model::site::SiteKind;
use crate::placement::decide::decide;
use crate::placement::patch::{Stamp, patch};
use crate::placement::policy::Policy;
use crate::placement::room::Room;
use crate::pod::Pod;

/// Properties about things that never happen are only meaningful if the generated cases reach them. Each code must occur.
#[test]
fn generated_cases_reach_every_code() {
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
            .any(|site| site.site.kind() == SiteKind::Edge && site.is_possible());
        let several = !edge_allowed && clouds.clone().filter(|site| site.is_possible()).count() > 1;
        let full = verdict.site().is_some() && verdict.sites[0].is_possible() && !verdict.sites[0].fits();
        let stamp = Stamp {
            at: NOW.wall,
            id: "id".into(),
        };
        let patch = patch(&pod, &verdict, &config, &stamp);
        for (what, holds) in [
            ("several clouds to choose from", clouds.count() > 1),
            ("several clouds left by the pod", several),
            ("a full edge", full),
            ("a patch", !patch.is_empty()),
            (
                "a shorter toleration",
                json!(patch).to_string().contains(r#""tolerationSeconds":7"#),
            ),
        ] {
            *counts.entry(what).or_default() += u32::from(holds);
        }
        *counts.entry(verdict.action.as_str()).or_default() += 1;
        *counts.entry(verdict.reason.as_str()).or_default() += 1;
    }
    // The lower limits are about half of the actual counts.
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
        ("a shorter toleration", 1),
    ] {
        let found = counts.get(what).copied().unwrap_or(0);
        assert!(
            found >= least,
            "{what}: {found} of {CASES}, fewer than {least}: {counts:#?}"
        );
    }
}

/// Columns: the kind of document, the document in JSON, and its faults.
#[test]
fn every_fault_is_named_with_its_path() {
    let parse = |text: &str| serde_json::from_str(text).map_err(|error| error.to_string());
    for block in include_str!("faults.txt").split("\n\n") {
        let (kind, rest) = block.split_once('\n').unwrap();
        let (document, expected) = rest.split_once("\n- ").unwrap();
        let document: Value = serde_json::from_str(document).unwrap();
        let read = match kind {
            "config" => Config::read(&document).map(drop),
            "map" => map::read(&serde_json::from_value(document.clone()).unwrap(), parse).map(drop),
            "policy" => Policy::read(&json!({"spec": document}))
                .map(drop)
                .map_err(|refused| refused.faults.clone()),
            _ => fleet_file::read(&document, &Config::default(), NOW.moment).map(drop),
        };
        let found: Vec<_> = read.unwrap_err().0.iter().map(ToString::to_string).collect();
        let expected: Vec<_> = expected.trim_end().split("\n- ").collect();
        assert_eq!(found, expected, "{document}");
    }
}
