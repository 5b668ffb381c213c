//! An engine that is told what a watch shows.

use std::sync::Arc;

use edgeward_core::cluster::cache::Kind;
use edgeward_core::config::Config;
use edgeward_core::engine::{Change, Engine, SharedState};
use edgeward_core::model::node::Node;
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::testkit::NOW;
use edgeward_core::units::{Micros, Moment, Now};
use edgeward_core::wire::node;
use serde_json::json;

/// An engine in virtual time: one second passes with every change.
pub(crate) struct Watched {
    pub(crate) engine: Engine,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) now: Now,
}

impl Watched {
    /// One that has listed these nodes and changes, and one opted-in namespace, `shop`.
    pub(crate) fn listed(config: &Arc<Config>, nodes: Vec<Node>, pods: Vec<Change>) -> Self {
        let shared = Arc::new(SharedState::new(Arc::default(), config.reservation_ttl));
        let mut watched = Self {
            engine: Engine::new(Arc::clone(config), Arc::clone(&shared)),
            shared,
            now: NOW,
        };
        let nodes = nodes.into_iter().map(|node| Change::Node(Box::new(node)));
        let changes = Kind::ALL.map(Change::ListBegan).into_iter().chain(nodes).chain(pods);
        let namespace = Change::Namespace("shop".into(), true);
        for change in changes.chain([namespace]).chain(Kind::ALL.map(Change::ListEnded)) {
            watched.engine.apply(&change, NOW);
        }
        watched.engine.publish(NOW);
        watched
    }

    /// Applies a change and publishes.
    pub(crate) fn apply(&mut self, change: &Change) {
        let later = self.now.moment.after(Micros::from_secs(1));
        self.now = self.now.at(Moment(later.0));
        self.engine.apply(change, self.now);
        self.engine.publish(self.now);
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot()
    }

    /// The nodes of all sites, by name and without their ids, which differ when a node was there before.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        let snapshot = self.snapshot();
        let nodes = snapshot.sites.iter().flat_map(|site| site.nodes());
        let mut nodes: Vec<_> = nodes
            .map(|node| Node {
                id: edgeward_core::model::node::NodeId::default(),
                ..node.clone()
            })
            .collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes
    }
}

/// Two nodes of the edge and one of a cloud.
pub(crate) fn nodes() -> Vec<Node> {
    let node = |name: &str, role: &str, cpu: &str, taints| {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let allocatable =
            json!({"cpu": cpu, "memory": "8Gi", "ephemeral-storage": "20Gi", "example.com/gpu": "2", "pods": "9"});
        let node = json!({
            "metadata": {"name": name, "labels": {role: "true", "kubernetes.io/hostname": name}},
            "spec": {"taints": taints},
            "status": {"allocatable": allocatable, "conditions": ready},
        });
        node::from_json(&node.to_string()).unwrap()
    };
    let cloud = json!([{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}]);
    vec![
        node("e1", "node.role/edge", "4", json!([])),
        node("e2", "node.role/edge", "2", json!([])),
        node("c1", "node.role/cloud", "64", cloud),
    ]
}
