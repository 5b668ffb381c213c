//! Which SLO applies to a pod: its own annotations, and where these are silent the one policy of its namespace that counts.
//!
//! Of several policies that select a pod the one of the highest precedence counts, then the first by name, and it counts as
//! a whole: an SLO made of pieces of several policies would be one that nobody wrote down.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::document;
use crate::document::{Faults, Field};
use crate::keys::Keys;
use crate::model::constraints::{is_label_key, is_label_value};
use crate::model::slo::{Class, MAX_MILLIS};
use crate::wire::pod::Pod;

/// The highest precedence, and the lowest but for its sign.
const MAX_PRECEDENCE: i64 = 1_000_000;

/// How many policies a status names.
const NAMED: usize = 10;

/// A policy: for which pods it speaks, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    precedence: i64,
    selector: Selector,
    /// Annotations under the prefix of SLOs, by name.
    slo: Vec<(&'static str, String)>,
}

impl Policy {
    /// Reads `spec` of an SloPolicy.
    ///
    /// # Errors
    /// Every fault. The API server lets none through that has the newest definition.
    pub fn read(object: &Value) -> Result<Self, Faults> {
        document::read(&object["spec"], |spec| {
            let [selector, precedence, slo] = spec.called("spec").object(["selector", "precedence", "slo"])?;
            let (selector, slo) = (Selector::read(&selector.required()), read_slo(&slo.required()));
            Some(Self {
                precedence: precedence.integer(-MAX_PRECEDENCE..=MAX_PRECEDENCE).unwrap_or(0),
                selector: selector?,
                slo: slo?,
            })
        })
    }
}

fn read_slo(slo: &Field<'_>) -> Option<Vec<(&'static str, String)>> {
    let [class, deadline, target, priority, offload] =
        slo.object(["class", "deadlineMs", "latencyTargetMs", "priority", "offloadAllowed"])?;
    let class = class.required().word(&Class::BY_WORD).map(Class::as_str);
    let millis = |field: &Field<'_>| field.integer(1..=MAX_MILLIS as i64).map(|ms| ms.to_string());
    let fields = [
        ("class", class.map(str::to_owned)),
        ("deadlineMs", millis(&deadline)),
        ("latencyTargetMs", millis(&target)),
        (
            "priority",
            priority.integer(0..=10).map(|priority| priority.to_string()),
        ),
        ("offloadAllowed", offload.boolean().map(|allowed| allowed.to_string())),
    ];
    Some(
        fields
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect(),
    )
}

/// A label selector. Source: `apimachinery/pkg/labels`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Selector(Vec<(Box<str>, Test)>);

/// What is asked of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    In(Vec<Box<str>>),
    /// Or absent.
    NotIn(Vec<Box<str>>),
    Exists,
    DoesNotExist,
}

/// A value that no label has, on behalf of all that no selector names.
const UNNAMED: &str = "\0";

impl Selector {
    fn read(field: &Field<'_>) -> Option<Self> {
        let [labels, expressions] = field.object(["matchLabels", "matchExpressions"])?;
        let labels = labels.entries().into_iter().flatten();
        let pairs = labels.filter_map(|(key, value)| {
            if !is_label_key(key) {
                value.fault("is not a label key: `[domain/]name`".into());
            }
            Some((key.into(), Test::In(vec![label_value(&value)?])))
        });
        let mut tests: Vec<_> = pairs.collect();
        tests.extend(
            expressions
                .list()
                .into_iter()
                .flatten()
                .filter_map(|field| read_test(&field)),
        );
        Some(Self(tests))
    }

    fn matches<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.0.iter().all(|(key, test)| test.passes(label(key)))
    }

    /// Whether there can be a pod that both select.
    fn overlaps(&self, other: &Self) -> bool {
        let all = || self.0.iter().chain(&other.0);
        all().all(|(key, _)| {
            let tests = all().filter(|(other, _)| other == key).map(|(_, test)| test);
            let named = tests.clone().filter_map(|test| match test {
                Test::In(values) => Some(values),
                _ => None,
            });
            let values = named.flatten().map(|value| &**value).chain([UNNAMED]);
            let mut candidates = values.map(Some).chain([None]);
            candidates.any(|value| tests.clone().all(|test| test.passes(value)))
        })
    }
}

impl Test {
    fn passes(&self, value: Option<&str>) -> bool {
        match (self, value) {
            (Test::In(values), value) => value.is_some_and(|value| values.iter().any(|one| **one == *value)),
            (Test::NotIn(values), value) => value.is_none_or(|value| values.iter().all(|one| **one != *value)),
            (Test::Exists, value) => value.is_some(),
            (Test::DoesNotExist, value) => value.is_none(),
        }
    }
}

fn read_test(field: &Field<'_>) -> Option<(Box<str>, Test)> {
    let [key, operator, values] = field.object(["key", "operator", "values"])?;
    let name = key.clone().required().string();
    if let Some(name) = name.filter(|name| !is_label_key(name)) {
        key.fault(format!("{name:?} is not a label key: `[domain/]name`"));
    }
    let list: Vec<_> = values
        .list()
        .into_iter()
        .flatten()
        .filter_map(|value| label_value(&value))
        .collect();
    let operator = operator
        .required()
        .word(&["In", "NotIn", "Exists", "DoesNotExist"].map(|word| (word, word)))?;
    let needs_values = matches!(operator, "In" | "NotIn");
    if needs_values != values.list().is_some_and(|list| !list.is_empty()) {
        let how = if needs_values { "stated" } else { "empty" };
        values.fault(format!("must be {how} with operator {operator}"));
    }
    let test = match operator {
        "In" => Test::In(list),
        "NotIn" => Test::NotIn(list),
        "Exists" => Test::Exists,
        _ => Test::DoesNotExist,
    };
    Some((name?.into(), test))
}

fn label_value(field: &Field<'_>) -> Option<Box<str>> {
    let text = field.string()?;
    if !is_label_value(text) {
        field.fault(format!(
            "{text:?} is not a label value: letters, digits, `-`, `_` and `.`, at most 63"
        ));
        return None;
    }
    Some(text.into())
}

/// An SloPolicy as it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// What it says, or why it says nothing.
    pub policy: Result<Policy, Faults>,
}

/// Every policy there is, as an immutable value: reviews read it without waiting.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Policies {
    /// In each namespace, the first that selects a pod is the one that counts.
    in_force: BTreeMap<String, Vec<Arc<Seen>>>,
    refused: Vec<Arc<Seen>>,
}

/// The other policies of its namespace that select pods which a policy selects too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyOverlaps {
    /// Policies that count instead, for pods that both select; the first ten.
    pub overridden_by: Vec<String>,
    /// Policies instead of which it counts, for pods that both select; the first ten.
    pub overrides: Vec<String>,
}

impl Policies {
    /// These policies. Cost: sorts them.
    pub fn of(seen: impl IntoIterator<Item = Arc<Seen>>) -> Self {
        let mut policies = Self::default();
        for seen in seen {
            match &seen.policy {
                Ok(_) => policies.in_force.entry(seen.namespace.clone()).or_default().push(seen),
                Err(_) => policies.refused.push(seen),
            }
        }
        for namespace in policies.in_force.values_mut() {
            let order = |seen: &Seen| seen.policy.as_ref().map_or(0, |policy| -policy.precedence);
            namespace.sort_by(|a, b| (order(a), &a.name).cmp(&(order(b), &b.name)));
        }
        policies
    }

    /// How many are in force.
    pub fn len(&self) -> usize {
        self.in_force.values().map(Vec::len).sum()
    }

    /// Whether none is in force.
    pub fn is_empty(&self) -> bool {
        self.in_force.is_empty()
    }

    /// Gives the pod what the policy says that counts for it, where it does not say so itself. Without one the pod stays as
    /// it is. Cost: a comparison with each policy of the namespace, up to that one.
    pub fn apply(&self, pod: &mut Pod<'_>, namespace: &str, keys: &Keys) {
        let Some(candidates) = self.in_force.get(namespace) else {
            return;
        };
        let policies = candidates.iter().filter_map(|seen| seen.policy.as_ref().ok());
        let mut selecting = policies.filter(|policy| policy.selector.matches(|key| pod.label(key)));
        if let Some(policy) = selecting.next() {
            let annotations = policy.slo.iter();
            pod.inherit(annotations.map(|(name, value)| (format!("{}{name}", keys.slo_prefix), value.clone())));
        }
    }

    /// Every policy and those that it overlaps with; `None` for one that has faults. Cost: within each namespace, each is
    /// compared with each, up to ten that overlap.
    pub fn overlaps(&self) -> impl Iterator<Item = (&Seen, Option<PolicyOverlaps>)> {
        let in_force = self.in_force.values().flat_map(|namespace| {
            namespace.iter().enumerate().map(move |(at, seen)| {
                let (stronger, weaker) = (&namespace[..at], &namespace[at + 1..]);
                let overlaps = PolicyOverlaps {
                    overridden_by: overlapping(seen, stronger),
                    overrides: overlapping(seen, weaker),
                };
                (&**seen, Some(overlaps))
            })
        });
        in_force.chain(self.refused.iter().map(|seen| (&**seen, None)))
    }
}

/// The first of them that overlap; not all, which together could be more than the API server stores.
fn overlapping(seen: &Seen, others: &[Arc<Seen>]) -> Vec<String> {
    let Ok(policy) = &seen.policy else { return vec![] };
    let overlaps = |other: &&Arc<Seen>| {
        other
            .policy
            .as_ref()
            .is_ok_and(|other| policy.selector.overlaps(&other.selector))
    };
    let names = others.iter().filter(overlaps).map(|other| other.name.clone());
    names.take(NAMED).collect()
}

#[cfg(test)]
mod tests;
