//! Which SLO applies to a pod: its own annotations, and where these are silent the one policy of its namespace that counts.
//!
//! Of several policies that select a pod the one of the highest precedence counts, then the first by name, and it counts as
//! a whole: an SLO made of pieces of several policies would be one that nobody wrote down.

mod namespace;
mod refused;
mod selector;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::document::{self, Checks, Decimal, Faults};
use crate::keys::Keys;
use crate::model::selector::Selector;
use crate::model::site_restriction::{self, Demand};
use crate::model::slo::{self, Class, MAX_MILLIS};
use crate::model::traits::{self, Traits};
use crate::wire::pod::Pod;

pub use namespace::{MAX_POLICIES, NamespacePolicies};
pub use refused::{Instead, Refused};
use selector::LabelSelector;
pub use selector::MAX_SELECTOR_BYTES;

/// The annotation under the prefix of SLOs that has the sites of a policy.
const POLICY_SITES: &str = "policySites";

/// The same for its traits.
const POLICY_TRAITS: &str = "policyTraits";

/// The highest precedence, and the lowest but for its sign.
const MAX_PRECEDENCE: i64 = 1_000_000;

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
    /// Every fault, and what counts all the same. The API server lets none through that has the newest definition.
    pub fn read(object: &Value) -> Result<Self, Refused> {
        let spec = &object["spec"];
        Self::read_whole(spec).map_err(|faults| Refused::of(faults, spec))
    }

    /// The traits that it says.
    pub fn traits(&self) -> Option<Traits> {
        let text = self.slo.iter().find(|(name, _)| *name == POLICY_TRAITS);
        text.and_then(|(_, text)| Traits::parse(text))
    }

    fn read_whole(spec: &Value) -> Result<Self, Faults> {
        let spec: Spec = document::parse(spec, "spec")?;
        document::checked("spec", |checks| {
            Some(Self {
                precedence: spec.precedence.map_or(0, |precedence| precedence.0),
                selector: spec.selector.selector("selector", checks),
                slo: spec.slo.annotations(checks),
            })
        })
    }
}

/// `spec` of an SloPolicy.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    selector: LabelSelector,
    precedence: Option<Decimal<0, { -MAX_PRECEDENCE }, MAX_PRECEDENCE>>,
    slo: SloDefaults,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SloDefaults {
    class: Class,
    deadline_ms: Option<Decimal<0, 1, { MAX_MILLIS as i64 }>>,
    latency_target_ms: Option<Decimal<0, 1, { MAX_MILLIS as i64 }>>,
    priority: Option<Decimal<0, 0, 10>>,
    offload_allowed: Option<bool>,
    sites: Option<String>,
    traits: Option<String>,
    profile: Option<String>,
}

impl SloDefaults {
    /// The annotations that say the same.
    fn annotations(self, checks: &mut Checks<'_>) -> Vec<(&'static str, String)> {
        if let Some(text) = self.sites.as_ref().filter(|text| Demand::parse(text).is_none()) {
            checks.fault(
                "slo.sites",
                format_args!("{text:?} is not {}", site_restriction::ALLOWED),
            );
        }
        if let Some(text) = self.traits.as_ref().filter(|text| Traits::parse(text).is_none()) {
            checks.fault("slo.traits", format_args!("{text:?} is not {}", traits::ALLOWED));
        }
        if let Some(name) = self.profile.as_ref().filter(|name| !slo::is_profile_name(name)) {
            checks.fault("slo.profile", format_args!("{name:?} is not {}", slo::PROFILE_NAME));
        }
        let fields = [
            ("class", Some(self.class.as_str().to_owned())),
            ("deadlineMs", self.deadline_ms.map(|ms| ms.0.to_string())),
            ("latencyTargetMs", self.latency_target_ms.map(|ms| ms.0.to_string())),
            ("priority", self.priority.map(|priority| priority.0.to_string())),
            (
                "offloadAllowed",
                self.offload_allowed.map(|allowed| allowed.to_string()),
            ),
            // Beside what the pod says itself: both hold.
            (POLICY_SITES, self.sites),
            (POLICY_TRAITS, self.traits),
            ("profile", self.profile),
        ];
        let stated = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
        stated.collect()
    }
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
    /// What it says, or why it does not count as it is.
    pub policy: Result<Policy, Refused>,
}

impl Seen {
    /// What counts of it.
    pub fn in_force(&self) -> Option<&Policy> {
        match &self.policy {
            Ok(policy) => Some(policy),
            Err(refused) => refused.instead().map(Instead::policy),
        }
    }

    /// This version, where `before` is the one that was known until now: if this one has faults, the last one without goes on
    /// counting.
    pub fn after(self: Arc<Self>, before: &Self) -> Arc<Self> {
        let Err(refused) = &self.policy else { return self };
        let Some(refused) = refused.after(before) else {
            return self;
        };
        Arc::new(Self {
            policy: Err(refused),
            ..Self::clone(&self)
        })
    }
}

/// Every policy there is, as an immutable value: reviews read it without waiting.
#[derive(Debug, Default, Clone)]
pub struct Policies(BTreeMap<Arc<str>, Arc<NamespacePolicies>>);

impl Policies {
    /// These policies. Cost: as [`NamespacePolicies::of`], for each namespace.
    pub fn of(seen: impl IntoIterator<Item = Arc<Seen>>) -> Self {
        let mut by_namespace = BTreeMap::<Arc<str>, Vec<_>>::new();
        for seen in seen {
            by_namespace.entry((*seen.namespace).into()).or_default().push(seen);
        }
        let mut policies = Self::default();
        for (namespace, seen) in by_namespace {
            policies.replace(namespace, NamespacePolicies::of(seen));
        }
        policies
    }

    /// Other policies in this namespace.
    pub fn replace(&mut self, namespace: Arc<str>, policies: NamespacePolicies) {
        if policies.seen().next().is_some() {
            self.0.insert(namespace, Arc::new(policies));
        } else {
            self.0.remove(&namespace);
        }
    }

    /// Those of each namespace, in order. Those of one are the same value for as long as none of them changes.
    pub fn by_namespace(&self) -> &BTreeMap<Arc<str>, Arc<NamespacePolicies>> {
        &self.0
    }

    /// How many count.
    pub fn len(&self) -> usize {
        self.0.values().map(|policies| policies.len()).sum()
    }

    /// Whether none counts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives the pod what the policy says that counts for it, where it does not say so itself; but for its sites, which hold
    /// beside the pod's own. Without one the pod stays as
    /// it is. Cost: a comparison with each policy of the namespace up to that one.
    pub fn apply(&self, pod: &mut Pod<'_>, namespace: &str, keys: &Keys) {
        let Some(policies) = self.0.get(namespace) else { return };
        if let Some(policy) = policies.select(pod.labels()) {
            let annotations = policy.slo.iter();
            let annotations = annotations.map(|(name, value)| (format!("{}{name}", keys.slo_prefix), value.clone()));
            pod.inherit(annotations, keys);
        }
    }
}

#[cfg(test)]
mod tests;
