//! What becomes of held pods when it is seen where their data is.

use super::*;
use crate::cluster::volumes::{VolumeChange, VolumeKind};
use crate::model::volumes::{ClaimRecord, ClassRecord};
use crate::queue::PlanAction;
use crate::wire::volumes::read_affinity;

fn node(name: &str, site: &str) -> Change {
    let node = json!({
        "metadata": {"name": name, "labels": {format!("node.role/{site}"): "true", "host": name}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    Change::Node(Box::new(crate::wire::node::from_json(&node.to_string()).unwrap()))
}

fn claim(volume: Option<&str>) -> Change {
    let record = volume.map(|volume| ClaimRecord {
        volume: Some(volume.into()),
        class: Some("far".into()),
        ..ClaimRecord::default()
    });
    VolumeChange::Claim(["shop".into(), "data".into()], record).into()
}

fn volume(name: &str, host: &str) -> Change {
    let requirement = json!({"key": "host", "operator": "In", "values": [host]});
    let terms = json!([{"matchExpressions": [requirement]}]);
    let volume = json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}});
    VolumeChange::Volume(name.into(), read_affinity(&volume.to_string()).unwrap()).into()
}

#[test]
fn a_held_pod_is_planned_again_when_its_claim_is_another() {
    let sites =
        json!([{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud", "storageClasses": ["far"]}]);
    let config = Config::read(&json!({"sites": sites})).unwrap();
    let mut engine = Engine::new(Arc::new(config), Arc::default());
    let class = Some(ClassRecord::new("example.com/far", "WaitForFirstConsumer"));
    let class = VolumeChange::Class("far".into(), class).into();
    let pod = json!({
        "metadata": {"name": "p", "namespace": "shop", "uid": "p", "resourceVersion": "1",
                     "creationTimestamp": NOW.wall.to_string(),
                     "annotations": {"slo.example.io/class": "batch", "scheduling.example.io/reason": "held_site_away"}},
        "spec": {"schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}],
                 "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                 "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
    });
    let lists = Kind::ALL.map(Change::ListEnded).into_iter();
    let of_volumes = VolumeKind::ALL.map(|kind| VolumeChange::ListEnded(kind).into());
    let seen = [
        node("e1", "edge"),
        node("c1", "cloud"),
        Change::Namespace("shop".into(), true),
    ];
    let seen = seen
        .into_iter()
        .chain([class, volume("pv-c1", "c1"), claim(Some("pv-c1"))]);
    for change in seen.chain(lists).chain(of_volumes).chain([record(&pod)]) {
        engine.apply(&change, NOW);
    }
    let mut after = |changes: &[Change], seconds: u64| {
        let now = NOW.at(NOW.moment.after(Micros::from_secs(seconds)));
        changes.iter().for_each(|change| engine.apply(change, now));
        let plan = engine.publish(now).plan?;
        Some(plan.steps.iter().map(|step| step.action).collect::<Vec<_>>())
    };
    // Nothing is known of the WAN to its cloud: it waits, and its reason says so already.
    assert_eq!(after(&[], 0), Some(vec![]));
    assert_eq!(after(&[claim(Some("pv-c1"))], 1), None);
    // A volume that no node has, then one at the edge.
    assert_eq!(after(&[claim(Some("pv-x")), volume("pv-x", "x")], 2), Some(vec![]));
    assert_eq!(after(&[volume("pv-x", "e1")], 3), Some(vec![PlanAction::Release]));
    // Nor does it wait where nothing is known of its data any more.
    assert_eq!(after(&[volume("pv-x", "c1")], 4), Some(vec![]));
    assert_eq!(after(&[claim(None)], 5), Some(vec![PlanAction::Release]));
    assert_eq!(after(&[claim(Some("pv-c1"))], 6), Some(vec![]));
}
