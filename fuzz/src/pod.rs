//! Pods as a watch shows them, one event after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use edgeward_core::config::Config;
use edgeward_core::engine::Change;
use edgeward_core::keys::Keys;
use edgeward_core::model::node::Node;
use edgeward_core::model::pod_record::{HeldPod, MAX_KEPT, PodRecord};
use edgeward_core::resources::{Amounts, ResourceNames};
use edgeward_core::wire::pod::{Pod, read_record};
use serde_json::Value;

use super::documents::{self, text};
use super::watched::{self, Watched};

/// Of a list, each pod is an event.
///
/// # Panics
/// A pod is not read alike however it is written, more is kept of it than may be, its reservation and its echo differ, or not all
/// that it took is free when it is gone.
pub fn check(data: &[u8]) {
    let config = Arc::new(Config::default());
    if let Ok(json) = str::from_utf8(data) {
        let _ = record(json, &config.keys);
    }
    let mut watched = Watched::listed(&config, watched::nodes(), vec![]);
    let empty = watched.nodes();
    let mut last = BTreeMap::new();
    for pod in documents::several(data) {
        let Some(record) = read(&pod, &config.keys) else {
            continue;
        };
        let uid = record.uid.clone();
        let change = Change::Pod(Box::new(record));
        watched.apply(&change);
        last.insert(uid, change);
    }

    // What is kept bit by bit is what counting everything gives: of pods that are bound, whatever was seen of them before.
    let counted = Watched::listed(&config, watched::nodes(), last.values().cloned().collect());
    assert_eq!(bound(&watched), bound(&counted));

    for uid in last.keys() {
        watched.apply(&Change::PodGone(uid.clone()));
    }
    assert_eq!(watched.nodes(), empty, "what was taken is free again");
    let snapshot = watched.snapshot();
    assert!(snapshot.claims.is_empty(), "nobody is left who claims");
    for site in &snapshot.sites {
        assert!(
            site.queues.is_empty() && site.closed.is_empty(),
            "nobody is left who waits"
        );
    }
}

/// What is kept of a pod, which is the same however it is written.
fn read(pod: &Value, keys: &Keys) -> Option<PodRecord> {
    let json = pod.to_string();
    let kept = record(&json, keys)?;
    let has_identity = text(pod, "/metadata/uid").is_some() && text(pod, "/metadata/namespace").is_some();
    let is_object = pod["metadata"].is_object() && pod["spec"].is_object() && documents::is_of_objects(pod);
    assert!(
        !is_object || has_identity == kept.is_some(),
        "a pod has uid and namespace"
    );
    let same = [documents::escaped(pod), documents::with_unknown_fields(pod).to_string()];
    for other in same.iter().filter(|_| is_object) {
        let other = record(other, keys).expect("it was read before");
        assert_eq!(shown(kept.as_ref()), shown(other.as_ref()));
    }
    let kept = kept?;
    assert_bounded(&kept);
    assert_echo(pod, &kept, keys);
    Some(kept)
}

/// What the nodes have.
fn names() -> ResourceNames {
    let mut names = ResourceNames::default();
    watched::nodes().iter().for_each(|node| names.extend(&node.allocatable));
    names
}

/// What is kept of it; nothing where it cannot be read.
fn record(json: &str, keys: &Keys) -> Option<Option<PodRecord>> {
    read_record(json, json.len(), keys, &names()).ok()
}

/// Of a pod without node no more is kept than may be.
fn assert_bounded(record: &PodRecord) {
    let held = record.held.as_deref();
    let stuck = record.stuck.as_deref();
    let mut workload = held.and_then(|held| held.workload.clone());
    workload = workload.or(stuck.map(|stuck| stuck.workload.clone()));
    let texts = held.map(|held| (&held.resource_version, &held.reason));
    let texts = texts.or(stuck.map(|stuck| (&stuck.resource_version, &stuck.reason)));
    // Of a pod that is held the cache keeps neither.
    if let (Some(workload), true) = (&mut workload, held.is_some()) {
        (workload.constraints, workload.tolerations) = Default::default();
    }
    let texts = texts
        .into_iter()
        .flat_map(|(version, reason)| [Some(&**version), reason.as_deref()]);
    let kept = record.kept_bytes(workload.as_ref(), texts.flatten());
    assert!(kept <= MAX_KEPT || record.node.is_some(), "{kept} bytes are kept");
}

/// All that is kept, without the length of its text.
fn shown(record: Option<&PodRecord>) -> String {
    let Some(record) = record else { return String::new() };
    let mut record = record.clone();
    let held = record.held.take().map(|held| HeldPod {
        size: 0,
        ..HeldPod::clone(&held)
    });
    format!("{record:?} {held:?}")
}

/// A pod that nothing was said of yet takes what was reserved for it.
fn assert_echo(pod: &Value, record: &PodRecord, keys: &Keys) {
    if !pod["status"].is_null() {
        return;
    }
    let json = pod.to_string();
    // One with too much in it is not placed.
    let Ok(created) = Pod::from_json(&json) else { return };
    let workload = created.workload((&*record.namespace).into(), keys);
    assert_eq!(workload.bound, record.node.is_some());
    assert_eq!(workload.gates.is_empty(), !record.gated);
    let native = |amounts: &Amounts| (amounts.cpu, amounts.memory, amounts.ephemeral_storage);
    assert_eq!(native(&workload.request), native(&record.request), "reserved and taken");
    // Of one with a node count the resources that nodes have.
    let placement = record.placement.as_deref().filter(|placement| !placement.is_oversized);
    if let Some(placement) = placement.filter(|_| record.node.is_none()) {
        assert_eq!(workload.request, record.request, "reserved and taken");
        assert_eq!(workload.constraints, placement.constraints);
        assert_eq!(workload.tolerations, placement.tolerations);
    }
}

/// What pods that are bound take of each node.
fn bound(watched: &Watched) -> Vec<(Arc<str>, Amounts, i64)> {
    let bound = |node: &Node| {
        (
            node.name.clone(),
            node.used.less(&node.assumed.amounts),
            node.pods - node.assumed.pods,
        )
    };
    watched.nodes().iter().map(bound).collect()
}
