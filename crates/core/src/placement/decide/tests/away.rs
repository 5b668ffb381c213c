//! Pods that only a cloud could hold, and clouds that are away.

use serde_json::{Value, json};

use super::*;
use crate::config::OnNoCapacity;
use crate::model::slo::Class;

/// The edge and the cloud of [`super::fleet`], whose node has GPUs.
fn fleet() -> Value {
    let mut fleet = super::fleet(0);
    fleet["nodes"][1]["allocatable"]["nvidia.com/gpu"] = json!(4);
    fleet
}

/// A pod that asks for a GPU.
fn gpu() -> Value {
    let mut gpu = pod(json!({"deadlineMs": "400"}));
    gpu["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = json!("1");
    gpu
}

/// The fleet without the cloud's node.
fn without_cloud_node() -> Value {
    let mut fleet = fleet();
    fleet["nodes"].as_array_mut().unwrap().pop();
    fleet
}

/// The cloud's node is young and has no GPUs yet.
fn young() -> Value {
    let mut fleet = super::fleet(0);
    fleet["nodes"][1]["young"] = json!(true);
    fleet
}

/// The cloud's node is not Ready, and has the taints that the node controller gives such a node.
fn not_ready() -> Value {
    let mut fleet = fleet();
    fleet["nodes"][1]["ready"] = json!(false);
    for effect in ["NoSchedule", "NoExecute"] {
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": effect});
        fleet["nodes"][1]["taints"].as_array_mut().unwrap().push(taint);
    }
    fleet
}

fn with_wan(wan: Value) -> Value {
    with(fleet(), "/sites/1/wan", wan)
}

/// Every way in which the cloud can be away, and how it is told.
fn aways() -> [(Value, &'static str); 6] {
    [
        (young(), "new node"),
        (not_ready(), "node NotReady"),
        (with(fleet(), "/nodes/1/unschedulable", json!(true)), "node cordoned"),
        (with_wan(json!({"reachable": false})), "WAN unreachable"),
        (with_wan(json!({"rttMs": 200, "lossPct": 0})), "WAN degraded"),
        (
            with_wan(json!({"rttMs": 20, "lossPct": 0, "ageSeconds": 61})),
            "WAN not measured lately",
        ),
    ]
}

/// What becomes of the pod when it arrives, and when it has been held past its limit; and what is said.
pub(super) fn fates(fleet: &Value, pod: &Value, config: &Config) -> [String; 2] {
    [None, Some(Micros::from_secs(31))].map(|held| {
        let snapshot = testkit::snapshot(fleet);
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let mut workload = pod.workload("shop".into(), &config.keys);
        if held.is_some() {
            workload.held = held;
            workload.gates = vec!["scheduling.example.io/awaiting-capacity".into()];
        }
        let verdict = decide(&workload, &Room::of(&snapshot), config, NOW);
        let place = verdict
            .site()
            .map(|site| format!("{}: ", site.name()))
            .unwrap_or_default();
        format!("{place}{}", verdict.reason.as_str())
    })
}

fn said(fleet: &Value, pod: &Value) -> Vec<String> {
    with_verdict(fleet, pod, &Config::default(), |verdict| verdict.warnings.clone())
}

#[test]
fn what_only_a_cloud_could_hold_waits_for_it_past_its_limit() {
    let config = Config::default();
    for (away, why) in aways() {
        assert_eq!(fates(&away, &gpu(), &config), ["held_site_away"; 2], "{why}");
        assert_eq!(
            said(&away, &gpu()),
            [format!("held until a site is back: cloud ({why})")]
        );
        // One that an edge node could hold goes there.
        assert_eq!(
            fates(&away, &pod(json!({})), &config),
            ["edge: edge_no_slo_target", "edge: released_edge"],
            "{why}"
        );
        // As does, full or not, one that may not leave it.
        let local = with(
            gpu(),
            "/metadata/annotations/slo.example.io~1offloadAllowed",
            json!("false"),
        );
        let tied = with(gpu(), "/spec/hostNetwork", json!(true));
        for pod in [local, tied] {
            let [arriving, _] = fates(&away, &pod, &config);
            assert_eq!(arriving, "edge: edge_too_large", "{why}: {pod}");
        }
    }
    assert_eq!(
        fates(&fleet(), &gpu(), &config),
        ["cloud: cloud_edge_no_capacity", "cloud: released_cloud"]
    );
}

#[test]
fn old_node_that_lacks_the_resource_is_not_waited_for() {
    let config = Config::default();
    let expected = ["edge: edge_too_large", "edge: released_timeout"];
    assert_eq!(fates(&super::fleet(0), &gpu(), &config), expected);
    // A young node that lacks it is away; so is one that lacks a label or keeps a taint that it starts with.
    assert_eq!(fates(&young(), &gpu(), &config), ["held_site_away"; 2]);
    let tainted = with(
        fleet(),
        "/nodes/1/taints",
        json!([{"key": "starts", "effect": "NoSchedule"}]),
    );
    assert_eq!(fates(&tainted, &gpu(), &config), expected);
    let tainted = with(tainted, "/nodes/1/young", json!(true));
    assert_eq!(fates(&tainted, &gpu(), &config), ["held_site_away"; 2]);
    let labelled = with(gpu(), "/spec/nodeSelector", json!({"disk": "tape"}));
    assert_eq!(fates(&fleet(), &labelled, &config)[0], "passthrough_no_site_matches");
    assert_eq!(fates(&young(), &labelled, &config)[0], "cloud: cloud_pinned_by_pod");
    // At the edge, age does not matter.
    let edge = with(super::fleet(0), "/nodes/0/young", json!(true));
    assert_eq!(fates(&edge, &gpu(), &config), expected);
}

#[test]
fn cloud_without_nodes_is_waited_for_until_the_limit() {
    let config = Config::default();
    let empty = without_cloud_node();
    assert_eq!(
        fates(&empty, &gpu(), &config),
        ["held_site_away", "edge: released_timeout"]
    );
    assert_eq!(said(&empty, &gpu()), ["held until a site is back: cloud (no node)"]);
    // Not by a pod that the edge could hold, may not leave the edge, or may not be held.
    assert_eq!(fates(&empty, &pod(json!({})), &config)[0], "edge: edge_no_slo_target");
    let tied = with(gpu(), "/spec/hostNetwork", json!(true));
    assert_eq!(fates(&empty, &tied, &config)[0], "edge: edge_too_large");
    assert_eq!(fates(&empty, &gpu(), &unheld())[0], "edge: edge_too_large");
}

#[test]
fn a_cloud_that_is_there_and_full_is_waited_for_until_the_limit() {
    let full = with(fleet(), "/nodes/1/used", json!({"nvidia.com/gpu": 4, "pods": 4}));
    let config = Config::default();
    assert_eq!(
        fates(&full, &gpu(), &config),
        ["held_no_capacity", "cloud: released_timeout"]
    );
    // So is one beside another that is away.
    let mut beside = full.clone();
    beside["sites"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "b", "kind": "cloud", "nodeSelector": {"site": "b"}, "wan": {"reachable": false}}));
    let mut node = fleet()["nodes"][1].clone();
    (node["name"], node["labels"]) = (json!("b"), json!({"site": "b"}));
    beside["nodes"].as_array_mut().unwrap().push(node);
    assert_eq!(
        fates(&beside, &gpu(), &config),
        ["held_no_capacity", "cloud: released_timeout"]
    );
    // A healthy WAN and a node that is too small are no cloud that is there for it.
    let mut mixed = not_ready();
    let mut small = super::fleet(0)["nodes"][1].clone();
    small["name"] = json!("c2");
    mixed["nodes"].as_array_mut().unwrap().push(small);
    assert_eq!(fates(&mixed, &gpu(), &config), ["held_site_away"; 2]);
}

#[test]
fn what_may_not_be_held_is_placed_in_the_cloud_at_once() {
    let mut impatient = Config::default();
    impatient.holding.on_no_capacity = OnNoCapacity::Edge;
    let mut other_classes = Config::default();
    other_classes.holding.limits[Class::Latency] = Micros(0);
    for (away, why) in aways() {
        for config in [&impatient, &other_classes, &unheld()] {
            let expected = ["cloud: cloud_best_effort", "cloud: released_cloud"];
            assert_eq!(fates(&away, &gpu(), config), expected, "{why}");
        }
        let sandboxed = with(away, "/sites/1/runtimeClassName", json!("sandboxed"));
        let [arriving, _] = fates(&sandboxed, &gpu(), &Config::default());
        assert_eq!(arriving, "cloud: cloud_best_effort", "{why}");
    }
}

#[test]
fn an_old_view_of_the_cluster_sends_nothing_to_the_edge_that_could_not_run_there() {
    let config = Config::default();
    let stale = |fleet: Value| with(fleet, "/ageSeconds", json!(61));
    assert_eq!(fates(&stale(not_ready()), &gpu(), &config), ["held_site_away"; 2]);
    let [arriving, _] = fates(&stale(fleet()), &gpu(), &config);
    assert_eq!(arriving, "held_no_capacity");
    let [arriving, _] = fates(&stale(not_ready()), &gpu(), &unheld());
    assert_eq!(arriving, "cloud: cloud_best_effort");
}

#[test]
fn a_pod_that_only_a_cloud_could_hold_goes_there_late_rather_than_wait() {
    let mut late = gpu();
    late["metadata"]["annotations"]["slo.example.io/deadlineMs"] = json!("125");
    let config = Config::default();
    assert_eq!(fates(&fleet(), &late, &config)[0], "cloud: cloud_best_effort");
}

#[test]
fn a_pod_that_pins_itself_to_a_cloud_that_is_away_gets_its_placement() {
    let config = Config::default();
    let pinned = with(gpu(), "/spec/nodeSelector", json!({"node.role/cloud": "true"}));
    for (away, why) in aways() {
        assert_eq!(
            fates(&away, &pinned, &config),
            ["cloud: cloud_pinned_by_pod", "cloud: released_cloud"],
            "{why}"
        );
        assert_eq!(
            said(&away, &pinned),
            [format!("Pending until its site is back: cloud ({why})")]
        );
    }
    // Also in a cloud without nodes, if the pod names the labels of that.
    let empty = without_cloud_node();
    assert_eq!(fates(&empty, &pinned, &config)[0], "cloud: cloud_pinned_by_pod");
    assert_eq!(
        said(&empty, &pinned),
        ["Pending until its site is back: cloud (no node)"]
    );
    let to_edge = with(gpu(), "/spec/nodeSelector", json!({"disk": "ssd"}));
    assert_eq!(fates(&not_ready(), &to_edge, &config)[0], "edge: edge_pinned_by_pod");
    let nowhere = with(gpu(), "/spec/nodeSelector", json!({"disk": "tape"}));
    for fleet in [not_ready(), empty] {
        assert_eq!(fates(&fleet, &nowhere, &config)[0], "passthrough_no_site_matches");
    }

    // Of several clouds, one that could hold it, and rather one that is there.
    let mut two = two_clouds();
    let label = with(gpu(), "/spec/nodeSelector", json!({"any": "cloud"}));
    two["nodes"][1]["allocatable"]["nvidia.com/gpu"] = json!(1);
    assert_eq!(fates(&two, &label, &config)[0], "far: cloud_pinned_by_pod");
    two["nodes"][1]["used"] = json!({"nvidia.com/gpu": 1, "pods": 1});
    assert_eq!(fates(&two, &label, &config)[0], "far: cloud_pinned_by_pod");
    two["nodes"][2]["allocatable"]["nvidia.com/gpu"] = json!(1);
    two["nodes"][2]["ready"] = json!(false);
    assert_eq!(fates(&two, &label, &config)[0], "far: cloud_pinned_by_pod");
}

#[test]
fn an_edge_node_that_is_not_ready_could_hold_a_pod() {
    let mut down = not_ready();
    down["nodes"][0]["allocatable"]["nvidia.com/gpu"] = json!(1);
    down["nodes"][0]["ready"] = json!(false);
    assert_eq!(
        fates(&down, &gpu(), &Config::default()),
        ["held_no_capacity", "edge: released_timeout"]
    );
}
