//! Whether a pod is ours, and whether it says what it wants.

use serde_json::{Value, json};

use super::*;

#[test]
fn pods_that_are_not_ours() {
    let web = pod(json!({}));
    let owned = |kind: &str| {
        with(
            web.clone(),
            "/metadata/ownerReferences",
            json!([{"kind": kind, "controller": true}]),
        )
    };
    let labelled = |value: &str| {
        with(
            web.clone(),
            "/metadata/labels",
            json!({"scheduling.example.io/managed": value}),
        )
    };
    let denying = Config {
        invalid_slo: InvalidSlo::Deny,
        ..Config::default()
    };
    for (expected, pod) in [
        ("passthrough_not_managed", json!({"metadata": {}, "spec": {}})),
        ("passthrough_opted_out", labelled("false")),
        (
            "passthrough_node_name",
            with(web.clone(), "/spec/nodeName", json!("e1")),
        ),
        ("passthrough_daemonset", owned("DaemonSet")),
        ("edge: edge_no_slo_target", owned("ReplicaSet")),
        (
            "passthrough_mirror",
            with(
                web.clone(),
                "/metadata/annotations/kubernetes.io~1config.mirror",
                json!("x"),
            ),
        ),
        (
            "edge: edge_no_slo_target",
            with(
                web.clone(),
                "/metadata/labels",
                json!({"liqo.io/managed-by": "shadowpod"}),
            ),
        ),
        (
            "held_no_capacity",
            with(
                web.clone(),
                "/spec/schedulingGates",
                json!([{"name": "scheduling.example.io/awaiting-capacity"}]),
            ),
        ),
        (
            "edge: edge_no_slo_target",
            with(
                web.clone(),
                "/spec/schedulingGates",
                json!([{"name": "kueue.x-k8s.io/admission"}]),
            ),
        ),
        ("edge: edge_invalid_slo", labelled("true")),
    ] {
        assert_eq!(outcome(&fleet(0), &pod), expected, "{pod}");
        // Who is left alone is not refused either, whatever it states.
        let is_left_alone = ["node_name", "daemonset", "mirror", "opted_out"]
            .iter()
            .any(|kind| expected == format!("passthrough_{kind}"));
        if is_left_alone {
            let wrong = with(
                pod,
                "/metadata/annotations/slo.example.io~1sites",
                json!("region in (eu"),
            );
            assert_eq!(outcome_with(&fleet(0), &wrong, &denying), expected, "{wrong}");
        }
    }
    let excluded = Config {
        excluded_namespaces: vec!["shop".into()],
        ..Config::default()
    };
    assert_eq!(
        outcome_with(&fleet(0), &web, &excluded),
        "passthrough_excluded_namespace"
    );
}

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

    // A later webhook has gated it.
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

#[test]
fn an_invalid_slo_stays_at_the_edge_with_a_warning_or_is_denied() {
    let bad = pod(json!({"deadlineMs": "soon", "priority": "99"}));
    assert_eq!(outcome(&fleet(4000), &bad), "edge: edge_invalid_slo");
    assert_eq!(warnings(&fleet(0), &bad).len(), 2);
    let deny = Config {
        invalid_slo: InvalidSlo::Deny,
        ..Config::default()
    };
    assert_eq!(outcome_with(&fleet(0), &bad, &deny), "denied_invalid_slo");
    with_verdict(&fleet(0), &bad, &deny, |verdict| assert_eq!(verdict.faults.len(), 2));
    let misspelt = pod(json!({"deadlineMS": "5"}));
    assert_eq!(outcome_with(&fleet(0), &misspelt, &deny), "edge: edge_no_slo_target");
    assert_eq!(
        warnings(&fleet(0), &misspelt),
        ["slo.example.io/deadlineMS is not an annotation that edgeward reads"]
    );
}
