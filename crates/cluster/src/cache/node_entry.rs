//! The record of a node in the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::entry::{PodEntry, SchedulerKey};
use crate::cache::request_sum::RequestSum;
use edgeward_kube::node::{Node, Placeholder, Share, Terminating, Termination};
use edgeward_kube::resources::Amounts;

#[derive(Debug, Default)]
pub(super) struct NodeEntry {
    /// The node as it would be published now.
    pub(super) node: Arc<Node>,
    /// Whether the node itself was seen, and not only pods that name it.
    pub(super) known: bool,
    pub(super) listed: u32,
    pub(super) site: Option<usize>,
    pub(super) used: RequestSum,
    pub(super) by_priority: BTreeMap<i32, RequestSum>,
    /// The charges of terminating pods, by what is known about their termination.
    pub(super) terminating: BTreeMap<Termination, RequestSum>,
    pub(super) placeholders: BTreeMap<Placeholder, RequestSum>,
    /// Pods that charge the node as a guess, without being bound or nominated to it.
    pub(super) assumed: BTreeSet<SchedulerKey>,
}

impl NodeEntry {
    /// Adds the charge of a pod, or removes it if `by` is -1.
    pub(super) fn change(&mut self, pod: &PodEntry, headroom_below: i32, by: i64) {
        self.used.change(&pod.request, by);
        change(&mut self.by_priority, pod.priority, &pod.request, by);
        self.change_parts(pod, headroom_below, by);
        self.refresh();
    }

    /// Changes the charge of the pod among terminating pods and placeholders.
    pub(super) fn change_parts(&mut self, pod: &PodEntry, headroom_below: i32, by: i64) {
        let placeholder = pod.placeholder(headroom_below);
        if let Some(termination) = pod.terminating {
            let termination = Termination {
                placeholder,
                ..termination
            };
            change(&mut self.terminating, termination, &pod.request, by);
        }
        if let Some(placeholder) = placeholder {
            change(&mut self.placeholders, placeholder, &pod.request, by);
        }
    }

    pub(super) fn refresh(&mut self) {
        let node = Arc::make_mut(&mut self.node);
        Share {
            amounts: node.used,
            pods: node.pods,
        } = self.used.share();
        let terminating = self.terminating.iter().map(|(&termination, sum)| Terminating {
            termination,
            share: sum.share(),
        });
        node.terminating = terminating.collect();
        let placeholders = self.placeholders.iter();
        node.placeholders = placeholders.map(|(&kind, sum)| (kind, sum.share())).collect();
        let by_priority = self.by_priority.iter();
        node.by_priority = by_priority.map(|(&priority, sum)| (priority, sum.share())).collect();
    }
}

/// Changes the sum of this key, and drops it with its last pod.
fn change<K: Ord + Copy>(sums: &mut BTreeMap<K, RequestSum>, key: K, request: &Amounts, by: i64) {
    let sum = sums.entry(key).or_default();
    sum.change(request, by);
    if sum.pods() == 0 {
        sums.remove(&key);
    }
}
