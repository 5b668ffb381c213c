//! Pods with required affinity to other pods.

use serde_json::{Value, json};

use super::*;
use crate::model::decision_id::DecisionId;
use crate::model::workload::QueueKey;
use crate::placement::ledger::{Ledger, Reservation};

/// A pod of app web that must run with pods of this app.
fn web_near(app: &str, topology_key: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology_key});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let pod = with(pod(json!({})), "/spec/affinity", affinity);
    with(pod, "/metadata/labels", json!({"app": "web", "tier": "front"}))
}

#[test]
fn just_decided_pod_counts_for_pod_affinity() {
    let web = workload(&web_near("web", HOSTNAME));
    let mut snapshot = testkit::snapshot(&fleet(0));
    let mut ledger = Ledger::new(Config::default().reservation_ttl);
    let reservation = Reservation::new(DecisionId(1), &web, "cloud", snapshot.sites[1].nodes[0].id);
    assert!(ledger.reserve(reservation, NOW.moment, |_| true));
    ledger.confirm(DecisionId(1), "shop", "cloud", snapshot.revision + 1);
    let mut site_of_next = || {
        let room = Room::new(&snapshot, &ledger, QueueKey::LAST, "shop");
        let verdict = decide(&web, &room, &Config::default(), NOW);
        let site = verdict.site().map(|site| site.name().to_owned());
        snapshot.revision += 1;
        site
    };
    assert_eq!(site_of_next().as_deref(), Some("cloud"));
    // From this revision on, the snapshot shows the pod if it exists.
    assert_eq!(site_of_next().as_deref(), Some("edge"));
}
