//! The sites that a pod's own constraints leave.

use serde_json::{Value, json};

use super::*;

#[test]
fn the_pods_own_constraints_come_first() {
    let selector = |selector: Value| with(pod(json!({"deadlineMs": "1"})), "/spec/nodeSelector", selector);
    let on_edge = selector(json!({"disk": "ssd"}));
    let on_cloud = selector(json!({"node.role/cloud": "true"}));
    let bad_day = with(
        with(fleet(4000), "/sites/1/wan", json!(null)),
        "/ageSeconds",
        json!(999),
    );
    assert_eq!(outcome(&bad_day, &on_edge), "edge: edge_pinned_by_pod");
    assert_eq!(outcome(&bad_day, &on_cloud), "cloud: cloud_pinned_by_pod");
    assert_eq!(
        outcome(&fleet(0), &selector(json!({"node.role/edge": "false"}))),
        "passthrough_no_site_matches"
    );
    assert_eq!(
        outcome(&fleet(0), &selector(json!({"disk": "tape"}))),
        "passthrough_no_site_matches"
    );
    assert_eq!(
        warnings(&fleet(0), &selector(json!({"disk": "tape"})))[0],
        "not placed, for no site can run it: edge (no_matching_node), cloud (no_matching_node)"
    );
    let tied = with(on_cloud.clone(), "/spec/hostNetwork", json!(true));
    assert_eq!(outcome(&fleet(0), &tied), "passthrough_no_site_matches");
    assert!(warnings(&fleet(0), &tied)[0].ends_with("cloud (not_offloadable)"));

    let local = with(
        on_cloud,
        "/metadata/annotations/slo.example.io~1offloadAllowed",
        json!("false"),
    );
    assert_eq!(outcome(&fleet(0), &local), "passthrough_no_site_matches");

    let by_name = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c1"]}]}
    ]}}});
    let named = with(pod(json!({})), "/spec/affinity", by_name);
    assert_eq!(outcome(&fleet(0), &named), "cloud: cloud_pinned_by_pod");
}

#[test]
fn several_clouds_and_no_edge_are_still_a_choice() {
    let fleet = two_clouds();
    let anywhere_but_here = with(pod(json!({})), "/spec/nodeSelector", json!({"any": "cloud"}));
    assert_eq!(outcome(&fleet, &anywhere_but_here), "near: cloud_pinned_by_pod");
    let stale = with(fleet.clone(), "/ageSeconds", json!(99));
    assert_eq!(outcome(&stale, &anywhere_but_here), "near: cloud_pinned_by_pod");
    // Ties go to the first by name.
    let tie = with(fleet, "/sites/1/wan/rttMs", json!(20));
    assert_eq!(outcome(&tie, &anywhere_but_here), "far: cloud_pinned_by_pod");
}

#[test]
fn a_pod_that_leaves_only_clouds_goes_to_the_best_of_them_whatever_is_known() {
    let anywhere = |pod: Value| with(pod, "/spec/nodeSelector", json!({"any": "cloud"}));
    let slow = |site: usize, fleet: Value| with(fleet, &format!("/sites/{site}/wan/rttMs"), json!(200));
    let web = anywhere(pod(json!({})));
    assert_eq!(outcome(&slow(1, two_clouds()), &web), "near: cloud_pinned_by_pod");
    assert_eq!(outcome(&slow(2, two_clouds()), &web), "far: cloud_pinned_by_pod");
    assert_eq!(
        outcome(&slow(1, slow(2, two_clouds())), &web),
        "far: cloud_pinned_by_pod"
    );
    let full = with(
        with(two_clouds(), "/nodes/1/used", json!({"pods": 9})),
        "/nodes/2/used",
        json!({"pods": 9}),
    );
    assert_eq!(outcome(&full, &web), "near: cloud_pinned_by_pod");
    let at_home = anywhere(pod(json!({"offloadAllowed": "false"})));
    assert_eq!(outcome(&two_clouds(), &at_home), "passthrough_no_site_matches");
}

#[test]
fn a_pod_tied_to_the_edge_is_not_completed_for_the_cloud_it_asks_for() {
    let tied = with(pod(json!({})), "/spec/hostPID", json!(true));
    let tied = with(tied, "/spec/nodeSelector", json!({"node.role/cloud": "true"}));
    assert_eq!(outcome(&fleet(0), &tied), "passthrough_no_site_matches");
    let served = with(fleet(0), "/sites/1/supports", json!(["hostPID"]));
    assert_eq!(outcome(&served, &tied), "cloud: cloud_pinned_by_pod");
}

#[test]
fn a_fleet_without_clouds_is_a_fleet() {
    let mut alone = fleet(4000);
    alone["sites"].as_array_mut().unwrap().truncate(1);
    assert_eq!(outcome(&alone, &pod(json!({}))), "edge: edge_cloud_site_missing");
}

#[test]
fn a_missing_edge_label_makes_no_pod_unschedulable() {
    let unlabelled = with(fleet(0), "/nodes/0/labels", json!({"disk": "ssd"}));
    assert_eq!(outcome(&unlabelled, &pod(json!({}))), "passthrough_edge_site_missing");
    let pinned = with(pod(json!({})), "/spec/nodeSelector", json!({"node.role/cloud": "true"}));
    assert_eq!(outcome(&unlabelled, &pinned), "cloud: cloud_pinned_by_pod");
    assert_eq!(
        warnings(&unlabelled, &pod(json!({}))),
        ["not placed: no node carries the edge label node.role/edge=true"]
    );
}

#[test]
fn a_pod_that_would_keep_us_busy_is_passed_through() {
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
    // A hundred nodes: the requirement itself counts for one more.
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
