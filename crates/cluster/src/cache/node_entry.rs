//! The record of a node in the cache, and what pods take from it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::cache::NodeFault;
use crate::cache::entry::{PodEntry, SchedulerKey};
use edgeward_kube::node::{Node, NodeId, Share, Termination};
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::Moment;

/// The known nodes.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) by_id: HashMap<NodeId, NodeEntry>,
    pub(super) ids: HashMap<Arc<str>, NodeId>,
    next_id: u32,
    pub(super) faults: BTreeSet<NodeFault>,
    /// The nodes that count as young, and until when.
    pub(super) young: BTreeSet<(Moment, NodeId)>,
    /// The extended resources that DeviceClasses serve.
    pub(super) by_claim: BTreeSet<Box<str>>,
}

#[derive(Debug, Default)]
pub(super) struct NodeEntry {
    /// The node as it would be published now.
    pub(super) node: Arc<Node>,
    /// Whether the node itself was seen, and not only pods that name it.
    pub(super) known: bool,
    pub(super) listed: u32,
    pub(super) site: Option<usize>,
    /// Pods that charge the node as a guess, without being bound or nominated to it.
    pub(super) assumed: BTreeSet<SchedulerKey>,
}

impl Nodes {
    /// The id of the node with this name, which may not have been seen yet.
    pub(super) fn id(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let (id, name) = (NodeId(self.next_id), Arc::<str>::from(name));
        self.next_id += 1;
        let node = Node {
            id,
            name: Arc::clone(&name),
            ..Node::default()
        };
        let entry = NodeEntry {
            node: Arc::new(node),
            ..NodeEntry::default()
        };
        self.by_id.insert(id, entry);
        self.ids.insert(name, id);
        id
    }

    /// Drops a node that is gone if no pod names it any more.
    pub(super) fn forget_unused(&mut self, id: NodeId) {
        let unused = |entry: &NodeEntry| !entry.known && entry.node.charges.pods == 0;
        if self.by_id.get(&id).is_some_and(unused)
            && let Some(entry) = self.by_id.remove(&id)
        {
            self.ids.remove(&entry.node.name);
        }
    }
}

impl NodeEntry {
    /// Adds the charge of a pod, or removes it if `by` is -1.
    pub(super) fn change(&mut self, pod: &PodEntry, headroom_below: i32, by: i64) {
        let node = Arc::make_mut(&mut self.node);
        change_amounts(&mut node.charges.used, &pod.request, by);
        node.charges.pods += by;
        change_part(&mut node.charges.by_priority, pod.priority, &pod.request, by);
        self.change_parts(pod, headroom_below, by);
    }

    /// Changes the charge of the pod among terminating pods and placeholders.
    pub(super) fn change_parts(&mut self, pod: &PodEntry, headroom_below: i32, by: i64) {
        let node = Arc::make_mut(&mut self.node);
        let placeholder = pod.placeholder(headroom_below);
        if let Some(termination) = pod.terminating {
            let termination = Termination {
                placeholder,
                ..termination
            };
            change_part(&mut node.charges.terminating, termination, &pod.request, by);
        }
        if let Some(placeholder) = placeholder {
            change_part(&mut node.charges.placeholders, placeholder, &pod.request, by);
        }
    }
}

/// Adds a request, or removes it if `by` is -1.
pub(super) fn change_amounts(sum: &mut Amounts, request: &Amounts, by: i64) {
    if by > 0 {
        return sum.add(request, 1);
    }
    *sum = sum.less(request);
    sum.forget_zeros();
}

/// Changes the share with this key, and drops it with its last pod. The shares are sorted by key.
fn change_part<K: Ord>(parts: &mut Vec<(K, Share)>, key: K, request: &Amounts, by: i64) {
    let at = parts
        .binary_search_by(|(known, _)| known.cmp(&key))
        .unwrap_or_else(|at| {
            parts.insert(at, (key, Share::default()));
            at
        });
    let share = &mut parts[at].1;
    change_amounts(&mut share.amounts, request, by);
    share.pods += by;
    if share.pods == 0 {
        parts.remove(at);
    }
}
