//! Pods that only a cloud could hold, and clouds that are away.

use serde_json::{Value, json};

use super::*;

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

/// Every way in which the cloud can be away, with the refusal.
fn aways() -> [(Value, RefusalCode); 7] {
    [
        (without_cloud_node(), RefusalCode::NoNode),
        (young(), RefusalCode::NewNode),
        (not_ready(), RefusalCode::NodeNotReady),
        (
            with(fleet(), "/nodes/1/unschedulable", json!(true)),
            RefusalCode::NodeNotReady,
        ),
        (with_wan(json!({"reachable": false})), RefusalCode::Unreachable),
        (with_wan(json!({"rttMs": 200, "lossPct": 0})), RefusalCode::Degraded),
        (
            with_wan(json!({"rttMs": 20, "lossPct": 0, "ageSeconds": 61})),
            RefusalCode::Stale,
        ),
    ]
}

/// What becomes of the pod when it arrives, and when it has been gated past its limit; and what is said.
pub(super) fn fates(fleet: &Value, pod: &Value, config: &Config) -> [String; 2] {
    [None, Some(Micros::from_secs(31))].map(|gated| {
        let snapshot = testkit::snapshot(fleet);
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let mut workload = pod.workload("shop".into(), &config.keys);
        if gated.is_some() {
            workload.gated_for = gated;
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
fn cloud_that_is_the_only_possible_site_gets_the_pod_while_it_is_away() {
    let config = Config::default();
    for (away, code) in aways() {
        assert_eq!(
            fates(&away, &gpu(), &config),
            ["cloud: cloud_best_effort"; 2],
            "{code:?}"
        );
        let warning = format!("placed on a site that cannot be used now: cloud ({})", code.as_str());
        assert_eq!(said(&away, &gpu()), [warning]);
        // The edge could hold this one.
        assert_eq!(
            fates(&away, &pod(json!({})), &config),
            ["edge: edge_no_slo_target"; 2],
            "{code:?}"
        );
        // These may not leave the edge.
        let local = with(
            gpu(),
            "/metadata/annotations/slo.example.io~1offloadAllowed",
            json!("false"),
        );
        let tied = with(gpu(), "/spec/hostNetwork", json!(true));
        for pod in [local, tied] {
            let expected = ["edge: edge_too_large", "edge: released_timeout"];
            assert_eq!(fates(&away, &pod, &config), expected, "{code:?}: {pod}");
        }
        let pinned = with(gpu(), "/spec/nodeSelector", json!({"node.role/cloud": "true"}));
        assert_eq!(fates(&away, &pinned, &config), ["cloud: cloud_pinned_by_pod"; 2]);
    }
    let here = fates(&fleet(), &gpu(), &config);
    assert_eq!(here, ["cloud: cloud_edge_no_capacity", "cloud: cloud_best_effort"]);
    let full = with(fleet(), "/nodes/1/used", json!({"nvidia.com/gpu": 4, "pods": 4}));
    assert_eq!(fates(&full, &gpu(), &config), ["cloud: cloud_best_effort"; 2]);
}

#[test]
fn young_node_makes_the_cloud_away_and_an_old_one_excludes_it() {
    let config = Config::default();
    let expected = ["edge: edge_too_large", "edge: released_timeout"];
    assert_eq!(fates(&super::fleet(0), &gpu(), &config), expected);
    let tainted = with(
        fleet(),
        "/nodes/1/taints",
        json!([{"key": "starts", "effect": "NoSchedule"}]),
    );
    assert_eq!(fates(&tainted, &gpu(), &config), expected);
    let tainted = with(tainted, "/nodes/1/young", json!(true));
    assert_eq!(fates(&tainted, &gpu(), &config), ["cloud: cloud_best_effort"; 2]);
    let labelled = with(gpu(), "/spec/nodeSelector", json!({"disk": "tape"}));
    assert_eq!(fates(&fleet(), &labelled, &config)[0], "passthrough_no_site_matches");
    assert_eq!(fates(&young(), &labelled, &config)[0], "cloud: cloud_pinned_by_pod");
    let edge = with(super::fleet(0), "/nodes/0/young", json!(true));
    assert_eq!(fates(&edge, &gpu(), &config), expected);
}

#[test]
fn several_clouds_that_are_away_gate_the_pod_without_a_limit() {
    let mut two = two_clouds();
    for node in [1, 2] {
        two["nodes"][node]["allocatable"]["nvidia.com/gpu"] = json!(1);
        two["nodes"][node]["ready"] = json!(false);
    }
    let config = Config::default();
    assert_eq!(fates(&two, &gpu(), &config), ["held_site_away"; 2]);
    // A pod that may not be gated goes to the first by ETA.
    assert_eq!(
        fates(&two, &gpu(), &ungated()),
        ["near: cloud_best_effort", "near: released_timeout"]
    );
    // One is back and full: the pod waits for its room until the limit.
    two["nodes"][1]["ready"] = json!(true);
    two["nodes"][1]["used"] = json!({"nvidia.com/gpu": 1, "pods": 1});
    assert_eq!(
        fates(&two, &gpu(), &config),
        ["held_no_capacity", "far: released_timeout"]
    );
}

#[test]
fn stale_view_keeps_no_pod_from_its_only_possible_site() {
    let stale = |fleet: Value| with(fleet, "/ageSeconds", json!(61));
    let config = Config::default();
    assert_eq!(
        fates(&stale(fleet()), &gpu(), &config)[0],
        "cloud: cloud_edge_no_capacity"
    );
    let mut late = gpu();
    late["metadata"]["annotations"]["slo.example.io/deadlineMs"] = json!("125");
    assert_eq!(fates(&fleet(), &late, &config)[0], "cloud: cloud_best_effort");
}

#[test]
fn edge_node_that_is_not_ready_could_hold_a_pod() {
    let mut down = not_ready();
    down["nodes"][0]["allocatable"]["nvidia.com/gpu"] = json!(1);
    down["nodes"][0]["ready"] = json!(false);
    assert_eq!(
        fates(&down, &gpu(), &Config::default()),
        ["held_no_capacity", "edge: released_timeout"]
    );
}

#[test]
fn edge_under_disk_pressure_and_cloud_away_send_no_pod_to_the_cloud() {
    let pressure = json!([{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]);
    let edge_down = with(super::fleet(0), "/nodes/0/taints", pressure);
    let config = Config::default();
    // A good cloud takes it.
    assert_eq!(
        fates(&edge_down, &pod(json!({})), &config)[0],
        "cloud: cloud_edge_no_capacity"
    );
    for (pointer, value) in [
        ("/sites/1/wan", json!(null)),
        ("/sites/1/wan", json!({"rttMs": 300, "lossPct": 0})),
        ("/nodes/1/ready", json!(false)),
    ] {
        let both = with(edge_down.clone(), pointer, value.clone());
        let expected = ["held_no_capacity", "edge: released_timeout"];
        assert_eq!(fates(&both, &pod(json!({})), &config), expected, "{pointer} {value}");
    }
}
