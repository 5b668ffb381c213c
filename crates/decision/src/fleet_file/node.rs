//! A node in a fleet file.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::config::site_definition::some_of;
use crate::document::{Checks, Decimal, Fault};
use edgeward_kube::constraints::{EFFECTS, Taint};
use edgeward_kube::node::{Charges, Node, NodeId, NodeState, Placeholder, Share, Termination, YOUNG};
use edgeward_kube::resources::{Amounts, ResourceList};
use edgeward_kube::units::{Micros, Moment, Quantity};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct NodeEntry {
    name: Box<str>,
    labels: Option<BTreeMap<Box<str>, Box<str>>>,
    taints: Option<Vec<Taint>>,
    allocatable: Resources,
    used: Option<Resources>,
    used_by_priority: Option<Vec<PriorityEntry>>,
    placeholders: Option<Vec<PlaceholderEntry>>,
    terminating: Option<Resources>,
    unschedulable: Option<bool>,
    ready: Option<bool>,
    young: Option<bool>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriorityEntry {
    priority: i32,
    used: Resources,
}

/// Resources used by the placeholders of one kind.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PlaceholderEntry {
    priority: i32,
    grace_seconds: Decimal<0, 0, LONGEST_GRACE_SECONDS>,
    used: Resources,
}

/// The longest grace that a fleet file states: a year.
const LONGEST_GRACE_SECONDS: i64 = 31_536_000;

/// A Kubernetes resource map: amounts, and pods among them.
#[derive(Default, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, Quantity>")]
pub(super) struct Resources(BTreeMap<String, Quantity>);

impl TryFrom<BTreeMap<String, Quantity>> for Resources {
    type Error = String;

    fn try_from(quantities: BTreeMap<String, Quantity>) -> Result<Self, String> {
        let is_negative = |(_, quantity): &(&String, &Quantity)| **quantity < Quantity::default();
        match quantities.iter().find(is_negative) {
            Some((name, _)) => Err(format!("{name} must not be negative")),
            None => Ok(Self(quantities)),
        }
    }
}

/// Amounts as kube-scheduler compares them.
impl<'n> FromIterator<(&'n str, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (&'n str, i64)>>(amounts: I) -> Self {
        let quantity = |(name, amount): (&str, i64)| match name {
            "cpu" => (name.to_owned(), Quantity::of_millis(amount)),
            _ => (name.to_owned(), Quantity::of_units(amount)),
        };
        Self(amounts.into_iter().map(quantity).collect())
    }
}

impl Resources {
    /// Zero amounts of what every node has are written as well.
    fn of(amounts: &Amounts, pods: i64) -> Self {
        let native = [
            ("cpu", amounts.cpu.0),
            ("memory", amounts.memory.0),
            ("ephemeral-storage", amounts.ephemeral_storage.0),
            ("pods", pods),
        ];
        let scalars = amounts.scalars.iter().map(|(name, amount)| (&**name, *amount));
        native
            .into_iter()
            .chain(scalars)
            .chain(amounts.bandwidth.named())
            .collect()
    }

    pub(super) fn amounts(&self) -> Amounts {
        let quantities = self.0.iter().map(|(name, quantity)| (Cow::from(name), *quantity));
        ResourceList(quantities.collect()).amounts()
    }

    pub(super) fn pods(&self) -> Option<i64> {
        self.get("pods").map(Quantity::units)
    }

    pub(super) fn get(&self, name: &str) -> Option<Quantity> {
        self.0.get(name).copied()
    }

    fn share(&self) -> Share {
        Share {
            amounts: self.amounts(),
            pods: self.pods().unwrap_or(0),
        }
    }
}

impl NodeEntry {
    pub(super) fn node(self, id: NodeId, now: Moment, at: &str, faults: &mut Vec<Fault>) -> Node {
        let mut checks = Checks { at, faults };
        if self.allocatable.pods().is_none() {
            checks.fault("allocatable", "has no `pods`: without pod slots nothing ever fits");
        }
        let taints = self.taints.unwrap_or_default();
        let is_unknown = |(_, taint): &(usize, &Taint)| !EFFECTS.contains(&&*taint.effect);
        for (i, taint) in taints.iter().enumerate().filter(is_unknown) {
            let message = format_args!("{:?} is not one of {}", taint.effect, EFFECTS.join(", "));
            checks.fault(format_args!("taints[{i}].effect"), message);
        }
        let used = self.used.unwrap_or_default().share();
        let by_priority = self.used_by_priority.into_iter().flatten();
        let by_priority: Vec<_> = by_priority.map(|part| (part.priority, part.used.share())).collect();
        let placeholders = self.placeholders.into_iter().flatten().map(|part| {
            let kind = Placeholder {
                priority: part.priority,
                grace: Micros::from_secs(part.grace_seconds.0 as u64),
            };
            (kind, part.used.share())
        });
        let placeholders: Vec<_> = placeholders.collect();
        let terminating = self.terminating.unwrap_or_default().share();
        for (field, sum) in [
            ("usedByPriority", sum(by_priority.iter().map(|(_, share)| share))),
            ("placeholders", sum(placeholders.iter().map(|(_, share)| share))),
            ("terminating", terminating.clone()),
        ] {
            let mut amounts = sum.amounts.named();
            if sum.pods > used.pods || amounts.any(|(name, amount)| amount > used.amounts.get(name)) {
                checks.fault(field, "is more than `used`, of which it is a part");
            }
        }
        let terminating = [terminating].into_iter().filter(|share| share.pods > 0);
        let terminating = terminating.map(|share| (Termination::default(), share));
        Node {
            id,
            name: self.name.into(),
            labels: self.labels.unwrap_or_default().into_iter().collect(),
            allocatable: self.allocatable.amounts(),
            slots: self.allocatable.pods().unwrap_or(0),
            state: NodeState {
                taints,
                cordoned: self.unschedulable.unwrap_or(false),
                ready: self.ready.unwrap_or(true),
                young_until: self.young.unwrap_or(false).then(|| now.after(YOUNG)),
            },
            charges: Charges {
                used: used.amounts,
                pods: used.pods,
                terminating: terminating.collect(),
                placeholders,
                by_priority,
            },
            ..Node::default()
        }
    }

    pub(super) fn of(node: &Node) -> Self {
        // Headroom must not count as terminating too.
        let leaving = node.charges.terminating.iter();
        let leaving = leaving.filter(|(termination, _)| termination.placeholder.is_none());
        let terminating = sum(leaving.map(|(_, share)| share));
        let by_priority = node.charges.by_priority.iter().map(|(priority, share)| PriorityEntry {
            priority: *priority,
            used: Resources::of(&share.amounts, share.pods),
        });
        let placeholders = node.charges.placeholders.iter().map(|(kind, share)| PlaceholderEntry {
            priority: kind.priority,
            grace_seconds: Decimal((kind.grace.signed() / 1_000_000).min(LONGEST_GRACE_SECONDS)),
            used: Resources::of(&share.amounts, share.pods),
        });
        let labels = node.labels.iter().map(|(key, value)| (key.into(), value.into()));
        Self {
            name: (&*node.name).into(),
            labels: Some(labels.collect()),
            taints: some_of(node.state.taints.iter().cloned()),
            allocatable: Resources::of(&node.allocatable, node.slots),
            used: Some(Resources::of(&node.charges.used, node.charges.pods)),
            used_by_priority: some_of(by_priority),
            placeholders: some_of(placeholders),
            terminating: (terminating.pods > 0).then(|| Resources::of(&terminating.amounts, terminating.pods)),
            unschedulable: Some(node.state.cordoned),
            ready: Some(node.state.ready),
            young: node.state.young_until.map(|_| true),
        }
    }
}

fn sum<'s>(shares: impl Iterator<Item = &'s Share>) -> Share {
    let mut sum = Share::default();
    shares.for_each(|share| sum.add(share));
    sum
}
