//! Gated pods when edgeward learns where their data is.

use std::cell::OnceCell;

use serde_json::{Value, json};

use super::*;
use crate::queue::PlanAction;
use crate::volumes::read_affinity;
use edgeward_decision::model::link::LinkState;
use edgeward_decision::model::volumes::{ClaimRecord, ClassRecord};
use edgeward_decision::placement::verdict::Reason;

fn node_at(name: &str, site: &str) -> Change {
    node(name, json!({format!("node.role/{site}"): "true", "host": name}), "4")
}

fn claim(volume: Option<&str>) -> Change {
    let record = volume.map(|volume| ClaimRecord {
        volume: Some(volume.into()),
        class: Some("far".into()),
        ..ClaimRecord::default()
    });
    Change::Claim(["shop".into(), "data".into()], record)
}

fn volume(name: &str, host: &str) -> Change {
    let requirement = json!({"key": "host", "operator": "In", "values": [host]});
    let terms = json!([{"matchExpressions": [requirement]}]);
    let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    Change::Volume(name.into(), read_affinity(&volume.to_string()).unwrap())
}

/// An edge, and a cloud that declares the storage class `far`.
fn config() -> Arc<Config> {
    let sites =
        json!([{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud", "storageClasses": ["far"]}]);
    Arc::new(Config::read(&json!({"sites": sites})).unwrap())
}

fn class() -> Change {
    let class = Some(ClassRecord::new("example.com/far", "WaitForFirstConsumer"));
    Change::StorageClass("far".into(), class)
}

/// A pod with this CPU request that mounts the claim `data`.
fn pod(cpu: &str) -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "shop", "uid": "p", "resourceVersion": "1",
                     "creationTimestamp": NOW.wall.to_string(),
                     "annotations": {"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
                 "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    })
}

fn gated_pod() -> Value {
    let mut pod = pod("1");
    pod["metadata"]["annotations"]["scheduling.example.io/reason"] = json!("held_site_away");
    pod["spec"]["schedulingGates"] = json!([{"name": "scheduling.example.io/awaiting-capacity"}]);
    pod
}

#[test]
fn gated_pod_waits_for_volume_lists_for_a_limited_time() {
    let mut engine = Engine::new(config(), Arc::default());
    let seen = [
        node_at("e1", "edge"),
        node_at("c1", "cloud"),
        Change::Namespace("shop".into(), true),
        record(&gated_pod()),
    ];
    for change in seen.into_iter().chain(Kind::REQUIRED.map(Change::ListEnded)) {
        engine.apply(&change, NOW);
    }
    let mut plan = |seconds| {
        let now = NOW.at(NOW.moment.after(Micros::from_secs(seconds)));
        for kind in Kind::REQUIRED {
            engine.apply(&Change::WatchAlive(kind), now);
        }
        let plan = engine.publish(now).plan?;
        Some(plan.entries.iter().map(|step| step.action).collect::<Vec<_>>())
    };
    assert_eq!(plan(0), Some(vec![]));
    assert_eq!(plan(61), Some(vec![PlanAction::Release]));
}

#[test]
fn pods_sharing_an_unbound_claim_go_to_the_same_site() {
    let shared = Arc::new(SharedState::new(Arc::default(), Micros::from_secs(3)));
    let config = config();
    let mut engine = Engine::new(Arc::clone(&config), Arc::clone(&shared));
    let link = |as_of| {
        let (state, rtt) = (LinkState::Healthy, Some(Micros::from_millis(5)));
        let link = Link {
            state,
            rtt,
            loss: None,
            as_of,
            ..Link::default()
        };
        Change::Link("cloud".into(), Some(link))
    };
    let unbound = ClaimRecord {
        class: Some("far".into()),
        ..ClaimRecord::default()
    };
    let seen = [
        node_at("e1", "edge"),
        node_at("c1", "cloud"),
        link(NOW.moment),
        class(),
        Change::Claim(["shop".into(), "data".into()], Some(unbound)),
    ];
    let lists = Kind::REQUIRED.map(Change::ListEnded).into_iter();
    let of_volumes = Kind::OF_DATA.map(Change::ListEnded);
    for change in seen.into_iter().chain(lists).chain(of_volumes) {
        engine.apply(&change, NOW);
    }
    engine.publish(NOW);
    let review = |id: u128, pod: &Value, is_wanted: bool, seconds: u64| {
        let workload = testkit::workload(pod, &config.keys);
        let context = DecisionContext {
            config: &config,
            id: DecisionId(id),
            now: NOW.at(NOW.moment.after(Micros::from_secs(seconds))),
        };
        let read = OnceCell::new();
        let verdict = shared.review(&read, &workload, context, || is_wanted);
        (verdict.reason, verdict.site().map(|site| site.name().to_owned()))
    };
    let to = |reason, site: &str| (reason, Some(site.to_owned()));
    let mut without = pod("3");
    without["spec"]["volumes"] = json!([]);
    assert_eq!(review(1, &without, true, 0), to(Reason::EdgeFeasibleSloMet, "edge"));
    // A dry run does not decide where the claim's next pods go.
    assert_eq!(review(2, &pod("2"), false, 0), to(Reason::CloudEdgeNoCapacity, "cloud"));
    assert_eq!(review(3, &pod("1"), false, 0), to(Reason::EdgeFeasibleSloMet, "edge"));
    assert_eq!(review(4, &pod("2"), true, 0), to(Reason::CloudEdgeNoCapacity, "cloud"));
    assert_eq!(review(5, &pod("1"), false, 1), to(Reason::CloudPinnedByPod, "cloud"));
    // The claim of an ephemeral volume belongs to one pod and does not affect others.
    let mut ephemeral = pod("2");
    ephemeral["spec"]["volumes"] =
        json!([{"name": "x", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "far"}}}}]);
    assert_eq!(review(8, &ephemeral, true, 1), to(Reason::CloudEdgeNoCapacity, "cloud"));
    ephemeral["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
    assert_eq!(review(9, &ephemeral, false, 1), to(Reason::EdgeFeasibleSloMet, "edge"));
    let later = NOW.at(NOW.moment.after(Micros::from_secs(61)));
    let alive = Kind::OF_DATA.map(Change::WatchAlive).into_iter();
    for change in alive
        .chain(Kind::REQUIRED.map(Change::WatchAlive))
        .chain([link(later.moment)])
    {
        engine.apply(&change, later);
    }
    engine.publish(later);
    // The pod was never created, so the decision expires.
    assert_eq!(review(6, &pod("1"), true, 61), to(Reason::EdgeFeasibleSloMet, "edge"));
    assert_eq!(review(7, &pod("4"), true, 62), to(Reason::EdgePinnedByPod, "edge"));
}

#[test]
fn gated_pod_is_planned_again_when_its_claim_changes() {
    let mut engine = Engine::new(config(), Arc::default());
    let pod = gated_pod();
    let lists = Kind::REQUIRED.map(Change::ListEnded).into_iter();
    let of_volumes = Kind::OF_DATA.map(Change::ListEnded);
    let seen = [
        node_at("e1", "edge"),
        node_at("c1", "cloud"),
        Change::Namespace("shop".into(), true),
    ];
    let seen = seen
        .into_iter()
        .chain([class(), volume("pv-c1", "c1"), claim(Some("pv-c1"))]);
    for change in seen.chain(lists).chain(of_volumes).chain([record(&pod)]) {
        engine.apply(&change, NOW);
    }
    let mut after = |changes: &[Change], seconds: u64| {
        let now = NOW.at(NOW.moment.after(Micros::from_secs(seconds)));
        changes.iter().for_each(|change| engine.apply(change, now));
        let plan = engine.publish(now).plan?;
        Some(plan.entries.iter().map(|step| step.action).collect::<Vec<_>>())
    };
    // The only site with the pod's data is a cloud whose WAN is unknown.
    assert_eq!(after(&[], 0), Some(vec![PlanAction::Release]));
    assert_eq!(after(&[claim(Some("pv-c1"))], 1), None);
    // First a volume that no node can reach, then a volume at the edge.
    assert_eq!(after(&[claim(Some("pv-x")), volume("pv-x", "x")], 2), Some(vec![]));
    assert_eq!(after(&[volume("pv-x", "e1")], 3), Some(vec![PlanAction::Release]));
    assert_eq!(after(&[claim(None)], 4), Some(vec![PlanAction::Release]));
    // Frequent changes do not lead to frequent plans: each waits for the pause after the last plan.
    assert_eq!(after(&[claim(Some("pv-c1"))], 4), None);
    assert_eq!(after(&[claim(None)], 4), None);
    assert!(after(&[], 5).is_some());
}
