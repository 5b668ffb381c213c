//! Queue claims: room that the release plan sets aside for gated pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::group::Membership;
use crate::model::workload::QueueKey;
use edgeward_kube::node::NodeId;
use edgeward_kube::resources::Amounts;

/// Room on a node that one gated pod claims. Pods behind it in the queue may not use this room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueClaim {
    /// Uid of the pod.
    pub uid: Arc<str>,
    /// Position of the pod in the queue.
    pub queue_key: QueueKey,
    /// The node.
    pub node: NodeId,
    /// The site of the node.
    pub site: Arc<str>,
    /// Effective request of the pod. The claim also takes one pod slot.
    pub amount: Amounts,
    /// The pod's namespace and group, if it has one.
    pub membership: Option<(Box<str>, Arc<Membership>)>,
    /// Whether the room is free now, so that the pod is about to be released. Otherwise the pod waits for the rest.
    pub has_room: bool,
}

/// The queue claims of a release plan, one per pod. It also holds the nodes that gained room since: pods behind the first
/// waiting pod may not use them yet. Equal calls give equal values. Clones share the claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueClaims {
    claims: BTreeMap<Arc<str>, Arc<QueueClaim>>,
    nodes: BTreeMap<NodeId, Vec<Arc<QueueClaim>>>,
    /// The first pod that the plan left waiting.
    first_waiting: Option<QueueKey>,
    /// Nodes that gained room since the plan considered that pod.
    gained: BTreeSet<NodeId>,
}

impl QueueClaims {
    /// Adds a claim. Cost: two searches.
    pub fn add(&mut self, claim: QueueClaim) {
        let claim = Arc::new(claim);
        self.nodes.entry(claim.node).or_default().push(Arc::clone(&claim));
        self.claims.insert(Arc::clone(&claim.uid), claim);
    }

    /// Removes the claim of the pod with this uid, if there is one.
    pub fn remove(&mut self, uid: &str) {
        let Some(claim) = self.claims.remove(uid) else { return };
        if let Some(on_node) = self.nodes.get_mut(&claim.node) {
            on_node.retain(|other| *other.uid != *uid);
            if on_node.is_empty() {
                self.nodes.remove(&claim.node);
            }
        }
    }

    /// Notes that the pod with this key keeps waiting. All later pods wait behind the first such pod.
    pub fn leave_waiting(&mut self, queue_key: QueueKey) {
        self.first_waiting.get_or_insert(queue_key);
    }

    /// Closes nodes that gained room after the plan was made. Pods that the plan left waiting come first there; pods
    /// behind the first of them may not use these nodes.
    pub fn close_gained(&mut self, nodes: &BTreeSet<NodeId>) {
        self.gained.extend(nodes);
    }

    /// Whether nothing is claimed and every node is open to every pod.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.gained.is_empty()
    }

    /// Whether a pod with this key may use this node at all. Cost: a search.
    pub fn is_open(&self, node: NodeId, queue_key: QueueKey) -> bool {
        self.first_waiting.is_none_or(|first| queue_key <= first) || !self.gained.contains(&node)
    }

    /// Returns the claim of the pod with this uid. Cost: a search.
    pub fn of(&self, uid: &str) -> Option<&QueueClaim> {
        self.claims.get(uid).map(|claim| &**claim)
    }

    /// The claims on this node. Cost: a search.
    pub fn on(&self, node: NodeId) -> impl Iterator<Item = &QueueClaim> {
        self.nodes.get(&node).into_iter().flatten().map(|claim| &**claim)
    }

    /// Iterates over all claims.
    pub fn iter(&self) -> impl Iterator<Item = &QueueClaim> {
        self.claims.values().map(|claim| &**claim)
    }
}
