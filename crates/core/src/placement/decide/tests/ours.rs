//! Whether edgeward manages a pod, and whether the pod's SLO is complete.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_recent_placement_of_ours_is_repeated() {
    let placed = |at: &str, decision: &str, site: &str, spec: Value| {
        let mut pod = pod(json!({}));
        for (name, value) in [
            ("decision", decision),
            ("site", site),
            ("timestamp", at),
            ("decision-id", "x"),
        ] {
            pod["metadata"]["annotations"][format!("scheduling.example.io/{name}")] = json!(value);
        }
        with(pod, "/spec", spec)
    };
    let edge = json!({"nodeSelector": {"node.role/edge": "true"}});
    let half = json!({"nodeSelector": {"node.role/cloud": "true"}});
    let cloud = with(
        half.clone(),
        "/tolerations",
        json!([{"key": "cloud", "operator": "Exists"}]),
    );
    let (now, late) = ("2026-01-01T00:00:20Z", "2026-01-01T00:00:31Z");
    let is_ours = |pod: Value| outcome(&fleet(0), &pod) == "passthrough_reinvocation";
    // testkit::NOW is at midnight.
    assert!(is_ours(placed(now, "edge", "edge", edge.clone())));
    assert!(is_ours(placed(now, "cloud", "cloud", cloud)));
    assert!(!is_ours(placed(now, "cloud", "cloud", half)));
    assert!(!is_ours(placed(late, "edge", "edge", edge.clone())));
    assert!(!is_ours(placed("soon", "edge", "edge", edge.clone())));
    assert!(!is_ours(placed(now, "cloud", "edge", edge.clone())));
    assert!(!is_ours(placed(now, "edge", "moon", edge.clone())));
    assert!(!is_ours(placed(now, "edge", "edge", json!({}))));

    // A later webhook has gated the pod.
    let gated = |gates: &[&str]| {
        let gates: Vec<_> = gates.iter().map(|gate| json!({"name": gate})).collect();
        placed(
            now,
            "edge",
            "edge",
            with(edge.clone(), "/schedulingGates", json!(gates)),
        )
    };
    let (queue, ours) = ("queue.example/admission", "scheduling.example.io/awaiting-capacity");
    let outcome = |pod: Value| outcome_with(&fleet(0), &pod, &Config::default());
    assert_eq!(outcome(gated(&[queue])), "passthrough_reinvocation");
    assert_eq!(outcome(gated(&[ours])), "held_no_capacity");
    assert_eq!(outcome(gated(&[queue, ours])), "held_foreign_gate");
}
