//! Queue claims: room that the release plan sets aside for gated pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::node::{NodeId, Share};
use crate::model::workload::QueueKey;
use crate::resources::Amounts;

/// Room on a node that one gated pod claims. Pods behind it in the queue may not use this room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueClaim {
    /// Uid of the pod.
    pub uid: Arc<str>,
    /// Position of the pod in the queue.
    pub queue_key: QueueKey,
    /// The site of the node.
    pub site: Arc<str>,
    /// Effective request of the pod. The claim also takes one pod slot.
    pub amount: Amounts,
    /// Whether the room is free now, so that the pod is about to be released. Otherwise the pod waits for the rest.
    pub has_room: bool,
}

/// The queue claims of a release plan, one per pod, in the order of the queue. It also holds the nodes that gained room
/// since: pods behind the first waiting pod may not use them yet. Equal calls give equal values. Clones share the
/// claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueClaims {
    table: Arc<ClaimTable>,
    /// The first pod that the plan left waiting.
    first_waiting: Option<QueueKey>,
    /// Nodes that gained room since the plan considered that pod.
    gained: BTreeSet<NodeId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ClaimTable {
    by_uid: BTreeMap<Arc<str>, (NodeId, QueueClaim)>,
    nodes: BTreeMap<NodeId, ClaimSums>,
    sites: BTreeMap<Arc<str>, ClaimSums>,
}

/// The queue claims in one place: on a node or at a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ClaimSums {
    keys: Vec<QueueKey>,
    /// Running totals in the order of `keys`: the first claim, the first two together, and so on.
    sums: Vec<Claimed>,
}

/// Total of several queue claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimed {
    /// Everything that the claims take.
    pub taken: Share,
    /// The part claimed by pods that are about to be released.
    pub coming: Amounts,
}

impl Claimed {
    fn add(&mut self, claim: &QueueClaim) {
        self.taken.amounts.add(&claim.amount, 1);
        self.taken.pods += 1;
        if claim.has_room {
            self.coming.add(&claim.amount, 1);
        }
    }

    /// Subtracts what [`Self::add`] added.
    pub(crate) fn take(&mut self, claim: &QueueClaim) {
        self.taken.amounts = self.taken.amounts.less(&claim.amount);
        self.taken.pods -= 1;
        if claim.has_room {
            self.coming = self.coming.less(&claim.amount);
        }
    }
}

impl ClaimSums {
    fn add(&mut self, claim: &QueueClaim) {
        let at = self.keys.partition_point(|queue_key| *queue_key <= claim.queue_key);
        let before = at.checked_sub(1).map(|last| self.sums[last].clone());
        self.keys.insert(at, claim.queue_key);
        self.sums.insert(at, before.unwrap_or_default());
        self.sums[at..].iter_mut().for_each(|sum| sum.add(claim));
    }

    fn ahead(&self, queue_key: QueueKey) -> Option<&Claimed> {
        let ahead = self.keys.partition_point(|other| *other < queue_key);
        self.sums.get(ahead.checked_sub(1)?)
    }
}

impl QueueClaims {
    /// Adds a claim on this node. Cost: a search, and a pass over the later claims in that place. A plan adds its
    /// claims in queue order, so there are no later ones.
    pub fn add(&mut self, node: NodeId, claim: QueueClaim) {
        let table = Arc::make_mut(&mut self.table);
        table.nodes.entry(node).or_default().add(&claim);
        table.sites.entry(Arc::clone(&claim.site)).or_default().add(&claim);
        table.by_uid.insert(Arc::clone(&claim.uid), (node, claim));
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
        self.table.by_uid.is_empty() && self.gained.is_empty()
    }

    /// Whether a pod with this key may use this node at all. Cost: a search.
    pub fn is_open(&self, node: NodeId, queue_key: QueueKey) -> bool {
        self.first_waiting.is_none_or(|first| queue_key <= first) || !self.gained.contains(&node)
    }

    /// Returns the claim of the pod with this uid, and its node. Cost: a search.
    pub fn of(&self, uid: &str) -> Option<(NodeId, &QueueClaim)> {
        self.table.by_uid.get(uid).map(|(node, claim)| (*node, claim))
    }

    /// Total that pods ahead of `queue_key` claim on this node. `None` if they claim nothing there. Cost: two searches
    /// if anything is claimed there.
    pub fn on(&self, node: NodeId, queue_key: QueueKey) -> Option<&Claimed> {
        self.table.nodes.get(&node)?.ahead(queue_key)
    }

    /// Total that pods ahead of `queue_key` claim at this site. `None` if they claim nothing there.
    pub fn at(&self, site: &str, queue_key: QueueKey) -> Option<&Claimed> {
        self.table.sites.get(site)?.ahead(queue_key)
    }

    /// Whether anything is claimed on this node. Cost: a search.
    pub fn is_on(&self, node: NodeId) -> bool {
        self.table.nodes.contains_key(&node)
    }

    /// Iterates over all claims and their nodes.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &QueueClaim)> {
        self.table.by_uid.values().map(|(node, claim)| (*node, claim))
    }
}
