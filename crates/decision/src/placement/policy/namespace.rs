//! The policies of one namespace, in the order in which they apply.
//!
//! A user who may create policies can create many of them with long selectors. So only the first [`MAX_POLICIES`] of a
//! namespace are in force.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::placement::policy::{Policy, Seen};

/// The most policies of a namespace that are in force.
pub const MAX_POLICIES: usize = 100;

/// The policies of one namespace.
#[derive(Debug, Default)]
pub struct NamespacePolicies {
    /// Policies in force. The first that selects a pod applies to it.
    pub(super) in_force: Vec<Arc<Seen>>,
    /// Policies that are not in force because [`MAX_POLICIES`] others come first.
    beyond: Vec<Arc<Seen>>,
    /// Policies with faults that have no part in force.
    refused: Vec<Arc<Seen>>,
}

impl NamespacePolicies {
    /// Sorts the policies of one namespace.
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

    /// All policies, in no particular order.
    pub fn seen(&self) -> impl Iterator<Item = &Arc<Seen>> {
        self.in_force.iter().chain(&self.beyond).chain(&self.refused)
    }

    /// The policy that applies to a pod with these labels. If a key occurs several times, its last value counts. Cost: a
    /// comparison with each policy up to the match.
    pub(super) fn select<'l>(&self, labels: impl Iterator<Item = (&'l str, &'l str)>) -> Option<&Policy> {
        let labels: BTreeMap<_, _> = labels.collect();
        let mut policies = self.in_force.iter().filter_map(|seen| seen.in_force());
        policies.find(|policy| policy.selector.matches(|key| labels.get(key).copied()))
    }

    /// Policies that are not in force because [`MAX_POLICIES`] others come first.
    pub fn beyond(&self) -> &[Arc<Seen>] {
        &self.beyond
    }
}

#[cfg(test)]
mod tests;
