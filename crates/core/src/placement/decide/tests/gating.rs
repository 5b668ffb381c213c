//! Which pods are gated, for how long, and what becomes of them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::config::OnNoCapacity;
use crate::model::node::Termination;
use crate::model::slo::{Class, PerClass};

const GATE: &str = "scheduling.example.io/awaiting-capacity";

/// Site and reason for a pod that arrives.
fn arriving(fleet: &Value, pod: &Value) -> String {
    outcome_with(fleet, pod, &Config::default())
}

/// Site and reason for a pod that has been gated for so long.
fn gated(fleet: &Value, pod: &Value, seconds: u64, config: &Config) -> String {
    let snapshot = testkit::snapshot(fleet);
    let text = pod.to_string();
    let pod = Pod::from_json(&text).unwrap();
    let workload = Workload {
        gated_for: Some(Micros::from_secs(seconds)),
        gates: vec![GATE.into()],
        ..pod.workload("shop".into(), &config.keys)
    };
    let verdict = decide(&workload, &Room::of(&snapshot), config, NOW);
    match verdict.site() {
        Some(site) => format!("{}: {}", site.name(), verdict.reason.as_str()),
        None => verdict.reason.as_str().to_owned(),
    }
}

fn without_wan(fleet: Value) -> Value {
    with(fleet, "/sites/1/wan", json!({"reachable": false}))
}

#[test]
fn a_pod_without_room_is_gated_unless_waiting_is_not_for_it() {
    let full = without_wan(fleet(4000));
    let web = pod(json!({}));
    assert_eq!(arriving(&full, &web), "held_no_capacity");
    // Two degrees of nothing: no node of the cloud at all is no other thing than a cloud that does not answer.
    let mut no_cloud = full.clone();
    no_cloud["nodes"].as_array_mut().unwrap().truncate(1);
    assert_eq!(arriving(&no_cloud, &web), "held_no_capacity");

    let asking = |cpu: &str| with(web.clone(), "/spec/containers/0/resources/requests/cpu", json!(cpu));
    let pinned = with(web.clone(), "/spec/nodeSelector", json!({"disk": "ssd"}));
    let local = with(web.clone(), "/spec/hostNetwork", json!(true));
    let mut evictable = full.clone();
    evictable["nodes"][0]["usedByPriority"] = json!([{"priority": 0, "used": {"cpu": "4000m", "pods": 5}}]);
    let important = with(web.clone(), "/spec/priority", json!(100));
    for (expected, fleet, pod) in [
        (
            "edge: edge_offload_not_allowed",
            &full,
            pod(json!({"offloadAllowed": "false"})),
        ),
        ("edge: edge_pinned_by_pod", &full, pinned),
        ("edge: edge_not_offloadable", &full, local),
        ("edge: edge_too_large", &full, asking("65")),
        ("edge: edge_wan_unreachable", &evictable, important.clone()),
        ("held_no_capacity", &full, important),
        ("edge: edge_invalid_slo", &full, pod(json!({"priority": "11"}))),
    ] {
        assert_eq!(arriving(fleet, &pod), expected, "{pod}");
    }
    let only_edge = json!({"sites": [{"name": "edge", "kind": "edge"}], "nodes": [full["nodes"][0]]});
    assert_eq!(arriving(&only_edge, &web), "edge: edge_cloud_site_missing");

    // A pod that exists cannot be given a RuntimeClass any more.
    let sandboxed = with(full.clone(), "/sites/1/runtimeClassName", json!("sandboxed"));
    assert_eq!(arriving(&sandboxed, &web), "edge: edge_wan_unreachable");
    let own = with(web.clone(), "/spec/runtimeClassName", json!("own"));
    assert_eq!(arriving(&sandboxed, &own), "held_no_capacity");

    let mut config = Config::default();
    config.gating.limits[Class::Latency] = Micros(0);
    assert_eq!(outcome_with(&full, &web, &config), "edge: edge_wan_unreachable");
    let mut config = Config::default();
    config.gating.on_no_capacity = OnNoCapacity::Edge;
    assert_eq!(outcome_with(&full, &web, &config), "edge: edge_wan_unreachable");
}

#[test]
fn a_gated_pod_goes_where_room_appears_and_somewhere_in_the_end() {
    let web = pod(json!({"deadlineMs": "400"}));
    let config = Config::default();
    let hopeless = without_wan(fleet(4000));
    assert_eq!(gated(&fleet(0), &web, 1, &config), "edge: edge_fail_soft");
    assert_eq!(gated(&fleet(4000), &web, 1, &config), "cloud: cloud_best_effort");
    assert_eq!(gated(&hopeless, &web, 29, &config), "held_no_capacity");
    assert_eq!(gated(&hopeless, &web, 30, &config), "edge: released_timeout");
    // A cloud that misses the deadline is better than a full edge once waiting cannot help any more.
    let late = pod(json!({"deadlineMs": "310"}));
    assert_eq!(gated(&fleet(4000), &late, 0, &config), "held_no_capacity");
    assert_eq!(gated(&fleet(4000), &late, 1, &config), "cloud: cloud_best_effort");
    // Nor does time that it was gated leave the cloud in time for one that the edge would have served in time.
    let in_time = pod(json!({"deadlineMs": "5310"}));
    assert_eq!(
        gated(&fleet(4000), &in_time, 4, &config),
        "cloud: cloud_edge_no_capacity"
    );
    // Nobody is sent to a cloud, nor to the edge, by old data.
    let stale = with(fleet(0), "/ageSeconds", json!(61));
    assert_eq!(gated(&stale, &web, 29, &config), "held_no_capacity");
    assert_eq!(gated(&stale, &web, 30, &config), "edge: released_timeout");
    // What is not ours any more, and what could not be gated, is not kept.
    let opted_out = with(
        web.clone(),
        "/metadata/labels",
        json!({"scheduling.example.io/managed": "false"}),
    );
    assert_eq!(gated(&fleet(0), &opted_out, 1, &config), "passthrough_opted_out");
    let local = with(web.clone(), "/spec/hostNetwork", json!(true));
    assert_eq!(gated(&hopeless, &local, 1, &config), "edge: edge_not_offloadable");
    let mut impatient = Config::default();
    impatient.gating.on_no_capacity = OnNoCapacity::Edge;
    assert_eq!(gated(&hopeless, &web, 1, &impatient), "edge: released_timeout");
    // It is there, so it cannot be refused.
    let denying = Config {
        invalid_slo: InvalidSlo::Deny,
        ..Config::default()
    };
    assert_eq!(
        gated(&hopeless, &pod(json!({"priority": "11"})), 1, &denying),
        "edge: edge_invalid_slo"
    );
}

#[test]
fn a_cloud_that_is_long_away_is_not_waited_for() {
    let config = Config::default();
    // Work of 5 s, with 25 s to spare or any time; a latency pod is gated for 30 s.
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
    // Another one may be back.
    assert_eq!(outcome(&urgent, 25, None, 2), holds);
}

#[test]
fn a_latency_target_alone_waits_for_the_place_that_comes_closer() {
    // By the model 270 ms at the edge and 320 ms in the cloud: both miss the target.
    let config = Config::default();
    let target = pod(json!({"latencyTargetMs": "200", "priority": "8"}));
    assert_eq!(arriving(&fleet(4000), &target), "held_no_capacity");
    assert_eq!(gated(&fleet(4000), &target, 29, &config), "held_no_capacity");
    assert_eq!(gated(&fleet(4000), &target, 30, &config), "cloud: released_timeout");
    // It is worse off with every second, or better off in the cloud.
    let deadline = pod(json!({"latencyTargetMs": "200", "deadlineMs": "200", "priority": "8"}));
    assert_eq!(arriving(&fleet(4000), &deadline), "cloud: cloud_best_effort");
    let fast = with(fleet(4000), "/sites/1/speedFactor", json!(2));
    let hurried = pod(json!({"latencyTargetMs": "150", "priority": "8"}));
    assert_eq!(arriving(&fast, &hurried), "cloud: cloud_best_effort");
}

#[test]
fn sites_that_are_gone_for_the_moment_release_nobody() {
    let web = pod(json!({}));
    let config = Config::default();
    // The edge lost its label, or is another Site whose nodes are not labelled yet.
    let mut unlabelled = fleet(0);
    unlabelled["nodes"][0]["labels"] = json!({});
    assert_eq!(arriving(&unlabelled, &web), "passthrough_edge_site_missing");
    assert_eq!(gated(&unlabelled, &web, 29, &config), "held_no_capacity");
    assert_eq!(gated(&unlabelled, &web, 30, &config), "passthrough_edge_site_missing");
    let nowhere = with(web.clone(), "/spec/nodeSelector", json!({"disk": "replaced"}));
    assert_eq!(arriving(&fleet(0), &nowhere), "passthrough_no_site_matches");
    assert_eq!(gated(&fleet(0), &nowhere, 29, &config), "held_no_capacity");
    assert_eq!(gated(&fleet(0), &nowhere, 30, &config), "passthrough_no_site_matches");
    // What is not ours any more loses the gate at once.
    let opted_out = with(
        web,
        "/metadata/labels",
        json!({"scheduling.example.io/managed": "false"}),
    );
    assert_eq!(gated(&unlabelled, &opted_out, 1, &config), "passthrough_opted_out");
}

#[test]
fn pods_that_are_terminating_are_waited_for_a_while() {
    let web = pod(json!({"deadlineMs": "400"}));
    let config = Config::default();
    let mut terminating = fleet(4000);
    terminating["nodes"][0]["terminating"] = json!({"cpu": "500m", "pods": 1});
    assert_eq!(arriving(&terminating, &web), "held_no_capacity");
    let patient = pod(json!({"deadlineMs": "10000"}));
    assert_eq!(gated(&terminating, &patient, 4, &config), "held_no_capacity");
    assert_eq!(
        gated(&terminating, &patient, 5, &config),
        "cloud: cloud_edge_no_capacity"
    );
    assert_eq!(
        gated(&terminating, &web, 4, &config),
        "cloud: cloud_best_effort",
        "it is late"
    );
    assert_eq!(
        gated(&without_wan(terminating.clone()), &web, 5, &config),
        "held_no_capacity"
    );
    let verdict = with_verdict(&terminating, &web, &config, |verdict| verdict.node.is_some());
    assert!(verdict, "it names the node whose room is waited for");
    // Not for what would not be enough, nor where the edge is refused for more than room, nor at all if so configured.
    let mut too_little = terminating.clone();
    too_little["nodes"][0]["terminating"] = json!({"cpu": "499m", "pods": 1});
    assert_eq!(arriving(&too_little, &web), "cloud: cloud_edge_no_capacity");
    let hurried = pod(json!({"deadlineMs": "269"}));
    assert_eq!(arriving(&terminating, &hurried), "cloud: cloud_best_effort");
    let mut config = Config::default();
    config.gating.wait_for_terminating = PerClass::default();
    assert_eq!(
        outcome_with(&terminating, &web, &config),
        "cloud: cloud_edge_no_capacity"
    );
    // However long they may take, unless pods of their controller take longer than the class waits; not in the middle of a grace
    // that they seem to use, and not if they should be gone by now.
    let with_times = |since: u64, by: i64, takes: Option<u64>| {
        let mut snapshot = testkit::snapshot(&terminating);
        let termination = Termination {
            since: Some(NOW.moment.before(Micros::from_secs(since))),
            by: Some(NOW.wall + jiff::SignedDuration::from_secs(by)),
            takes: takes.map(Micros::from_secs),
            placeholder: None,
        };
        let nodes = &mut snapshot.sites[0].nodes;
        Arc::make_mut(&mut Arc::make_mut(nodes)[0]).terminating[0].termination = termination;
        let text = web.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let config = Config::default();
        let workload = pod.workload("shop".into(), &config.keys);
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
    // The limit ends any waiting.
    let mut config = Config::default();
    config.gating.limits[Class::Latency] = Micros::from_secs(3);
    assert_eq!(gated(&terminating, &web, 4, &config), "cloud: released_timeout");
}

#[test]
fn the_gates_of_others_are_waited_for() {
    let gated = |names: &[&str]| {
        let gates: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        with(pod(json!({})), "/spec/schedulingGates", gates.into())
    };
    assert_eq!(arriving(&fleet(0), &gated(&["kueue"])), "held_foreign_gate");
    assert_eq!(arriving(&fleet(0), &gated(&["kueue", GATE])), "held_foreign_gate");
    assert_eq!(arriving(&fleet(0), &gated(&[GATE])), "held_no_capacity");
    // A process that could not release the pod decides it at once.
    let decided = outcome_with(&fleet(0), &gated(&["kueue"]), &ungated());
    assert_eq!(decided, "edge: edge_no_slo_target");
}

#[test]
fn priority_counts_as_far_as_the_namespace_may_go() {
    // (c): only a pod of priority 7 leaves an edge that takes it for a cloud that is merely better.
    let behind = with(fleet(0), "/sites/0/observedProcMs", json!({"latency": 2970}));
    let urgent = pod(json!({"deadlineMs": "319", "priority": "7"}));
    assert_eq!(arriving(&behind, &urgent), "cloud: cloud_best_effort");
    let config = Config {
        priority_caps: [("shop", 6), ("*", 0)].into(),
        ..Config::default()
    };
    assert_eq!(outcome_with(&behind, &urgent, &config), "edge: edge_fail_soft");
    let warnings = with_verdict(&behind, &urgent, &config, |verdict| verdict.warnings.clone());
    assert_eq!(
        warnings,
        ["slo.example.io/priority: 7 counts as 6, the most in this namespace"]
    );

    // A namespace that is not listed; and whoever states none is not told of the default.
    let config = Config {
        priority_caps: [("other", 10), ("*", 4)].into(),
        ..Config::default()
    };
    assert_eq!(outcome_with(&behind, &urgent, &config), "edge: edge_fail_soft");
    let warned = |pod: &Value| with_verdict(&behind, pod, &config, |verdict| verdict.warnings.clone());
    assert_eq!(
        warned(&urgent),
        ["slo.example.io/priority: 7 counts as 4, the most in this namespace"]
    );
    assert!(warned(&pod(json!({"deadlineMs": "319"}))).is_empty());
}

#[test]
fn own_deadline_shorter_than_the_limit_of_a_gate_is_warned_of() {
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
