//! Bandwidth of the sites' links.

use serde_json::{Value, json};

use super::*;
use crate::config::OnNoCapacity;
use crate::model::decision_id::DecisionId;
use crate::model::workload::QueueKey;
use crate::placement::ledger::{Ledger, Reservation};

/// The edge is full, and the cloud has an uplink of 20 Mbit/s.
fn narrow() -> Value {
    with(fleet(3900), "/sites/1/uplink", json!("20M"))
}

fn sending(bandwidth: &str, slo: Value) -> Value {
    with(
        pod(slo),
        "/metadata/annotations/kubernetes.io~1egress-bandwidth",
        json!(bandwidth),
    )
}

/// How many of ten pods of 8 Mbit/s go to the cloud in a burst that reaches one of these replicas.
fn in_a_burst(replicas: u32, config: &Config, pod: &Value) -> usize {
    let snapshot = testkit::snapshot(&narrow());
    let mut ledger = Ledger::new(Config::default().reservation_ttl);
    ledger.set_replicas(replicas);
    let workload = workload(pod);
    let goes = |number| {
        let room = Room::new(&snapshot, &ledger, QueueKey::LAST, "shop").of_arrival();
        let verdict = decide(&workload, &room, config, NOW);
        let is_cloud = verdict.site().is_some_and(|site| site.name() == "cloud");
        let node = verdict.node.filter(|_| is_cloud)?;
        let reservation = Reservation::new(DecisionId(number), &workload, "cloud", node);
        ledger.reserve(reservation, NOW.moment, |_| true).then_some(())
    };
    (0..10).filter_map(goes).count()
}

#[test]
fn reservations_of_all_namespaces_take_bandwidth() {
    let snapshot = testkit::snapshot(&narrow());
    let mut ledger = Ledger::new(Config::default().reservation_ttl);
    let workload = workload(&sending("8M", json!({})));
    for number in 0..2 {
        let node = snapshot.sites[1].nodes[0].id;
        let mut reservation = Reservation::new(DecisionId(number), &workload, "cloud", node);
        reservation.namespace = "other".into();
        // Beyond the half of its namespace.
        assert!(ledger.reserve(reservation, NOW.moment, |_| false));
    }
    let room = Room::new(&snapshot, &ledger, QueueKey::LAST, "shop");
    let verdict = decide(&workload, &room, &Config::default(), NOW);
    assert!(verdict.sites[1].is_refused(RefusalCode::NoBandwidth), "{verdict:?}");
}

#[test]
fn burst_does_not_spend_bandwidth_twice() {
    let gating = Config::default();
    let sends = sending("8M", json!({}));
    assert_eq!([1, 2].map(|replicas| in_a_burst(replicas, &gating, &sends)), [2, 0]);
    // Pods that are not gated need room for one of each replica.
    let mut without_gate = Config::default();
    without_gate.gating.on_no_capacity = OnNoCapacity::Edge;
    let placed = [1, 2, 3].map(|replicas| in_a_burst(replicas, &without_gate, &sends));
    assert_eq!(placed, [2, 1, 0]);
    // kube-scheduler may make room at the edge for this one.
    let evicts = with(sends, "/spec/priority", json!(10));
    assert!(in_a_burst(2, &gating, &evicts) <= 1);
}

#[test]
fn leader_places_pods_with_traffic_of_several_replicas() {
    let mut ledger = Ledger::new(Config::default().reservation_ttl);
    ledger.set_replicas(2);
    let site = |fleet: &Value, pod: &Value, is_new: bool| {
        let snapshot = testkit::snapshot(fleet);
        let room = Room::new(&snapshot, &ledger, QueueKey::LAST, "shop");
        let room = if is_new { room.of_arrival() } else { room };
        let workload = Workload {
            gated_for: (!is_new).then_some(Micros(1)),
            ..workload(pod)
        };
        let verdict = decide(&workload, &room, &Config::default(), NOW);
        verdict.site().map(|site| site.name().to_owned())
    };
    let (sends, cloud) = (sending("8M", json!({})), Some("cloud".to_owned()));
    assert_eq!(site(&narrow(), &sends, true), None);
    assert_eq!(site(&narrow(), &sends, false), cloud);
    // The link of the other direction has room for any pod, as has one without a stated bandwidth.
    assert_eq!(site(&fleet(3900), &sends, true), cloud);
    assert_eq!(site(&narrow(), &pod(json!({})), true), cloud);
}

#[test]
fn pod_without_bandwidth_waits_until_its_limit() {
    let fleet = with(
        with(narrow(), "/sites/1/uplink", json!("4M")),
        "/sites/0/uplink",
        json!("4M"),
    );
    let gated_for = |slo: Value, seconds: Option<Micros>| {
        let snapshot = testkit::snapshot(&fleet);
        let workload = Workload {
            gated_for: seconds,
            ..workload(&sending("8M", slo))
        };
        let verdict = decide(&workload, &Room::of(&snapshot), &Config::default(), NOW);
        let site = verdict.site().map_or("gate", Site::name);
        format!("{site}: {}", verdict.reason.as_str())
    };
    let seconds = |seconds| Some(Micros::from_secs(seconds));
    // Also if only one site is possible, because kube-scheduler would bind the pod.
    for slo in [json!({}), json!({"offloadAllowed": "false"}), json!({"sites": "cloud"})] {
        assert_eq!(gated_for(slo.clone(), None), "gate: held_no_capacity", "{slo}");
        assert_eq!(gated_for(slo.clone(), seconds(29)), "gate: held_no_capacity", "{slo}");
        assert!(!gated_for(slo.clone(), seconds(30)).starts_with("gate"), "{slo}");
    }
}
