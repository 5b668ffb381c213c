//! The policies of one namespace in the order in which they count, and which of them can select the same pods.
//!
//! A user who may create policies may create many, with long selectors. So only the first of a namespace count.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Policy, Seen};

/// How many policies of a namespace count.
pub const MAX_POLICIES: usize = 100;

/// The policies of one namespace.
#[derive(Debug, Default)]
pub struct NamespacePolicies {
    /// Those that count: the first that selects a pod is the one.
    in_force: Vec<Arc<Seen>>,
    /// Those behind [`MAX_POLICIES`] others.
    beyond: Vec<Arc<Seen>>,
    /// Those with faults of which nothing counts.
    refused: Vec<Arc<Seen>>,
}

impl NamespacePolicies {
    /// These policies of one namespace, sorted.
    pub fn of(seen: impl IntoIterator<Item = Arc<Seen>>) -> Self {
        let (mut in_force, refused): (Vec<_>, Vec<_>) = seen.into_iter().partition(|seen| seen.in_force().is_some());
        let order = |seen: &Seen| Reverse(seen.in_force().map_or(0, |policy| policy.precedence));
        in_force.sort_by(|a, b| (order(a), &a.name).cmp(&(order(b), &b.name)));
        let beyond = in_force.split_off(in_force.len().min(MAX_POLICIES));
        Self {
            in_force,
            beyond,
            refused,
        }
    }

    /// How many count.
    pub fn len(&self) -> usize {
        self.in_force.len()
    }

    /// Whether none counts.
    pub fn is_empty(&self) -> bool {
        self.in_force.is_empty()
    }

    /// All of them, in no order that means anything.
    pub fn seen(&self) -> impl Iterator<Item = &Arc<Seen>> {
        self.in_force.iter().chain(&self.beyond).chain(&self.refused)
    }

    /// The policy that counts for a pod with these labels, the last of several of one key. Cost: a comparison with each
    /// policy up to that one.
    pub(super) fn select<'l>(&self, labels: impl Iterator<Item = (&'l str, &'l str)>) -> Option<&Policy> {
        let labels: BTreeMap<_, _> = labels.collect();
        let mut policies = self.in_force.iter().filter_map(|seen| seen.in_force());
        policies.find(|policy| policy.selector.matches(|key| labels.get(key).copied()))
    }

    /// Those that do not count because [`MAX_POLICIES`] others come first.
    pub fn beyond(&self) -> &[Arc<Seen>] {
        &self.beyond
    }
}

#[cfg(test)]
mod tests;
