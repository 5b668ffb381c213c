//! Estimated completion times.

use std::sync::Arc;

use serde_json::{Value, json};

use super::decisions::{Definitions, made};
use super::*;
use crate::config::DegradedLinks;
use crate::model::link::Bandwidth;

#[test]
fn queue_time_counts_only_pods_that_are_ahead() {
    // 500 m does not fit, 400 m does.
    let queue = |group: Value| with(fleet(3600), "/sites/0/queues", json!([group]));
    let tight = pod(json!({"deadlineMs": "300"}));
    let queued = |fleet: &Value, pod: &Value, config: &Config| {
        with_verdict(fleet, pod, config, |verdict| {
            verdict.sites[0].estimate.queue.to_string()
        })
    };
    let is_behind = |group: Value| queued(&queue(group), &tight, &Config::default()) != "0";
    assert!(is_behind(json!({"class": "latency", "waiting": 1})));
    assert!(is_behind(
        json!({"class": "latency", "waiting": 1, "priority": 1, "sloPriority": 0})
    ));
    assert!(!is_behind(json!({"class": "latency", "waiting": 1, "sloPriority": 4})));
    assert!(!is_behind(
        json!({"class": "latency", "waiting": 1, "priority": -1, "sloPriority": 10})
    ));
    assert!(!is_behind(json!({"class": "batch", "waiting": 9})));
    // kube-scheduler binds a pod that fits at once, even if larger pods wait.
    let smaller = with(tight, "/spec/containers/0/resources/requests/cpu", json!("400m"));
    let queue = queue(json!({"class": "latency", "waiting": 9, "sloPriority": 10}));
    assert_eq!(queued(&queue, &smaller, &Config::default()), "0");
    assert_eq!(outcome(&queue, &smaller), "edge: edge_feasible_slo_met");
}

#[test]
fn transfer_of_an_input_is_a_part_of_the_eta() {
    // The edge is full. The RTT to the cloud is 25 ms, and processing takes 270 ms.
    let fleet = with(fleet(3600), "/sites/1/downlink", json!("50M"));
    let asking = |input: &str, deadline: &str| pod(json!({"input": input, "deadlineMs": deadline}));
    let eta = |fleet: &Value, input: &str| {
        with_verdict(fleet, &asking(input, "400000"), &Config::default(), |verdict| {
            verdict.sites[1].estimate.eta()
        })
    };
    let without = eta(&fleet, "1").unwrap();
    let transfer = Micros(343_597_384);
    assert_eq!(eta(&fleet, "2Gi"), Some(Micros(without.0 - 1 + transfer.0)));
    // The narrower of both ends counts.
    for (edge, expected) in [("100M", transfer), ("25M", Micros(2 * transfer.0))] {
        let both = with(fleet.clone(), "/sites/0/uplink", json!(edge));
        assert_eq!(eta(&both, "2Gi"), Some(Micros(without.0 - 1 + expected.0)), "{edge}");
    }
    assert_eq!(eta(&with(fleet.clone(), "/sites/1/downlink", Value::Null), "2Gi"), None);
    // On a degraded link that loses 4 %, a connection carries less than the link.
    let lossy = with(fleet.clone(), "/sites/1/wan", json!({"rttMs": 100, "lossPct": 4}));
    let config = Config {
        degraded_links: DegradedLinks::Estimate,
        ..Config::default()
    };
    let crossing = Micros::from_millis(270 + 2 * 100 + 1_000);
    // 11,680 bits / (0.1 s · √(2p / 3) + 1 s · 3 √(3p / 8) · p · (1 + 32p²)), with p = 0.04.
    let carried = Bandwidth(367_534);
    for (input, bytes) in [("1", 1), ("1Mi", 1 << 20)] {
        let eta = with_verdict(&lossy, &asking(input, "400000"), &config, |verdict| {
            verdict.sites[1].estimate.eta()
        });
        assert_eq!(eta, Some(crossing + carried.time_for(bytes)), "{input}");
    }
    let of_frames = with(fleet.clone(), "/sites/1/traits", json!(["data.frames"]));
    assert_eq!(eta(&of_frames, "frames=2Gi"), Some(Micros(without.0 - 1)));
    assert_eq!(eta(&of_frames, "other=2Gi"), eta(&fleet, "2Gi"));
    assert_eq!(
        outcome(&fleet, &asking("2Gi", "400000")),
        "cloud: cloud_edge_no_capacity"
    );
    assert_eq!(outcome(&fleet, &asking("2Gi", "300000")), "edge: edge_no_capacity");
}

#[test]
fn time_of_the_controller_comes_from_the_site_observed_last() {
    let cloud = |name: &str, ms: u64| {
        json!({
            "name": name, "kind": "cloud", "wan": {"rttMs": 25, "lossPct": 0.1},
            "observedControllerProcMs": {"shop": {"job": ms}},
        })
    };
    let sites = json!([{"name": "edge", "kind": "edge"}, cloud("c1", 100), cloud("c2", 200)]);
    let owner = json!([{"kind": "Job", "uid": "job", "controller": true}]);
    let pod = with(pod(json!({})), "/metadata/ownerReferences", owner).to_string();
    let (pod, config) = (Pod::from_json(&pod).unwrap(), Config::default());
    let workload = pod.workload("shop".into(), &config.keys);
    for (finished, expected) in [
        ([None, None], 100),
        ([Some(9), Some(8)], 100),
        ([Some(8), Some(9)], 200),
    ] {
        let mut snapshot = testkit::snapshot(&with(fleet(0), "/sites", sites.clone()));
        for (site, second) in snapshot.sites[1..].iter_mut().zip(finished) {
            let time = &mut Arc::make_mut(&mut site.job_times).of_jobs;
            let as_of = second.map(|second| NOW.moment.before(Micros::from_secs(60 - second)));
            time.entry("shop", "job").and_modify(|time| time.as_of = as_of);
        }
        let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);
        let at_edge = verdict.sites[0].estimate.processing;
        assert_eq!(at_edge, Micros::from_millis(expected), "{finished:?}");
    }
}

#[test]
fn processing_time_is_stated_observed_or_modelled() {
    let job =
        |uid: &str| format!(r#"/metadata/ownerReferences=[{{"kind": "Job", "uid": "{uid}", "controller": true}}]"#);
    let (a, b) = (job("a"), job("b"));
    let definitions = Definitions::from([
        ("observed", r#"/sites/1/observedProcMs={"latency": 7}"#),
        (
            "jobs",
            r#"/sites/1/observedControllerProcMs={"shop": {"a": 5}, "x": {"b": 5}}"#,
        ),
        (
            "of shop",
            r#"/sites/1/observedNamespaceProcMs={"shop": {"latency": 6}}"#,
        ),
        (
            "measured",
            r#"/sites/1/measuredNamespaceProcMs={"shop": {"latency": {"mean": 8, "p95": 30}}}"#,
        ),
        ("of x", r#"/sites/1/observedNamespaceProcMs={"x": {"latency": 6}}"#),
        (
            "queue",
            r#"/sites/1/queues=[{"class": "latency", "waiting": 1}] & /nodes/1/used={"cpu": "64"}"#,
        ),
        ("fast", "/sites/1/speedFactor=2"),
        ("slow edge", "/sites/0/speedFactor=0.5"),
        ("a", &*a),
        ("b", &*b),
    ]);
    for (fleets, pods, expected) in [
        ("-", "-", "270 320"),
        ("-", "class=batch", "1100 1125"),
        ("fast", "-", "270 185"),
        ("fast", "processingMs=40", "40 70"),
        ("slow edge", "-", "540 320"),
        // A stated processing time is the time at the edge, whatever the edge's speed factor.
        ("slow edge", "processingMs=40", "40 70"),
        ("observed", "-", "270 57"),
        ("observed", "processingMs=40", "40 90"),
        ("observed & fast", "-", "270 57"),
        // Observed means of Jobs apply in their own namespace. The controller's mean comes first, from the other site if need be,
        // the class's last.
        ("observed & jobs", "a", "5 55"),
        ("observed & jobs & slow edge", "a", "10 55"),
        ("observed & jobs", "b", "270 57"),
        ("observed & jobs", "a & processingMs=40", "40 90"),
        ("of shop", "-", "270 56"),
        ("of x", "-", "270 320"),
        ("observed & of shop", "-", "270 57"),
        // The pods ahead belong to any controller.
        ("observed & jobs & of shop & queue", "a", "5 62"),
        // Times that were measured in the pod's namespace come before those of all namespaces. They count for other sites too.
        ("observed & measured", "-", "8 58"),
        ("measured & fast", "-", "16 58"),
        ("measured & jobs", "a", "5 55"),
        ("measured & of x", "-", "8 58"),
    ] {
        let fleet = made(fleet(0), fleets, &definitions);
        let pod = made(pod(json!({})), pods, &definitions);
        with_verdict(&fleet, &pod, &Config::default(), |verdict| {
            let etas = verdict
                .sites
                .iter()
                .map(|site| site.estimate.eta().unwrap().to_string());
            assert_eq!(etas.collect::<Vec<_>>().join(" "), expected, "{fleets}; {pods}");
        });
    }
}

#[test]
fn latency_target_is_held_against_the_p95_and_a_deadline_against_the_confidence() {
    let fleet = with(
        fleet(0),
        "/sites/1/measuredNamespaceProcMs",
        json!({"shop": {"latency": {"mean": 100, "p95": 160}}}),
    );
    let fleet = with(fleet, "/nodes/0/used", json!({"cpu": "4"}));
    let at = |confidence: f64, slo: Value| {
        let document = json!({"confidence": confidence, "onNoCapacity": "edge"});
        outcome_with(&fleet, &pod(slo), &Config::read(&document).unwrap())
    };
    let (cloud, edge) = ("cloud: cloud_edge_no_capacity", "edge: edge_no_capacity");
    // 160 ms and two round trips of 25 ms.
    assert_eq!(at(0.5, json!({"latencyTargetMs": "210"})), cloud);
    assert_ne!(at(0.5, json!({"latencyTargetMs": "209"})), cloud);
    assert_eq!(at(0.5, json!({"deadlineMs": "150"})), cloud);
    assert_eq!(at(0.5, json!({"deadlineMs": "149"})), edge);
    // ln 9 / ln 19 of the 60 ms between mean and p95.
    assert_eq!(at(0.9, json!({"deadlineMs": "195"})), cloud);
    assert_eq!(at(0.9, json!({"deadlineMs": "194"})), edge);
    assert_eq!(at(0.95, json!({"deadlineMs": "210"})), cloud);
}
