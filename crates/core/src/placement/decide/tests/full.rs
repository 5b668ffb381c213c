//! Clouds behind whose nodes there is no room.

use serde_json::{Value, json};

use super::away::fates;
use super::*;

/// The fleet in which this cloud is full from so much on.
fn full(mut fleet: Value, cloud: &str, refused: Value) -> Value {
    let sites = fleet["sites"].as_array_mut().unwrap();
    let site = sites.iter_mut().find(|site| site["name"] == cloud).unwrap();
    site["full"] = json!([{"refused": refused}]);
    fleet
}

#[test]
fn a_pod_waits_for_a_full_cloud_and_goes_to_the_edge_at_its_limit() {
    let config = Config::default();
    let pod = pod(json!({"deadlineMs": "40000"}));
    let fleet = full(fleet(4000), "cloud", json!({"cpu": "500m"}));
    assert_eq!(
        fates(&fleet, &pod, &config),
        ["held_no_capacity", "edge: released_timeout"]
    );
}

#[test]
fn what_no_edge_node_could_hold_goes_to_a_full_cloud_last() {
    let config = Config::default();
    let large = with(
        pod(json!({"deadlineMs": "40000"})),
        "/spec/containers/0/resources/requests/cpu",
        json!("5"),
    );
    let one = full(fleet(0), "cloud", json!({"cpu": "1"}));
    assert_eq!(fates(&one, &large, &config), ["cloud: cloud_best_effort"; 2]);
    // The other one has no room now, but it is not known to be full.
    let two = full(two_clouds(), "near", json!({"cpu": "1"}));
    let two = with(two, "/nodes/1/used", json!({"cpu": "8", "pods": 1}));
    assert_eq!(
        fates(&two, &large, &config),
        ["held_no_capacity", "near: released_timeout"]
    );
}

#[test]
fn a_pinned_pod_takes_another_cloud_than_a_full_one_if_there_is_any() {
    let pinned = with(pod(json!({})), "/spec/nodeSelector", json!({"any": "cloud"}));
    let near_full = full(two_clouds(), "near", json!({"cpu": "500m"}));
    assert_eq!(outcome(&near_full, &pinned), "far: cloud_pinned_by_pod");
    let both_full = full(near_full, "far", json!({"cpu": "500m"}));
    assert_eq!(outcome(&both_full, &pinned), "near: cloud_pinned_by_pod");
}
