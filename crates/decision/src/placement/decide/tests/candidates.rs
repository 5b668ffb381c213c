//! Candidate sites under a pod's own constraints.

use serde_json::json;

use super::*;

#[test]
fn pod_over_the_comparison_limit_is_passed_through() {
    let mut fleet = fleet(0);
    for i in 2..100 {
        let mut node = fleet["nodes"][1].clone();
        node["name"] = json!(format!("c{i}"));
        fleet = with(fleet, "/nodes/-", node);
    }
    let values: Vec<String> = (0..5_000).map(|i| i.to_string()).collect();
    let busy = |values: &[String]| {
        let requirement = json!({"key": "zone", "operator": "In", "values": values});
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        with(pod(json!({})), "/spec/affinity", affinity)
    };
    // A hundred nodes. The requirement itself counts as one more comparison.
    assert_eq!(outcome(&fleet, &busy(&values[..4_999])), "passthrough_no_site_matches");
    assert_eq!(outcome(&fleet, &busy(&values)), "passthrough_deadline");
    assert_eq!(
        warnings(&fleet, &busy(&values)),
        ["not placed: 500100 comparisons of constraints with nodes, over 500000"]
    );
    let mut greedy = pod(json!({}));
    for resource in 0..5_001 {
        greedy["spec"]["containers"][0]["resources"]["requests"][format!("example.com/r{resource}")] = json!("1");
    }
    assert_eq!(outcome(&fleet, &greedy), "passthrough_deadline");
}

#[test]
fn counting_ends_at_the_hundredth_node_that_fits() {
    let mut fleet = fleet(0);
    for i in 2..=150 {
        let mut node = fleet["nodes"][0].clone();
        node["name"] = json!(format!("e{i}"));
        fleet = with(fleet, "/nodes/-", node);
    }
    let fitting = |slo| with_verdict(&fleet, &pod(slo), &ungated(), |verdict| verdict.sites[0].fitting.len());
    assert_eq!(fitting(json!({})), 100);
    // Any node may have the trait.
    assert_eq!(fitting(json!({"traits": "GreenEnergy?"})), 150);
}
