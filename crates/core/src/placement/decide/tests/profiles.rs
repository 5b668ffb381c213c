//! Performance profiles: they rank sites that would do, and nothing else.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::Explain;
use crate::placement::explain::{SHORT_BYTES, explain};

/// The edge, a near cloud and a far one, and what a profile says of them; lower is better.
fn scored(preferred: Option<&str>, scores: &[(&str, f64)]) -> Value {
    let mut fleet = two_clouds();
    let scores = scores
        .iter()
        .map(|(site, score)| json!({"site": site, "score": score, "ageSeconds": 1}));
    fleet["profiles"] = json!([{
        "name": "greenness", "better": "lower", "margin": 0.05, "stalenessSeconds": 60,
        "preferred": preferred, "scores": scores.collect::<Value>(),
    }]);
    fleet
}

fn full(mut fleet: Value, node: usize) -> Value {
    fleet["nodes"][node]["used"] = fleet["nodes"][node]["allocatable"].clone();
    fleet
}

fn green(deadline: &str) -> Value {
    pod(json!({"deadlineMs": deadline, "profile": "greenness"}))
}

#[test]
fn the_preferred_site_is_taken_where_it_would_do() {
    let three = [("edge", 0.5), ("near", 0.3), ("far", 0.2)];
    let cleaner_edge = [("edge", 0.1), ("near", 0.3), ("far", 0.2)];
    for (expected, fleet) in [
        ("far: cloud_profile", scored(Some("far"), &three)),
        ("near: cloud_profile", scored(Some("near"), &three)),
        ("edge: edge_feasible_slo_met", scored(Some("edge"), &cleaner_edge)),
        // What all replicas prefer counts, whatever the newest scores are.
        ("edge: edge_feasible_slo_met", scored(Some("edge"), &three)),
        // It would not do: the best of the others.
        ("near: cloud_profile", full(scored(Some("far"), &three), 1)),
        ("far: cloud_profile", full(scored(Some("near"), &three), 2)),
        ("far: cloud_profile", full(scored(Some("edge"), &cleaner_edge), 0)),
        // Nothing else would do.
        (
            "far: cloud_edge_no_capacity",
            full(full(scored(Some("near"), &three), 0), 2),
        ),
        (
            "edge: edge_feasible_slo_met",
            full(full(scored(Some("far"), &three), 1), 2),
        ),
    ] {
        assert_eq!(outcome(&fleet, &green("600")), expected, "{fleet}");
    }
}

#[test]
fn without_the_preferred_one_the_margin_counts_and_then_the_rules_without_a_profile() {
    let fleet = |edge, near, far| scored(None, &[("edge", edge), ("near", near), ("far", far)]);
    for (expected, fleet) in [
        ("edge: edge_feasible_slo_met", fleet(0.34, 0.30, 0.32)),
        ("edge: edge_feasible_slo_met", fleet(0.30, 0.30, 0.30)),
        // The edge is one of the best, the far cloud is not.
        ("edge: edge_feasible_slo_met", fleet(0.30, 0.31, 0.5)),
        ("edge: edge_feasible_slo_met", fleet(0.30, 0.4, 0.5)),
        // Clouds that are as good as each other: the nearer.
        ("near: cloud_profile", fleet(0.5, 0.30, 0.28)),
        ("far: cloud_profile", fleet(0.5, 0.35, 0.28)),
        ("near: cloud_edge_no_capacity", full(fleet(0.1, 0.30, 0.28), 0)),
        ("far: cloud_profile", full(fleet(0.1, 0.35, 0.28), 0)),
    ] {
        assert_eq!(outcome(&fleet, &green("600")), expected, "{fleet}");
    }
}

#[test]
fn what_has_no_score_is_never_good() {
    let today = "edge: edge_feasible_slo_met";
    let mut stale = scored(Some("far"), &[("edge", 0.5), ("far", 0.2)]);
    stale["profiles"][0]["scores"][0]["ageSeconds"] = json!(60.001);
    for (expected, fleet) in [
        (today, scored(Some("far"), &[("near", 0.1), ("far", 0.2)])),
        (today, scored(Some("far"), &[("edge", 0.5)])),
        (today, scored(Some("far"), &[])),
        (today, stale),
        // One cloud without a score, where the edge is full.
        (
            "near: cloud_edge_no_capacity",
            full(scored(Some("far"), &[("edge", 0.5), ("far", 0.2)]), 0),
        ),
        (
            "near: cloud_profile",
            scored(Some("far"), &[("edge", 0.5), ("near", 0.2)]),
        ),
    ] {
        assert_eq!(outcome(&fleet, &green("600")), expected, "{fleet}");
    }
}

#[test]
fn a_site_that_misses_the_slo_is_taken_by_no_score() {
    let fleet = scored(Some("far"), &[("edge", 0.9), ("near", 0.5), ("far", 0.1)]);
    assert_eq!(outcome(&fleet, &green("600")), "far: cloud_profile");
    // The far cloud takes 160 ms longer, the near one 40 ms.
    assert_eq!(outcome(&fleet, &green("400")), "near: cloud_profile");
    assert_eq!(outcome(&fleet, &green("280")), "edge: edge_feasible_slo_met");
    let stays = pod(json!({"deadlineMs": "600", "profile": "greenness", "offloadAllowed": "false"}));
    assert_eq!(outcome(&fleet, &stays), "edge: edge_feasible_slo_met");
}

#[test]
fn a_pod_of_another_profile_or_of_none_is_decided_without() {
    let fleet = scored(Some("far"), &[("edge", 0.9), ("near", 0.5), ("far", 0.1)]);
    let without = pod(json!({"deadlineMs": "600"}));
    assert_eq!(outcome(&fleet, &without), "edge: edge_feasible_slo_met");
    let other = pod(json!({"deadlineMs": "600", "profile": "cheapness"}));
    with_verdict(&fleet, &other, &Config::default(), |verdict| {
        assert_eq!(verdict.reason, Reason::EdgeFeasibleSloMet);
        assert_eq!(
            verdict.warnings,
            ["slo.example.io/profile: no PerformanceProfile cheapness is in use"]
        );
    });
}

#[test]
fn the_numbers_are_explained() {
    let fleet = scored(Some("near"), &[("edge", 0.412), ("near", 0.25)]);
    with_verdict(&fleet, &green("600"), &Config::default(), |verdict| {
        let (name, profile) = verdict.profile.unwrap();
        assert_eq!((name, profile.margin.to_string()), ("greenness", "0.05".to_owned()));
        let short: Value = serde_json::from_str(&explain(verdict, Explain::Short).unwrap()).unwrap();
        assert_eq!(short["near"], json!({"fit": 1, "eta": 310, "score": 0.25}));
        assert_eq!(short["edge"]["score"], json!(0.412));
        assert_eq!(short["far"].get("score"), None);
        assert!(short.to_string().len() <= SHORT_BYTES);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// Whatever its scores are, a profile only chooses among sites of which nothing speaks against any.
    #[test]
    fn a_profile_only_ranks_what_would_do(fleet in testkit::fleet(), mut pod in testkit::pod()) {
        let read = |pod: &Value| with_verdict(&fleet, pod, &Config::default(), |verdict| {
            let feasible: Vec<_> = verdict.sites.iter().filter(|site| site.is_good()).map(|site| site.site.name().to_owned()).collect();
            (verdict.site().map(|site| site.name().to_owned()), verdict.action.as_str(), verdict.reason, feasible)
        });
        let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
            return Ok(());
        };
        annotations.insert("slo.example.io/profile".to_owned(), json!("greenness"));
        let with = read(&pod);
        pod["metadata"]["annotations"].as_object_mut().unwrap().remove("slo.example.io/profile");
        let without = read(&pod);
        prop_assert_eq!(&with.3, &without.3);
        if with.0 == without.0 && with.1 == without.1 {
            return Ok(());
        }
        prop_assert!(with.0.as_ref().is_some_and(|site| with.3.contains(site)), "{:?} and not {:?}", with, without);
        // Nothing that was gated for want of room or sent away without it is sent elsewhere by a score.
        prop_assert!(
            without.0.as_ref().is_none_or(|site| without.3.contains(site)) || without.2 == Reason::HeldNoCapacity,
            "{:?} and not {:?}", with, without
        );
    }
}
