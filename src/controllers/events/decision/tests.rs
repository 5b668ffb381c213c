use std::collections::HashSet;

use edgeward_cluster::testkit;
use edgeward_decision::keys::Keys;
use edgeward_decision::placement::verdict::Reason;
use serde_json::json;

use super::*;

const AT: &str = "2026-01-01T00:00:00Z";
const ID: &str = "00000000-0000-4000-8000-000000000001";

/// A pod as observed with this reason, whose spec places it on a site of this kind.
fn observed(reason: &str, kind: Option<SiteKind>, gated: bool, annotations: &Value) -> ObservedDecision {
    let mut all = json!({
        "slo.example.io/class": "latency",
        "slo.example.io/deadlineMs": "500",
        "scheduling.example.io/decision": "cloud",
        "scheduling.example.io/site": "forged",
        "scheduling.example.io/reason": reason,
        "scheduling.example.io/timestamp": AT,
        "scheduling.example.io/decision-id": ID,
        "scheduling.example.io/wanRttMs": "22",
        "scheduling.example.io/explain":
            r#"{"cloud":{"fit":1,"eta":144},"edge":{"fit":0,"eta":120,"no":["no_room","deadline"]}}"#,
    });
    let more = annotations.as_object().cloned().unwrap_or_default();
    all.as_object_mut().unwrap().extend(more);
    let requests = json!({"cpu": "200m", "memory": "128Mi"});
    let pod = json!({
        "metadata": {"name": "camera-1", "namespace": "shop", "uid": "u1", "annotations": all},
        "spec": {"containers": [{"name": "app", "resources": {"requests": requests}}]},
    });
    let record = testkit::record(&pod, &Keys::new("example.io"));
    ObservedDecision {
        namespace: record.namespace,
        uid: record.uid,
        site: kind.map(|kind| (format!("the-{}", kind.as_str()), kind)),
        gated,
        request: record.request,
        was_gated: false,
        decided: *record.decided.unwrap(),
    }
}

fn events(reason: &str, kind: Option<SiteKind>, gated: bool) -> Vec<PodEvent> {
    events_of(&observed(reason, kind, gated, &json!({})), Timestamp::MAX)
}

fn reasons(reason: &str, kind: Option<SiteKind>, gated: bool) -> Vec<&'static str> {
    let events = events(reason, kind, gated);
    events.iter().map(|event| event.reason.as_str()).collect()
}

const EDGE: Option<SiteKind> = Some(SiteKind::Edge);
const CLOUD: Option<SiteKind> = Some(SiteKind::Cloud);

#[test]
fn event_reasons_match_decision_and_placement() {
    for (reason, kind, gated, expected) in [
        ("cloud_edge_no_capacity", CLOUD, false, &["PlacedCloud"][..]),
        ("cloud_best_effort", CLOUD, false, &["PlacedCloud", "SloAtRisk"]),
        ("edge_feasible_slo_met", EDGE, false, &[]),
        ("edge_best_effort", EDGE, false, &["SloAtRisk"]),
        ("edge_fail_soft", EDGE, false, &["SloAtRisk"]),
        ("held_no_capacity", None, true, &["Gated"]),
        // The pod's own selector makes it look placed at the edge.
        ("held_foreign_gate", EDGE, true, &["Gated"]),
        ("released_timeout", EDGE, false, &["Released", "SloAtRisk"]),
        ("no_such_family", EDGE, false, &[]),
        ("", EDGE, false, &[]),
        // The spec does not carry the placement.
        ("cloud_edge_no_capacity", EDGE, false, &[]),
        ("cloud_edge_no_capacity", None, false, &[]),
        ("cloud_best_effort", EDGE, false, &[]),
        ("edge_best_effort", None, false, &[]),
        ("edge_feasible_slo_met", CLOUD, false, &[]),
        ("held_no_capacity", None, false, &[]),
        ("released_timeout", None, false, &[]),
        ("released_timeout", EDGE, true, &[]),
    ] {
        assert_eq!(reasons(reason, kind, gated), expected, "{reason} {kind:?}");
    }
}

#[test]
fn placed_pod_that_was_gated_is_reported_as_released() {
    for (reason, kind) in [("edge_feasible_slo_met", EDGE), ("cloud_edge_no_capacity", CLOUD)] {
        let released = ObservedDecision {
            was_gated: true,
            ..observed(reason, kind, false, &json!({}))
        };
        let told = events_of(&released, Timestamp::MAX);
        assert_eq!(told[0].reason, PodReason::Released, "{reason}");
        assert_eq!(told.len(), 1);
    }
}

#[test]
fn decision_note_contains_request_rtt_and_site_figures() {
    let note = |annotations: Value| {
        let observed = observed("cloud_edge_no_capacity", CLOUD, false, &annotations);
        events_of(&observed, Timestamp::MAX).remove(0).note
    };
    assert_eq!(
        note(json!({})),
        "sent to site the-cloud: the edge has no room, and this cloud meets its time (cloud_edge_no_capacity); \
         asks for deadline 500 ms, cpu 200m, memory 128Mi; RTT 22 ms; cloud: fits 1 node, ETA 144 ms; \
         edge: fits 0 nodes, ETA 120 ms, refused: it has no room (no_room), the ETA is beyond the deadline (deadline)"
    );
    let full = r#"{"edge":{"fittingNodes":0,"etaMs":120,"refusals":
        {"no_room":{"usableNodes":2,"request":{"cpu":200,"memory":64},"largestFree":{"cpu":100,"memory":64}}}}}"#;
    let note = note(json!({"scheduling.example.io/explain": full, "scheduling.example.io/wanRttMs": "x".repeat(65)}));
    assert!(
        note.ends_with(
            "memory 128Mi; edge: fits 0 nodes, ETA 120 ms, refused: it has no room: usable nodes 2, asked for cpu 200m, free \
             at most cpu 100m (no_room)"
        ),
        "{note}"
    );
}

#[test]
fn invalid_slo_event_lists_every_fault() {
    let faults = json!({"slo.example.io/deadlineMs": "-5", "slo.example.io/priority": "11"});
    let observed = observed("edge_invalid_slo", EDGE, false, &faults);
    let told = events_of(&observed, Timestamp::MAX);
    assert_eq!(
        told.iter().map(|event| event.reason).collect::<Vec<_>>(),
        [PodReason::InvalidSlo]
    );
    for fault in ["slo.example.io/deadlineMs: \"-5\"", "slo.example.io/priority: \"11\""] {
        assert!(told[0].note.contains(fault), "{}", told[0].note);
    }
}

#[test]
fn event_name_depends_on_pod_reason_and_decision_only() {
    let one = events("cloud_best_effort", CLOUD, false);
    let name = |event: &PodEvent| event.event().metadata.name.unwrap();
    assert_eq!(name(&one[0]), name(&events("cloud_best_effort", CLOUD, false)[0]));
    assert!(name(&one[0]).starts_with("camera-1."), "{}", name(&one[0]));
    let others = [
        one[1].clone(),
        PodEvent {
            uid: "u2".into(),
            ..one[0].clone()
        },
        PodEvent {
            decision: None,
            ..one[0].clone()
        },
        PodEvent {
            decision: DecisionId::parse("00000000-0000-4000-8000-000000000002"),
            ..one[0].clone()
        },
    ];
    for other in others {
        assert_ne!(name(&one[0]), name(&other), "{other:?}");
    }
    // The note and the time do not affect the name.
    let later = PodEvent {
        at: Timestamp::MAX,
        note: String::new(),
        ..one[0].clone()
    };
    assert_eq!(name(&one[0]), name(&later));
}

#[test]
fn event_stays_within_api_server_limits() {
    let long = PodEvent {
        note: "ü".repeat(NOTE_BYTES),
        name: "x".repeat(253).into(),
        ..events("cloud_best_effort", CLOUD, false).remove(0)
    };
    let event = long.event();
    assert!(event.note.unwrap().len() <= 1024);
    assert_eq!(event.metadata.name.unwrap().len(), 253);
    assert_eq!(event.metadata.namespace.as_deref(), Some("shop"));
    let regarding = event.regarding.unwrap();
    assert_eq!(
        (regarding.kind.as_deref(), regarding.uid.as_deref()),
        (Some("Pod"), Some("u1"))
    );
}

#[test]
fn event_time_is_never_in_the_future() {
    let observed = observed("cloud_best_effort", CLOUD, false, &json!({}));
    let before: Timestamp = "2025-12-31T00:00:00Z".parse().unwrap();
    assert_eq!(events_of(&observed, before)[0].at, before);
    assert_eq!(events_of(&observed, Timestamp::MAX)[0].at, AT.parse().unwrap());
}

#[test]
fn every_placement_reason_has_a_description() {
    let placing = |reason: &&str| {
        ["edge_", "cloud_", "held_", "released_"]
            .iter()
            .any(|family| reason.starts_with(family))
    };
    for reason in Reason::ALL.iter().map(|reason| reason.as_str()).filter(placing) {
        assert_ne!(in_words(reason), reason.replace('_', " "), "{reason}");
    }
}

#[test]
fn gated_pod_without_decision_id_has_one_event_per_reason() {
    let name = |reason: &str| {
        let pod = json!({
            "metadata": {"name": "camera-1", "namespace": "shop", "uid": "u1", "annotations": {
                "scheduling.example.io/reason": reason,
                "scheduling.example.io/timestamp": AT,
            }},
            "spec": {"schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}]},
        });
        let record = testkit::record(&pod, &Keys::new("example.io"));
        let gated = ObservedDecision {
            decided: *record.decided?,
            ..observed(reason, None, true, &json!({}))
        };
        let told = events_of(&gated, Timestamp::MAX);
        assert_eq!(told.len(), 1, "{reason}");
        assert_eq!(told[0].reason, PodReason::Gated);
        told[0].event().metadata.name
    };
    let holds = || Reason::ALL.iter().filter(|reason| reason.is_gate());
    let names = || holds().map(|reason| name(reason.as_str()));
    assert!(names().all(|name| name.is_some()) && names().eq(names()));
    let distinct: HashSet<_> = names().collect();
    assert_eq!(distinct.len(), holds().count());
    // A placement without a decision id is not ours.
    assert_eq!(name("cloud_best_effort"), None);
}
