//! Which pods are gated, for how long, and how they are released.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use edgeward_kube::node::Termination;

const GATE: &str = "scheduling.example.io/awaiting-capacity";

fn without_wan(fleet: Value) -> Value {
    with(fleet, "/sites/1/wan", json!({"reachable": false}))
}

#[test]
fn cloud_away_longer_than_pod_can_wait_is_not_waited_for() {
    let config = Config::default();
    // Work of 5 s, with 25 s to spare or without a deadline. A latency pod is gated for at most 30 s.
    let web = |slo: Value| {
        let mut slo = slo;
        slo["processingMs"] = "5000".into();
        pod(slo)
    };
    let (urgent, patient) = (web(json!({"deadlineMs": "30000"})), web(json!({})));
    let outcome = |pod: &Value, away: u64, gated: Option<u64>, clouds: usize| {
        let mut snapshot = testkit::snapshot(&without_wan(fleet(4000)));
        let since = NOW.moment.before(Micros::from_secs(away));
        snapshot.sites[1].away_since = Some(since);
        for name in ["second", "third"].iter().take(clouds - 1) {
            let mut other = snapshot.sites[1].clone();
            Arc::make_mut(&mut other.definition).name = (*name).to_owned();
            other.away_since = None;
            snapshot.sites.push(other);
        }
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let workload = Workload {
            gated_for: gated.map(Micros::from_secs),
            gates: gated.map(|_| GATE.into()).into_iter().collect(),
            ..pod.workload("shop".into(), &config.keys)
        };
        let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);
        (verdict.site().map(Site::name).map(str::to_owned), verdict.reason)
    };
    let edge = |reason| (Some("edge".to_owned()), reason);
    let holds = (None, Reason::HeldNoCapacity);
    assert_eq!(outcome(&urgent, 24, None, 1), holds);
    assert_eq!(outcome(&urgent, 25, None, 1), edge(Reason::EdgeWanUnreachable));
    assert_eq!(outcome(&urgent, 25, Some(1), 1), edge(Reason::ReleasedTimeout));
    assert_eq!(outcome(&patient, 29, None, 1), holds);
    assert_eq!(outcome(&patient, 30, None, 1), edge(Reason::EdgeWanUnreachable));
    // The second cloud may come back.
    assert_eq!(outcome(&urgent, 25, None, 2), holds);
}

#[test]
fn pod_waits_for_terminating_pods_for_a_limited_time() {
    let web = pod(json!({"deadlineMs": "400"}));
    let terminating = with(fleet(4000), "/nodes/0/terminating", json!({"cpu": "500m", "pods": 1}));
    let names_node = with_verdict(&terminating, &web, &Config::default(), |verdict| verdict.node.is_some());
    assert!(names_node, "the node whose room is waited for");
    // A terminating pod counts however long it may take, with three exceptions. The usual time of its controller's pods may
    // exceed the class's wait, the pod may be using its grace period, or it should be gone by now.
    let with_times = |since: u64, by: i64, takes: Option<u64>| {
        let mut snapshot = testkit::snapshot(&terminating);
        let termination = Termination {
            since: Some(NOW.moment.before(Micros::from_secs(since))),
            by: Some(NOW.wall + jiff::SignedDuration::from_secs(by)),
            takes: takes.map(Micros::from_secs),
            placeholder: None,
        };
        let nodes = &mut snapshot.sites[0].nodes;
        Arc::make_mut(&mut Arc::make_mut(nodes)[0]).charges.terminating[0].0 = termination;
        let config = Config::default();
        let workload = testkit::workload(&web, &config.keys);
        decide(&workload, &Room::of(&snapshot), &config, NOW).reason.as_str()
    };
    let (wait, go) = ("held_no_capacity", "cloud_edge_no_capacity");
    for (since, by, takes, expected) in [
        (0, 0, None, wait),
        (0, 30, None, wait),
        (0, 3_600, None, wait),
        (5, 55, None, wait),
        (6, 54, None, go),
        (54, 6, None, go),
        (55, 5, None, wait),
        (60, 0, None, wait),
        (70, -10, None, wait),
        (71, -11, None, go),
        (0, -11, None, go),
        (0, 60, Some(5), wait),
        (0, 60, Some(6), go),
        (55, 5, Some(6), go),
    ] {
        assert_eq!(with_times(since, by, takes), expected, "{since} {by} {takes:?}");
    }
}

#[test]
fn active_deadline_shorter_than_gate_limit_is_warned_about() {
    let full = without_wan(fleet(4000));
    let warnings = |fleet: &Value, seconds: u64| {
        let pod = with(
            pod(json!({"class": "batch"})),
            "/spec/activeDeadlineSeconds",
            json!(seconds),
        );
        with_verdict(fleet, &pod, &Config::default(), |verdict| verdict.warnings.clone())
    };
    let expected = "may be gated for 300 s, longer than its activeDeadlineSeconds (40): time-outs of its creator may count already";
    assert_eq!(warnings(&full, 40), [expected]);
    assert_eq!(warnings(&full, 300), [""; 0]);
    assert_eq!(warnings(&without_wan(fleet(0)), 40), [""; 0], "it is placed");
}
