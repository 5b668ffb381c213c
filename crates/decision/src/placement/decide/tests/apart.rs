//! Pods with required anti-affinity to pods like themselves.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::model::decision_id::DecisionId;
use crate::model::queue_claims::{QueueClaim, QueueClaims};
use crate::model::workload::QueueKey;
use crate::placement::ledger::{Ledger, Reservation};
use edgeward_kube::node::{Node, Termination};

/// A replica of an application, with required anti-affinity to its siblings by this topology key.
fn replica(app: &str, topology_key: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology_key});
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let pod = with(pod(json!({})), "/spec/affinity", affinity);
    with(pod, "/metadata/labels", json!({"app": app}))
}

/// The snapshot of a fleet after `change` to one edge node.
fn changed(fleet: &Value, node: usize, change: impl FnOnce(&mut Node)) -> Snapshot {
    let mut snapshot = testkit::snapshot(fleet);
    change(Arc::make_mut(&mut Arc::make_mut(&mut snapshot.sites[0].nodes)[node]));
    snapshot
}

/// The site chosen for the pod on this snapshot.
fn site(snapshot: &Snapshot, pod: &Value) -> String {
    let verdict = decide(&workload(pod), &Room::of(snapshot), &Config::default(), NOW);
    verdict.site().map_or(verdict.reason.as_str(), Site::name).to_owned()
}

#[test]
fn second_anti_affinity_replica_goes_to_the_cloud() {
    let first = workload(&replica("web", HOSTNAME));
    let runs = changed(&fleet(0), 0, |node| node.charges.used.add(&first.request, 1));
    assert_eq!(site(&runs, &replica("web", HOSTNAME)), "cloud");
    assert_eq!(site(&runs, &replica("db", HOSTNAME)), "edge");
    assert_eq!(site(&runs, &pod(json!({}))), "edge");
    let verdict = decide(&first, &Room::of(&runs), &Config::default(), NOW);
    assert_eq!(verdict.sites[0].refusals[0].numbers["excludedNodes"], 1);

    // The sibling was decided a moment ago and is not in the snapshot yet.
    let snapshot = testkit::snapshot(&fleet(0));
    let mut ledger = Ledger::new(Config::default().reservation_ttl);
    let edge = snapshot.sites[0].nodes[0].id;
    let reservation = Reservation::new(DecisionId(1), &first, "edge", edge);
    assert!(ledger.reserve(reservation, NOW.moment, |_| false));
    let room = Room::new(&snapshot, &ledger, QueueKey::LAST, "shop");
    let second = decide(&first, &room, &Config::default(), NOW);
    assert_eq!(second.site().map(Site::name), Some("cloud"));

    // The sibling is gated and ahead in the queue.
    let mut claims = QueueClaims::default();
    let claim = QueueClaim {
        uid: "first".into(),
        queue_key: first.queue_key(&Config::default().priority_caps, None),
        node: edge,
        site: "edge".into(),
        amount: first.request.clone(),
        membership: None,
        has_room: true,
    };
    claims.add(claim);
    let ledger = Ledger::default();
    let room = Room::beside(&snapshot, &ledger, &claims, QueueKey::LAST, "shop");
    let second = decide(&first, &room, &Config::default(), NOW);
    assert_eq!(second.site().map(Site::name), Some("cloud"));
    assert!(second.sites[0].is_refused(RefusalCode::Claimed));
}

#[test]
fn replica_waits_for_its_sibling_and_never_preempts_it() {
    let first = workload(&replica("web", HOSTNAME));
    let leaving = changed(&fleet(0), 0, |node| {
        let share = Share {
            amounts: first.request.clone(),
            pods: 1,
        };
        node.charges.used.add(&share.amounts, 1);
        node.charges.terminating = vec![(Termination::default(), share)];
    });
    assert_eq!(site(&leaving, &replica("web", HOSTNAME)), "held_no_capacity");

    let mut alone = fleet(0);
    alone["sites"][1]["wan"] = json!({"reachable": false});
    alone["nodes"][0]["usedByPriority"] = json!([{"priority": -5, "used": {"cpu": "0", "pods": 1}}]);
    let runs = changed(&alone, 0, |node| node.charges.used.add(&first.request, 1));
    assert_eq!(site(&runs, &replica("web", HOSTNAME)), "held_no_capacity");
}

#[test]
fn site_with_one_topology_domain_takes_one_replica() {
    let edge_node = |name: &str, zone: Option<&str>| {
        let mut node = with(fleet(0)["nodes"][0].clone(), "/name", json!(name));
        zone.into_iter().for_each(|zone| node["labels"]["zone"] = json!(zone));
        node
    };
    let first = workload(&replica("web", "zone"));
    for (zones, expected) in [
        ([Some("a"), Some("a")], "cloud"),
        ([Some("a"), Some("b")], "edge"),
        // As in kube-scheduler, a node without the label belongs to no domain.
        ([None, None], "edge"),
    ] {
        let nodes = json!([
            edge_node("e1", zones[0]),
            edge_node("e2", zones[1]),
            fleet(0)["nodes"][1]
        ]);
        let runs = changed(&with(fleet(0), "/nodes", nodes), 1, |node| {
            node.charges.used.add(&first.request, 1);
        });
        assert_eq!(site(&runs, &replica("web", "zone")), expected, "{zones:?}");
        let verdict = decide(&first, &Room::of(&runs), &Config::default(), NOW);
        let is_full = verdict.sites[0].is_refused(RefusalCode::NoRoom);
        assert_eq!(is_full, expected == "cloud", "{zones:?}");
        assert_eq!(site(&runs, &replica("db", "zone")), "edge", "{zones:?}");
    }
}
