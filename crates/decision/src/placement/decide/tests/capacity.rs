//! Room at the sites.

use serde_json::{Value, json};

use super::*;
use crate::model::workload::QueueKey;
use crate::placement::ledger::{Ledger, Reservation};
use edgeward_kube::node::{NodeId, Share};
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::Millicores;

#[test]
fn site_room_is_limited_by_measured_free_amounts() {
    // The node has the requested 500 m and 256 MiB.
    let measured = |free: Value| with(fleet(0), "/sites/0/measuredFree", free);
    let hasty = || pod(json!({"deadlineMs": "1000"}));
    for (expected, free) in [
        ("edge: edge_feasible_slo_met", json!({})),
        ("edge: edge_feasible_slo_met", json!({"cpu": "500m", "memory": "256Mi"})),
        ("cloud: cloud_edge_no_capacity", json!({"cpu": "499m"})),
        ("cloud: cloud_edge_no_capacity", json!({"cpu": 4, "memory": "255Mi"})),
    ] {
        assert_eq!(outcome(&measured(free.clone()), &hasty()), expected, "{free}");
    }
    let frugal = with(hasty(), "/spec/containers", json!([{}]));
    assert_eq!(
        outcome(&measured(json!({"cpu": 0, "memory": 0})), &frugal),
        "edge: edge_feasible_slo_met"
    );

    let full = measured(json!({"cpu": "100m"}));
    with_verdict(&full, &hasty(), &Config::default(), |verdict| {
        let edge = &verdict.sites[0];
        assert_eq!(edge.fitting.len(), 1);
        assert_eq!(edge.refusals[0].code, RefusalCode::NoRoom);
        let numbers = json!({"request": {"cpu": 500}, "measuredFree": {"cpu": 100}});
        assert_eq!(Value::from(edge.refusals[0].numbers.clone()), numbers);
    });
    // kube-scheduler ignores measurements. It would not preempt for a pod that fits a node.
    let occupied = with(
        with(
            full,
            "/nodes/0/usedByPriority",
            json!([{"priority": -5, "used": {"pods": 1}}]),
        ),
        "/sites/1/wan/rttMs",
        json!(250),
    );
    assert_eq!(outcome(&occupied, &hasty()), "edge: edge_wan_degraded");
    let alone = with(occupied, "/sites/1/wan", json!({"rttMs": 25, "lossPct": 0.1}));
    let alone = with(alone, "/nodes/1/used", json!({"pods": 500}));
    assert_eq!(outcome(&alone, &hasty()), "edge: edge_no_capacity");
}

/// The verdict while pods with these millicores and priorities have reservations on node 0, the edge's only node.
pub(super) fn with_reserved<T>(
    fleet: &Value,
    reserved: &[(i64, i32)],
    pod: &Value,
    read: impl FnOnce(&Verdict<'_>) -> T,
) -> T {
    let mut ledger = Ledger::new(Config::default().reservation_ttl);
    for (id, &(millicores, priority)) in (0..).zip(reserved) {
        let reservation = Reservation {
            priority,
            ..testkit::reservation(id, 0, millicores)
        };
        assert!(ledger.reserve(reservation, NOW.moment, |_| true));
    }
    let snapshot = testkit::snapshot(fleet);
    let config = ungated();
    let text = pod.to_string();
    let pod = Pod::from_json(&text).unwrap();
    let room = Room::new(&snapshot, &ledger, QueueKey::LAST, "shop");
    read(&decide(&pod.workload("shop".into(), &config.keys), &room, &config, NOW))
}

#[test]
fn namespace_share_is_half_of_free_room_on_fitting_nodes() {
    // Free: 1, 3 and 2 cores; no, 1 and 2 GPUs; 110, 4 and 110 pod slots.
    let node = |name: &str, used: &str, pods: u32, gpus: u32| {
        json!({"name": name, "labels": {"node.role/edge": "true"},
               "allocatable": {"cpu": 4, "memory": "8Gi", "pods": 110, "example.com/gpu": gpus},
               "used": {"cpu": used, "pods": pods}})
    };
    let fleet = json!({
        "sites": [{"name": "edge", "kind": "edge"}],
        "nodes": [node("a", "3", 0, 0), node("b", "1", 106, 1), node("c", "2", 0, 2)],
    });
    let is_within = |fleet: &Value, asked: Value, kept: Value| {
        let config = Config::default();
        let mut snapshot = testkit::snapshot(fleet);
        if let Some(measured) = kept["measured"].as_i64() {
            snapshot.sites[0].free.cpu = Some(Millicores(measured));
        }
        let pod = with(pod(json!({})), "/spec/containers/0/resources/requests", asked);
        let workload = testkit::workload(&pod, &config.keys);
        let amount = |name: &str| kept[name].as_i64().unwrap_or(0);
        let kept = Share {
            amounts: Amounts {
                cpu: Millicores(amount("cpu")),
                scalars: vec![("example.com/gpu".into(), amount("gpu"))],
                ..Amounts::default()
            },
            pods: amount("pods"),
        };
        let site = &snapshot.sites[0];
        is_within_half(&kept, &workload, site, &snapshot, &config)
    };
    let small = || json!({"cpu": "100m"});
    for (asked, within, beyond) in [
        (small(), json!({"cpu": 3000}), json!({"cpu": 3001})),
        // Nodes that the pod does not fit contribute nothing.
        (json!({"cpu": "1500m"}), json!({"cpu": 2500}), json!({"cpu": 2501})),
        (json!({"cpu": "2500m"}), json!({"cpu": 1500}), json!({"cpu": 1501})),
        // Resources that the pod does not request do not matter.
        (json!({}), json!({"cpu": 9000, "pods": 112}), json!({"pods": 113})),
        (json!({"cpu": "2500m"}), json!({"pods": 2}), json!({"pods": 3})),
        (json!({"example.com/gpu": 1}), json!({"gpu": 1}), json!({"gpu": 2})),
        // The measured free amount is less than the nodes have.
        (
            small(),
            json!({"cpu": 1000, "measured": 2000}),
            json!({"cpu": 1001, "measured": 2000}),
        ),
    ] {
        assert!(is_within(&fleet, asked.clone(), within.clone()), "{asked} {within}");
        assert!(!is_within(&fleet, asked.clone(), beyond.clone()), "{asked} {beyond}");
    }
    // Headroom that placeholders keep for this pod is free.
    let kept_warm = with(
        fleet,
        "/nodes/0/placeholders",
        json!([{"priority": -10, "graceSeconds": 0, "used": {"cpu": "2", "pods": 1}}]),
    );
    let kept_warm = with(kept_warm, "/nodes/0/used/pods", json!(1));
    assert!(is_within(&kept_warm, small(), json!({"cpu": 4000})));
    assert!(!is_within(&kept_warm, small(), json!({"cpu": 4001})));
}

#[test]
fn reserved_room_is_not_free() {
    let said = |reserved: &[(i64, i32)]| {
        with_reserved(&fleet(3000), reserved, &pod(json!({})), |verdict| {
            let refusals = verdict.sites[0].refusals.iter();
            let numbers: Vec<_> = refusals.map(|refusal| Value::from(refusal.numbers.clone())).collect();
            (verdict.site().unwrap().name().to_owned(), verdict.node, numbers)
        })
    };
    assert_eq!(said(&[(500, 0)]), ("edge".into(), Some(NodeId(0)), vec![]));
    let no_room = json!({
        "usableNodes": 1,
        "request": {"cpu": 500, "memory": 268_435_456, "pods": 1},
        "largestFree": {"cpu": 400, "memory": 8_589_934_592_i64, "pods": 103},
        "reserved": {"cpu": 600, "memory": 0, "pods": 2},
    });
    assert_eq!(
        said(&[(500, 0), (100, 0)]),
        ("cloud".into(), Some(NodeId(1)), vec![no_room])
    );
    // Reservations also reduce the measured free amount.
    let measured = with(fleet(0), "/sites/0/measuredFree", json!({"cpu": 1}));
    let numbers = |reserved: &[(i64, i32)]| {
        with_reserved(&measured, reserved, &pod(json!({})), |verdict| {
            let refusal = verdict.sites[0].refusals.first();
            refusal.map(|refusal| refusal.numbers["measuredFree"].clone())
        })
    };
    assert_eq!(numbers(&[(500, 0)]), None);
    assert_eq!(numbers(&[(500, 0), (100, 0)]), Some(json!({"cpu": 400})));
    // Reservations also take pod slots.
    let slots = with(fleet(0), "/nodes/0/used/pods", json!(109));
    let site = |reserved: &[(i64, i32)]| with_reserved(&slots, reserved, &pod(json!({})), |verdict| verdict.node);
    assert_eq!(site(&[]), Some(NodeId(0)));
    assert_eq!(site(&[(0, 0)]), Some(NodeId(1)));
}

#[test]
fn reserved_pod_is_preempted_only_by_higher_priority() {
    // A cloud that misses the time bound.
    let fleet = with(fleet(3000), "/sites/1/speedFactor", json!(0.01));
    let important = with(pod(json!({"deadlineMs": "300"})), "/spec/priority", json!(10));
    let reason = |reserved: &[(i64, i32)]| {
        with_reserved(&fleet, reserved, &important, |verdict| {
            (verdict.reason.as_str(), verdict.node)
        })
    };
    assert_eq!(reason(&[]), ("edge_feasible_slo_met", Some(NodeId(0))));
    assert_eq!(reason(&[(1000, 10)]), ("edge_no_capacity", None));
    assert_eq!(reason(&[(1000, 9)]), ("edge_preempts", None));
}

#[test]
fn verdict_names_node_that_kube_scheduler_would_choose() {
    let node = |name: &str, used: u32| {
        json!({"name": name, "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 4, "memory": "8Gi", "pods": 9},
               "used": {"cpu": format!("{used}m")}})
    };
    let nodes = json!([node("a", 4000), node("c", 1000), node("b", 1000), node("d", 2000)]);
    let fleet = with(fleet(0), "/nodes", nodes);
    let chosen = |fleet: &Value, pod: &Value| {
        with_verdict(fleet, pod, &Config::default(), |verdict| {
            let node = verdict.site()?.nodes().find(|node| Some(node.id) == verdict.node)?;
            Some(node.name.to_string())
        })
    };
    assert_eq!(chosen(&fleet, &pod(json!({}))).as_deref(), Some("b"));
    let fleet = with(fleet, "/nodes/2/unschedulable", json!(true));
    assert_eq!(chosen(&fleet, &pod(json!({}))).as_deref(), Some("c"));
    // Only the first hundred nodes are compared.
    let last_is_best = |nodes: u32| {
        let used = |i: u32| if i + 1 == nodes { 0 } else { 1000 };
        let nodes: Vec<_> = (0..nodes).map(|i| node(&format!("n{i:03}"), used(i))).collect();
        chosen(&with(fleet.clone(), "/nodes", nodes.into()), &pod(json!({})))
    };
    assert_eq!(last_is_best(100).as_deref(), Some("n099"));
    assert_eq!(last_is_best(101).as_deref(), Some("n000"));
}
