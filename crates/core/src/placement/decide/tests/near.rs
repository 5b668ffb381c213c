//! Pods with required affinity to other pods.

use serde_json::{Value, json};

use super::*;
use crate::model::decision_id::DecisionId;
use crate::model::workload::QueueKey;
use crate::placement::ledger::{Ledger, Reservation};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// A pod of app web that must run with pods of this app.
fn web_near(app: &str, topology_key: &str) -> Value {
    let term = json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": topology_key});
    let affinity = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let pod = with(pod(json!({})), "/spec/affinity", affinity);
    with(pod, "/metadata/labels", json!({"app": "web", "tier": "front"}))
}

/// The fleet with one pod of app db and one of app web at these sites, by their places.
fn with_pods(db: &[usize], web: &[usize]) -> Value {
    let mut fleet = fleet(0);
    for (labels, sites) in [("app=db,tier=back", db), ("app=web", web)] {
        for site in sites {
            fleet["sites"][site]["labelledPods"]["shop"][labels] = json!(1);
        }
    }
    fleet
}

fn workload(pod: &Value) -> Workload<'static> {
    let text = pod.to_string();
    let pod = Pod::from_json(&text).unwrap();
    pod.workload("shop".into(), &Config::default().keys).into_owned()
}

fn outcome(fleet: &Value, pod: &Value) -> String {
    let snapshot = testkit::snapshot(fleet);
    let verdict = decide(&workload(pod), &Room::of(&snapshot), &Config::default(), NOW);
    let site = verdict.site().map_or("none", Site::name);
    format!("{site}: {}", verdict.reason.as_str())
}

#[test]
fn pod_runs_where_the_pods_of_its_affinity_are() {
    for (db, web, expected) in [
        (&[1][..], &[][..], "cloud: cloud_pinned_by_pod"),
        (&[0], &[], "edge: edge_pinned_by_pod"),
        (&[0, 1], &[], "edge: edge_no_slo_target"),
        // Others do not matter; without any, it is Pending wherever it goes.
        (&[], &[1], "edge: edge_no_slo_target"),
        (&[], &[], "edge: edge_no_slo_target"),
    ] {
        let fleet = with_pods(db, web);
        assert_eq!(outcome(&fleet, &web_near("db", HOSTNAME)), expected, "{db:?} {web:?}");
    }
    // They need not have room for it where they are.
    let full = with(with_pods(&[0], &[]), "/nodes/0/used/cpu", json!("4"));
    assert_eq!(outcome(&full, &web_near("db", HOSTNAME)), "edge: edge_pinned_by_pod");
}

#[test]
fn domain_that_reaches_over_two_sites_excludes_none() {
    let zones = |edge: &str, cloud: &str| {
        let fleet = with(with_pods(&[1], &[]), "/nodes/0/labels/zone", json!(edge));
        with(fleet, "/nodes/1/labels/zone", json!(cloud))
    };
    let pod = web_near("db", "zone");
    assert_eq!(outcome(&zones("a", "a"), &pod), "edge: edge_no_slo_target");
    assert_eq!(outcome(&zones("a", "b"), &pod), "cloud: cloud_pinned_by_pod");
}

#[test]
fn only_a_pod_that_all_terms_select_counts() {
    let pod = web_near("db", HOSTNAME);
    let terms = "/spec/affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let second = |namespaces: Value, tier: &str| {
        json!({
            "labelSelector": {"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": [tier]}]},
            "namespaces": namespaces, "topologyKey": HOSTNAME,
        })
    };
    for (term, expected) in [
        (second(json!(["bank", "shop"]), "front"), "cloud: cloud_pinned_by_pod"),
        (second(json!(["shop"]), "back"), "edge: edge_no_slo_target"),
        (second(json!(["bank"]), "front"), "edge: edge_no_slo_target"),
    ] {
        let pod = with(pod.clone(), &format!("{terms}/-"), term.clone());
        assert_eq!(outcome(&with_pods(&[1], &[]), &pod), expected, "{term}");
    }
}

#[test]
fn pod_that_was_decided_a_moment_ago_counts() {
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
    // From here on the snapshot shows it, if it is there.
    assert_eq!(site_of_next().as_deref(), Some("edge"));
}
