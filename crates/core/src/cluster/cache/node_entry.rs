//! What is kept of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::cache::entry::{PodEntry, SchedulerKey};
use crate::cluster::cache::request_sum::RequestSum;
use crate::model::node::{AssumedPods, Node, Placeholder, PriorityUse, Share, Terminating, Termination};
use crate::resources::Amounts;

#[derive(Debug, Default)]
pub(super) struct NodeEntry {
    /// As it would be published now.
    pub(super) node: Arc<Node>,
    /// Whether the node itself was seen, not just pods that name it.
    pub(super) known: bool,
    pub(super) listed: u32,
    pub(super) site: Option<usize>,
    pub(super) used: RequestSum,
    pub(super) by_priority: BTreeMap<i32, RequestSum>,
    /// What goes with the pods that are terminating, by what is known of them.
    pub(super) terminating: BTreeMap<Termination, RequestSum>,
    pub(super) placeholders: BTreeMap<Placeholder, RequestSum>,
    /// Pods that are assumed on it: they charge it without being bound or nominated to it.
    pub(super) assumed: BTreeSet<SchedulerKey>,
    /// What these take but for placeholders, and what has divided each of their requests since there were none.
    pub(super) assumed_sum: RequestSum,
    pub(super) step: Amounts,
    /// What assumed placeholders take.
    pub(super) assumed_placeholders: RequestSum,
    /// What was taken by those that are bound or nominated here, when pods without a node were last checked.
    pub(super) bound_when_checked: BoundPods,
}

/// What is taken from a node by pods that are bound or nominated there.
#[derive(Debug, Clone, Default)]
pub(super) struct BoundPods {
    pub(super) taken: Share,
    /// The same without placeholders.
    pub(super) others: Share,
}

impl NodeEntry {
    pub(super) fn charge(&mut self, pod: &PodEntry, headroom_below: i32) {
        self.used.add(&pod.request);
        self.by_priority.entry(pod.priority).or_default().add(&pod.request);
        self.charge_parts(pod, headroom_below);
        self.refresh();
    }

    /// What the pod takes as one that terminates, and as a placeholder.
    pub(super) fn charge_parts(&mut self, pod: &PodEntry, headroom_below: i32) {
        let placeholder = pod.placeholder(headroom_below);
        if let Some(termination) = pod.terminating {
            let termination = Termination {
                placeholder,
                ..termination
            };
            self.terminating.entry(termination).or_default().add(&pod.request);
        }
        if let Some(placeholder) = placeholder {
            self.placeholders.entry(placeholder).or_default().add(&pod.request);
        }
    }

    pub(super) fn discharge(&mut self, pod: &PodEntry, headroom_below: i32) {
        self.used.take(&pod.request);
        take(&mut self.by_priority, &pod.priority, &pod.request);
        let placeholder = pod.placeholder(headroom_below);
        if let Some(termination) = pod.terminating {
            let termination = Termination {
                placeholder,
                ..termination
            };
            take(&mut self.terminating, &termination, &pod.request);
        }
        if let Some(placeholder) = placeholder {
            take(&mut self.placeholders, &placeholder, &pod.request);
        }
        self.refresh();
    }

    /// What is taken by those that are bound or nominated here: all but our guesses.
    pub(super) fn bound_pods(&self) -> BoundPods {
        let rest = self.used.without(&self.assumed_sum);
        let taken = rest.without(&self.assumed_placeholders);
        let others = self.placeholders.values().fold(rest, |rest, part| rest.without(part));
        BoundPods {
            taken: taken.share(),
            others: others.share(),
        }
    }

    /// A pod is assumed here. What it takes is charged by itself. A placeholder is in nobody's way.
    pub(super) fn assume(&mut self, key: SchedulerKey, pod: &PodEntry, headroom_below: i32) {
        if !self.assumed.insert(key) {
            return;
        }
        if pod.placeholder(headroom_below).is_some() {
            self.assumed_placeholders.add(&pod.request);
        } else {
            self.assumed_sum.add(&pod.request);
            self.step.divide(&pod.request);
        }
    }

    /// The reverse of [`Self::assume`].
    pub(super) fn forget_assumed(&mut self, key: &SchedulerKey, pod: &PodEntry, headroom_below: i32) {
        if self.assumed.remove(key) {
            match pod.placeholder(headroom_below) {
                Some(_) => self.assumed_placeholders.take(&pod.request),
                None => self.assumed_sum.take(&pod.request),
            }
        }
        if self.assumed_sum.pods() == 0 {
            self.step = Amounts::default();
        }
    }

    /// What placeholders are has changed.
    pub(super) fn recount(&mut self) {
        self.bound_when_checked = self.bound_pods();
        self.refresh();
    }

    fn refresh(&mut self) {
        let node = Arc::make_mut(&mut self.node);
        node.used = self.used.amounts();
        node.pods = self.used.pods();
        node.assumed = AssumedPods {
            amounts: self.assumed_sum.amounts(),
            pods: self.assumed_sum.pods(),
            step: self.step.clone(),
            largest: Amounts::default(),
        };
        let terminating = self.terminating.iter().map(|(&termination, sum)| Terminating {
            termination,
            share: sum.share(),
        });
        node.terminating = terminating.collect();
        let placeholders = self.placeholders.iter();
        node.placeholders = placeholders.map(|(&kind, sum)| (kind, sum.share())).collect();
        let parts = self.by_priority.iter().map(|(&priority, sum)| PriorityUse {
            priority,
            used: sum.amounts(),
            pods: sum.pods(),
        });
        node.by_priority = parts.collect();
    }
}

/// Takes a request from one of several sums, which is dropped with its last.
fn take<K: Ord>(sums: &mut BTreeMap<K, RequestSum>, key: &K, request: &Amounts) {
    if let Some(sum) = sums.get_mut(key) {
        sum.take(request);
        if sum.pods() == 0 {
            sums.remove(key);
        }
    }
}
