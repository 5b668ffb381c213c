//! The policies of one namespace in the order in which they count, and which of them can select the same pods.
//!
//! Whoever may create policies may create many, with long selectors. So only the first of a namespace count, texts are
//! numbers here, and policies are found by a label value that they demand.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use super::{Policy, Seen};
use crate::model::selector::Selector;

/// How many policies of a namespace count.
pub const MAX_POLICIES: usize = 1_000;

/// How many policies a status names.
const NAMED: usize = 10;

/// A key or a value that a selector of the namespace names; in the order of the texts.
type Id = usize;

/// A value that no selector names.
const UNNAMED: Id = Id::MAX;

/// The policies of one namespace.
#[derive(Debug, Default)]
pub struct NamespacePolicies {
    /// Those that count: the first that selects a pod is the one.
    in_force: Vec<InForce>,
    /// Those behind [`MAX_POLICIES`] others.
    beyond: Vec<Arc<Seen>>,
    /// Those with faults of which nothing counts.
    refused: Vec<Arc<Seen>>,
    /// What the selectors name, in order.
    texts: Vec<Box<str>>,
    index: Index,
}

#[derive(Debug)]
struct InForce {
    seen: Arc<Seen>,
    selector: Selector<Id>,
}

/// Where a policy stands among those of its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It counts, or what there is instead of one with faults.
    InForce(PolicyOverlaps),
    /// It does not, for [`MAX_POLICIES`] others come first.
    Beyond,
    /// It has faults, and nothing of it counts.
    Refused,
}

/// The other policies of its namespace that select pods which a policy selects too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyOverlaps {
    /// Policies that count instead, for pods that both select; the first ten.
    pub overridden_by: Vec<String>,
    /// Policies instead of which it counts, for pods that both select; the first ten.
    pub overrides: Vec<String>,
}

impl NamespacePolicies {
    /// These policies of one namespace. Cost: sorts them, and what their selectors name.
    pub fn of(seen: impl IntoIterator<Item = Arc<Seen>>) -> Self {
        let (mut in_force, refused): (Vec<_>, Vec<_>) = seen.into_iter().partition(|seen| seen.in_force().is_some());
        let order = |seen: &Seen| Reverse(seen.in_force().map_or(0, |policy| policy.precedence));
        in_force.sort_by(|a, b| (order(a), &a.name).cmp(&(order(b), &b.name)));
        let beyond = in_force.split_off(in_force.len().min(MAX_POLICIES));
        fn policy(seen: &Arc<Seen>) -> Option<&Policy> {
            seen.in_force()
        }
        let texts: BTreeSet<_> = in_force
            .iter()
            .filter_map(policy)
            .flat_map(|policy| policy.selector.texts())
            .collect();
        let texts: Vec<_> = texts.into_iter().cloned().collect();
        let in_force = in_force.iter().filter_map(|seen| {
            let selector = policy(seen)?
                .selector
                .renamed(|text| texts.binary_search(text).unwrap_or(UNNAMED));
            let seen = Arc::clone(seen);
            Some(InForce { seen, selector })
        });
        let in_force: Vec<_> = in_force.collect();
        Self {
            index: Index::of(&in_force),
            in_force,
            beyond,
            refused,
            texts,
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
        let in_force = self.in_force.iter().map(|policy| &policy.seen);
        in_force.chain(&self.beyond).chain(&self.refused)
    }

    /// The policy that counts for a pod with these labels, the last of several of one key. Cost: a comparison with each
    /// policy that demands one of them, or none, up to that one.
    pub(super) fn select<'l>(&self, labels: impl Iterator<Item = (&'l str, &'l str)>) -> Option<&Policy> {
        let id = |text: &str| self.texts.binary_search_by(|one| (**one).cmp(text)).ok();
        let labels = labels.filter_map(|(key, value)| Some((id(key)?, id(value).unwrap_or(UNNAMED))));
        let labels: BTreeMap<_, _> = labels.collect();
        let mut places = in_order(self.index.selecting(&labels));
        let selected = places.find(|place| self.in_force[*place].selector.matches(|key| labels.get(key)));
        self.in_force[selected?].seen.in_force()
    }

    /// Every policy and where it stands. Cost: each is compared with those that a label value does not tell apart from it,
    /// up to ten before it and ten behind it that overlap.
    pub fn standings(&self) -> Vec<(&Seen, Standing)> {
        self.standings_by(Selector::overlaps)
    }

    fn standings_by(&self, mut overlaps: impl FnMut(&Selector<Id>, &Selector<Id>) -> bool) -> Vec<(&Seen, Standing)> {
        let mut overlapping = |at: usize, lists: Vec<&[usize]>| {
            let selector = &self.in_force[at].selector;
            let others = in_order(lists).map(|place| &self.in_force[place]);
            let overlapping = others.filter(|other| overlaps(selector, &other.selector));
            let names = overlapping.map(|other| other.seen.name.clone());
            names.take(NAMED).collect()
        };
        let in_force = self.in_force.iter().enumerate().map(|(at, policy)| {
            let lists = || self.index.overlapping(&policy.selector).into_iter();
            let before = lists().map(|list| &list[..list.partition_point(|place| *place < at)]);
            let behind = lists().map(|list| &list[list.partition_point(|place| *place <= at)..]);
            let overlaps = PolicyOverlaps {
                overridden_by: overlapping(at, before.collect()),
                overrides: overlapping(at, behind.collect()),
            };
            (&*policy.seen, Standing::InForce(overlaps))
        });
        let mut standings: Vec<_> = in_force.collect();
        standings.extend(self.beyond.iter().map(|seen| (&**seen, Standing::Beyond)));
        standings.extend(self.refused.iter().map(|seen| (&**seen, Standing::Refused)));
        standings
    }
}

/// The places of policies in their order, by what they demand.
#[derive(Debug, Default)]
struct Index {
    /// Of those that demand some values of a label: of this label, the one whose values are demanded least.
    by_label: BTreeMap<Id, Label>,
    /// Of those that demand no value of a label.
    others: Vec<usize>,
}

#[derive(Debug, Default)]
struct Label {
    all: Vec<usize>,
    by_value: BTreeMap<Id, Vec<usize>>,
}

impl Index {
    fn of(policies: &[InForce]) -> Self {
        let mut demanded = BTreeMap::<(Id, Id), usize>::new();
        for (key, values) in policies.iter().flat_map(|policy| policy.selector.demands()) {
            for value in values {
                *demanded.entry((*key, *value)).or_default() += 1;
            }
        }
        let mut index = Self::default();
        for (place, policy) in policies.iter().enumerate() {
            // It selects no pod, whatever the others do.
            if !policy.selector.is_satisfiable() {
                continue;
            }
            let is_demanded =
                |(key, values): &(&Id, &[Id])| values.iter().map(|value| demanded[&(**key, *value)]).sum::<usize>();
            let Some((key, values)) = policy.selector.demands().min_by_key(is_demanded) else {
                index.others.push(place);
                continue;
            };
            let label = index.by_label.entry(*key).or_default();
            label.all.push(place);
            for value in values {
                label.by_value.entry(*value).or_default().push(place);
            }
        }
        index
    }

    /// Lists of all that may select a pod with these labels.
    fn selecting(&self, labels: &BTreeMap<Id, Id>) -> Vec<&[usize]> {
        let demanding = labels.iter();
        let demanding = demanding.filter_map(|(key, value)| self.by_label.get(key)?.by_value.get(value));
        demanding.chain([&self.others]).map(Vec::as_slice).collect()
    }

    /// Lists of all that may select a pod that this one selects.
    fn overlapping(&self, selector: &Selector<Id>) -> Vec<&[usize]> {
        if !selector.is_satisfiable() {
            return vec![];
        }
        let mut lists = vec![self.others.as_slice()];
        for (key, label) in &self.by_label {
            match selector.only(key) {
                Some(values) => lists.extend(
                    values
                        .iter()
                        .filter_map(|value| label.by_value.get(value))
                        .map(Vec::as_slice),
                ),
                None => lists.push(&label.all),
            }
        }
        lists
    }
}

/// What is on any of these lists, each of which is in order: in order, each once. As much is looked at as is taken.
fn in_order(lists: Vec<&[usize]>) -> impl Iterator<Item = usize> {
    let heads = lists.into_iter().filter_map(<[usize]>::split_first);
    let mut heads: BinaryHeap<_> = heads.map(Reverse).collect();
    let mut last = None;
    std::iter::from_fn(move || {
        loop {
            let Reverse((place, rest)) = heads.pop()?;
            heads.extend(rest.split_first().map(Reverse));
            if last.replace(*place) != Some(*place) {
                return Some(*place);
            }
        }
    })
}

#[cfg(test)]
mod tests;
