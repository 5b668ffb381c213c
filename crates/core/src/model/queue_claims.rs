//! Room that is claimed for gated pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::node::{NodeId, Share};
use crate::model::workload::QueueKey;
use crate::resources::Amounts;

/// Room on a node that one gated pod claims, against those behind it in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueClaim {
    /// The pod's uid.
    pub uid: Arc<str>,
    /// Its place in the queue.
    pub queue_key: QueueKey,
    /// The site of the node.
    pub site: Arc<str>,
    /// The pod's effective request. A pod slot comes with it.
    pub amount: Amounts,
    /// Whether there is room for it now, so that it is about to be released; else it waits for the rest.
    pub has_room: bool,
}

/// The claims of a release plan, one for each pod, in the order of the queue; and the nodes that pods behind those left waiting may
/// not use yet. Equal after equal calls. A copy shares the claims.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueClaims {
    table: Arc<ClaimTable>,
    /// The first pod that the plan left waiting.
    first_waiting: Option<QueueKey>,
    /// Nodes that gained room since it was considered.
    gained: BTreeSet<NodeId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ClaimTable {
    by_uid: BTreeMap<Arc<str>, (NodeId, QueueClaim)>,
    nodes: BTreeMap<NodeId, ClaimSums>,
    sites: BTreeMap<Arc<str>, ClaimSums>,
}

/// The claims in one place, on a node or at a site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ClaimSums {
    keys: Vec<QueueKey>,
    /// What the first of them claims, the first two together, and so on.
    sums: Vec<Claimed>,
}

/// What several gated pods claim together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claimed {
    /// All of it.
    pub taken: Share,
    /// What those that are about to be released ask for.
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

    /// Takes back what [`Self::add`] added.
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
    /// Adds a claim on this node. Cost: a search, and a pass over the claims of those behind, of which a plan has none.
    pub fn add(&mut self, node: NodeId, claim: QueueClaim) {
        let table = Arc::make_mut(&mut self.table);
        table.nodes.entry(node).or_default().add(&claim);
        table.sites.entry(Arc::clone(&claim.site)).or_default().add(&claim);
        table.by_uid.insert(Arc::clone(&claim.uid), (node, claim));
    }

    /// The pod with this key goes on waiting, and all that come later do so behind it.
    pub fn leave_waiting(&mut self, queue_key: QueueKey) {
        self.first_waiting.get_or_insert(queue_key);
    }

    /// These nodes have more room than the plan knew. Those that it left waiting are considered for it before those behind them.
    pub fn close_gained(&mut self, nodes: &BTreeSet<NodeId>) {
        self.gained.extend(nodes);
    }

    /// Whether nothing is claimed, and every node is open to every pod.
    pub fn is_empty(&self) -> bool {
        self.table.by_uid.is_empty() && self.gained.is_empty()
    }

    /// Whether a pod with this key may go to this node at all. Cost: a search.
    pub fn is_open(&self, node: NodeId, queue_key: QueueKey) -> bool {
        self.first_waiting.is_none_or(|first| queue_key <= first) || !self.gained.contains(&node)
    }

    /// The claim of the pod of this uid, and its node. Cost: a search.
    pub fn of(&self, uid: &str) -> Option<(NodeId, &QueueClaim)> {
        self.table.by_uid.get(uid).map(|(node, claim)| (*node, claim))
    }

    /// What those ahead of `queue_key` claim on this node; `None` where nobody does. Cost: two searches if anything is claimed
    /// there.
    pub fn on(&self, node: NodeId, queue_key: QueueKey) -> Option<&Claimed> {
        self.table.nodes.get(&node)?.ahead(queue_key)
    }

    /// The same at a site.
    pub fn at(&self, site: &str, queue_key: QueueKey) -> Option<&Claimed> {
        self.table.sites.get(site)?.ahead(queue_key)
    }

    /// Whether anything is claimed on this node. Cost: a search.
    pub fn is_on(&self, node: NodeId) -> bool {
        self.table.nodes.contains_key(&node)
    }

    /// Every claim and its node.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &QueueClaim)> {
        self.table.by_uid.values().map(|(node, claim)| (*node, claim))
    }
}
