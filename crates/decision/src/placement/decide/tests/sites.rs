//! Pods restricted to some sites, and the choice among several clouds.

use serde_json::{Value, json};

use super::*;
use crate::placement::explain::{FULL_BYTES, SHORT_BYTES, explain};

/// The edge in `eu`, a near cloud in `us` and a far one in `eu`.
fn fleet() -> Value {
    let mut fleet = two_clouds();
    for (at, labels) in [
        json!({"region": "eu", "tier": "edge"}),
        json!({"region": "eu"}),
        json!({"region": "us", "tier": "spot"}),
    ]
    .into_iter()
    .enumerate()
    {
        fleet["sites"][at]["labels"] = labels;
    }
    fleet
}

fn pod_for(sites: &str) -> Value {
    pod(json!({"deadlineMs": "600", "sites": sites}))
}

#[test]
fn restricted_pod_is_held_despite_copied_placement_or_cost() {
    let fleet = fleet();
    // A placement that the pod's author wrote, or that was copied from another pod.
    let copied = with(
        with(pod_for("far"), "/spec/nodeSelector", json!({"c": "near"})),
        "/spec/tolerations",
        json!([{"operator": "Exists"}]),
    );
    let copied = ["decision", "site", "timestamp", "decision-id"]
        .into_iter()
        .zip([
            "cloud",
            "near",
            "2026-01-01T00:00:00Z",
            "00000000-0000-4000-8000-000000000000",
        ])
        .fold(copied, |pod, (key, value)| {
            with(
                pod,
                &format!("/metadata/annotations/scheduling.example.io~1{key}"),
                json!(value),
            )
        });
    assert_eq!(outcome(&fleet, &copied), "held_site_away");
    let there = with(copied, "/metadata/annotations/slo.example.io~1sites", json!("near"));
    assert_eq!(outcome(&fleet, &there), "passthrough_reinvocation");
    // More comparisons than a decision makes.
    let terms = json!([{"matchExpressions": [{"key": "k", "operator": "In", "values": vec!["v"; 200_000]}]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    let snapshot = testkit::snapshot(&fleet);
    let mut values = with(pod_for("far"), "/spec/affinity", affinity);
    values["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        [0]["matchExpressions"][0]["values"] = json!(vec!["v"; 9_000]);
    let tolerations = vec![json!({"operator": "Exists"}); 900];
    values["spec"]["tolerations"] = json!(tolerations);
    let config = Config::default();
    let workload = testkit::workload(&values, &config.keys);
    let mut many = snapshot.clone();
    let node = many.sites[0].nodes[0].clone();
    let more = std::iter::repeat_n(node, 1_000);
    std::sync::Arc::make_mut(&mut many.sites[0].nodes).extend(more);
    let verdict = decide(&workload, &Room::of(&many), &config, NOW);
    assert_eq!(verdict.reason.as_str(), "held_no_capacity");
    assert!(verdict.warnings[0].contains("comparisons"), "{:?}", verdict.warnings);
}

#[test]
fn explanation_of_400_sites_stays_within_size_limit() {
    let mut fleet = fleet();
    let sites = fleet["sites"].as_array_mut().unwrap();
    for i in 0..400 {
        sites.push(json!({"name": format!("a-site-with-a-rather-long-name-{i:03}"), "kind": "cloud", "nodeSelector": {"c": format!("c{i}")}}));
    }
    let long = format!("region in (eu),tier notin ({})", vec!["x"; 60].join(","));
    for sites in ["far", &long] {
        with_verdict(&fleet, &pod_for(sites), &Config::default(), |verdict| {
            let short = explain(verdict, crate::config::Explain::Short).unwrap();
            let full = explain(verdict, crate::config::Explain::Full).unwrap();
            assert!(
                short.len() <= SHORT_BYTES && full.len() <= FULL_BYTES,
                "{short}\n{full}"
            );
            let chosen = verdict.site().unwrap().name();
            for text in [short, full] {
                let entries: Value = serde_json::from_str(&text).unwrap();
                assert!(entries[chosen].is_object(), "{text}");
            }
        });
    }
}
