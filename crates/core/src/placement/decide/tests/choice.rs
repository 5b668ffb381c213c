//! Which site it is, and for which reason.

use serde_json::{Value, json};

use super::*;

#[test]
fn the_order_of_choice() {
    let full = fleet(4000);
    let behind = with(fleet(0), "/sites/0/observedProcMs", json!({"latency": 2970}));
    let bad_wan = |fleet: Value| with(fleet, "/sites/1/wan", json!({"rttMs": 250, "lossPct": 0.1}));
    let slow_cloud = |fleet: Value| with(fleet, "/sites/1/speedFactor", json!(0.1));
    for (expected, fleet, pod) in [
        // (a)
        (
            "edge: edge_feasible_slo_met",
            fleet(0),
            pod(json!({"deadlineMs": "300"})),
        ),
        (
            "edge: edge_feasible_slo_met",
            fleet(0),
            pod(json!({"deadlineMs": "270", "latencyTargetMs": "270"})),
        ),
        ("edge: edge_no_slo_target", fleet(3500), pod(json!({}))),
        // (b)
        (
            "cloud: cloud_edge_no_capacity",
            full.clone(),
            pod(json!({"deadlineMs": "400"})),
        ),
        ("cloud: cloud_edge_no_capacity", fleet(3501), pod(json!({}))),
        (
            "cloud: cloud_edge_deadline_missed",
            behind.clone(),
            pod(json!({"deadlineMs": "400"})),
        ),
        (
            "cloud: cloud_edge_deadline_missed",
            behind.clone(),
            pod(json!({"deadlineMs": "320"})),
        ),
        // (c)
        ("edge: edge_fail_soft", fleet(0), pod(json!({"deadlineMs": "269"}))),
        (
            "edge: edge_fail_soft",
            behind.clone(),
            pod(json!({"deadlineMs": "319"})),
        ),
        (
            "cloud: cloud_best_effort",
            behind.clone(),
            pod(json!({"deadlineMs": "319", "priority": "7"})),
        ),
        (
            "edge: edge_best_effort",
            fleet(0),
            pod(json!({"deadlineMs": "269", "priority": "7"})),
        ),
        // (d)
        (
            "cloud: cloud_best_effort",
            full.clone(),
            pod(json!({"deadlineMs": "300", "priority": "9"})),
        ),
        (
            "cloud: cloud_best_effort",
            full.clone(),
            pod(json!({"deadlineMs": "269"})),
        ),
        // (e)
        (
            "edge: edge_no_capacity",
            full.clone(),
            pod(json!({"deadlineMs": "300"})),
        ),
        (
            "edge: edge_no_capacity",
            slow_cloud(full.clone()),
            pod(json!({"deadlineMs": "300", "priority": "6"})),
        ),
        (
            "edge: edge_wan_degraded",
            bad_wan(full.clone()),
            pod(json!({"deadlineMs": "300"})),
        ),
        (
            "edge: edge_wan_degraded",
            bad_wan(behind.clone()),
            pod(json!({"deadlineMs": "300", "priority": "10"})),
        ),
        // A degraded WAN never pushes onto a full edge what a healthy one would not, and never hides a good edge.
        (
            "edge: edge_feasible_slo_met",
            bad_wan(fleet(0)),
            pod(json!({"deadlineMs": "300"})),
        ),
    ] {
        assert_eq!(outcome(&fleet, &pod), expected, "{pod} on {fleet}");
    }
}

#[test]
fn why_the_edge_in_order_of_the_contract() {
    let full = fleet(4000);
    let web = pod(json!({"deadlineMs": "400"}));
    let wan = |wan: Value| with(full.clone(), "/sites/1/wan", wan);
    let big = |cpu: &str| with(web.clone(), "/spec/containers/0/resources/requests/cpu", json!(cpu));
    let preemptable = with(
        full.clone(),
        "/nodes/0/usedByPriority",
        json!([{"priority": 0, "used": {"cpu": 1, "pods": 2}}]),
    );
    let unreachable = json!({"reachable": false});
    for (expected, fleet, pod) in [
        (
            "edge: edge_telemetry_stale",
            with(fleet(0), "/ageSeconds", json!(60.001)),
            web.clone(),
        ),
        ("edge: edge_too_large", full.clone(), big("65")),
        ("cloud: cloud_best_effort", full.clone(), big("64")),
        (
            "edge: edge_offload_not_allowed",
            full.clone(),
            pod(json!({"deadlineMs": "400", "offloadAllowed": "false"})),
        ),
        ("edge: edge_too_large", full.clone(), pod_with_cpu_at_home("5")),
        (
            "edge: edge_not_offloadable",
            full.clone(),
            with(web.clone(), "/spec/hostNetwork", json!(true)),
        ),
        (
            "edge: edge_cloud_site_missing",
            with(full.clone(), "/nodes/1/labels", json!({})),
            web.clone(),
        ),
        (
            "edge: edge_cloud_site_missing",
            with(full.clone(), "/nodes/1/ready", json!(false)),
            web.clone(),
        ),
        (
            "edge: edge_cloud_site_missing",
            with(full.clone(), "/nodes/1/unschedulable", json!(true)),
            web.clone(),
        ),
        ("edge: edge_wan_unreachable", wan(unreachable.clone()), web.clone()),
        ("edge: edge_wan_unreachable", wan(json!(null)), web.clone()),
        ("edge: edge_wan_degraded", wan(json!({"rttMs": 100})), web.clone()),
        (
            "edge: edge_wan_degraded",
            wan(json!({"rttMs": 5, "lossPct": 2})),
            web.clone(),
        ),
        (
            "edge: edge_wan_degraded",
            wan(json!({"rttMs": 5, "ageSeconds": 61})),
            web.clone(),
        ),
        (
            "edge: edge_wan_degraded",
            wan(json!({"rttMs": 5, "health": "degraded"})),
            web.clone(),
        ),
        (
            "cloud: cloud_edge_no_capacity",
            wan(json!({"rttMs": 99.9, "lossPct": 1.9, "ageSeconds": 60})),
            pod(json!({})),
        ),
        (
            "edge: edge_no_capacity",
            with(preemptable.clone(), "/sites/1/speedFactor", json!(0.01)),
            web.clone(),
        ),
        (
            "edge: edge_preempts",
            with(preemptable.clone(), "/sites/1/speedFactor", json!(0.01)),
            with(web.clone(), "/spec/priority", json!(1)),
        ),
        (
            "edge: edge_no_capacity",
            with(preemptable, "/sites/1/speedFactor", json!(0.01)),
            with(
                with(web.clone(), "/spec/priority", json!(1)),
                "/spec/preemptionPolicy",
                json!("Never"),
            ),
        ),
    ] {
        assert_eq!(outcome(&fleet, &pod), expected, "{pod} on {fleet}");
    }

    let disabled = Config {
        enable_offload: false,
        ..ungated()
    };
    assert_eq!(outcome_with(&full, &web, &disabled), "edge: edge_offload_not_allowed");
    // The best of several clouds names the reason.
    let two = with(
        wan(unreachable),
        "/sites/-",
        json!({"name": "b", "kind": "cloud", "nodeSelector": {"b": "b"}}),
    );
    assert_eq!(outcome(&two, &web), "edge: edge_wan_unreachable");
}

/// Fits the cloud only, and may not go there.
fn pod_with_cpu_at_home(cpu: &str) -> Value {
    let local = pod(json!({"offloadAllowed": "false"}));
    with(local, "/spec/containers/0/resources/requests/cpu", json!(cpu))
}

#[test]
fn a_cloud_that_the_pod_cannot_go_to_does_not_hide_why_the_others_will_not_do() {
    let full_edge = |fleet: Value| with(fleet, "/nodes/0/used", json!({"cpu": "4"}));
    let fleet = with(full_edge(two_clouds()), "/sites/1/supports", json!(["hostIPC"]));
    let fleet = with(fleet, "/sites/1/wan", json!({"reachable": false}));
    let tied = with(pod(json!({})), "/spec/hostIPC", json!(true));
    assert_eq!(outcome(&fleet, &tied), "edge: edge_wan_unreachable");
}
