//! Nodes as a watch shows them, one event after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use edgeward_core::config::Config;
use edgeward_core::engine::{Change, DecisionContext, Snapshots};
use edgeward_core::model::decision_id::DecisionId;
use edgeward_core::model::node::Node;
use edgeward_core::model::remembered_node::RememberedNode;
use edgeward_core::testkit::NOW;
use edgeward_core::wire::pod::Pod;
use edgeward_core::wire::{node, remembered_nodes};
use serde_json::{Value, json};

use super::documents;
use super::watched::Watched;

/// Of a list, each node is an event.
///
/// # Panics
/// A node is not read alike however it is written, is not remembered as it was, is counted otherwise bit by bit than at once,
/// or a pod is placed on one that has no room for it.
pub fn check(data: &[u8]) {
    if let Ok(json) = str::from_utf8(data) {
        let _ = node::from_json(json);
    }
    let config = Arc::new(Config::default());
    let mut watched = Watched::listed(&config, vec![], vec![]);
    let mut last = BTreeMap::new();
    for node in documents::several(data) {
        let Some(node) = read(&node) else { continue };
        watched.apply(&Change::Node(Box::new(node.clone())));
        last.insert(node.name.clone(), node);
    }
    let counted = Watched::listed(&config, last.values().cloned().collect(), vec![]);
    assert_eq!(watched.nodes(), counted.nodes());
    for pod in pods() {
        assert_has_room(&watched, &config, &pod);
    }
    for name in last.into_keys() {
        watched.apply(&Change::NodeGone((&*name).into()));
    }
    assert_eq!(watched.nodes(), vec![]);
}

/// A node, which is the same however it is written.
fn read(document: &Value) -> Option<Node> {
    let found = node::from_json(&document.to_string()).ok()?;
    if document.is_object() && documents::is_of_objects(document) {
        let same = [
            documents::escaped(document),
            documents::with_unknown_fields(document).to_string(),
        ];
        for other in same {
            assert_eq!(node::from_json(&other).expect("it was read before"), found);
        }
    }
    let remembered = RememberedNode {
        node: Arc::new(found.shape()),
        gone_since: Some(NOW.moment),
    };
    let written = remembered_nodes::write(std::slice::from_ref(&remembered), NOW);
    if let Ok(again) = remembered_nodes::read(&written, NOW) {
        assert_eq!(again, [remembered], "{written}");
    }
    Some(found)
}

fn pods() -> [Value; 2] {
    let pod = |class: &str, cpu: &str| {
        let container = json!({"resources": {"requests": {"cpu": cpu, "memory": "1Gi", "example.com/gpu": "1"}}});
        json!({"metadata": {"annotations": {"slo.example.io/class": class}}, "spec": {"containers": [container]}})
    };
    [pod("latency", "1"), pod("batch", "100m")]
}

fn assert_has_room(watched: &Watched, config: &Config, pod: &Value) {
    let json = pod.to_string();
    let workload = Pod::from_json(&json)
        .unwrap()
        .workload("shop".into(), &config.keys)
        .into_owned();
    let context = DecisionContext {
        config,
        id: DecisionId(1),
        now: watched.now,
    };
    let read = Snapshots::default();
    let verdict = watched.shared.review(&read, &workload, context, || false);
    let (Some(site), Some(id)) = (verdict.site(), verdict.node) else {
        return;
    };
    let node = site
        .nodes()
        .find(|node| node.id == id)
        .expect("it is one of the site's");
    assert!(node.ready && !node.cordoned, "{node:?}");
    assert!(node.slots > node.pods, "{node:?}");
    let free = node.allocatable.less(&node.used);
    let has = |asked: i64, free: i64| asked <= free;
    assert!(
        has(workload.request.cpu.0, free.cpu.0) && has(workload.request.memory.0, free.memory.0),
        "{node:?}"
    );
    let labels = site
        .definition
        .selector()
        .all(|(key, value)| node.labels.get(key) == Some(value));
    assert!(labels, "{node:?} is not of {}", site.name());
}
