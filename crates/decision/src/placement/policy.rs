//! Which SLO applies to a pod: its own annotations, and for anything that these do not state, one policy of its namespace.
//!
//! If several policies select the pod, the one with the highest precedence applies, then the first by name. A policy
//! applies as a whole, because no user wrote an SLO that is pieced together from several policies.

mod namespace;
mod refused;
mod selector;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::document;
use crate::document::texts::ProfileName;
use crate::document::{Checks, Decimal, schema};
use crate::keys::Keys;
use crate::model::site_restriction::{self, Demand};
use crate::model::slo::{Class, MAX_MILLIS};
use crate::model::traits::{self, Traits};
use crate::pod::Pod;
use edgeward_kube::selector::Selector;

pub use namespace::{MAX_POLICIES, NamespacePolicies};
pub use refused::{Instead, Refused};
use selector::LabelSelector;
pub use selector::MAX_SELECTOR_BYTES;

/// The annotation, without the SLO prefix, for the sites that a policy allows.
const POLICY_SITES: &str = "policySites";

/// The annotation, without the SLO prefix, for the traits that a policy requires.
const POLICY_TRAITS: &str = "policyTraits";

/// The highest precedence. The lowest is its negative.
const MAX_PRECEDENCE: i64 = 1_000_000;

/// A policy: the pods that it selects, and the SLO that it gives them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    precedence: i64,
    selector: Selector,
    /// SLO annotations, by name without the prefix.
    slo: Vec<(&'static str, String)>,
}

impl Policy {
    /// Reads the `spec` of an SloPolicy.
    ///
    /// # Errors
    /// All faults, and what applies in spite of them. With the newest CRD, the API server rejects such a policy.
    pub fn read(object: &Value) -> Result<Self, Refused> {
        let stated = &object["spec"];
        let read = document::checked("spec", |checks| {
            let spec: PolicySpec = schema::read(&SCHEMA, stated, "spec", checks.faults)?;
            Some(Self {
                precedence: spec.precedence.map_or(0, |precedence| precedence.0),
                selector: spec.selector.selector("selector", checks),
                slo: spec.slo.annotations(checks),
            })
        });
        read.map_err(|faults| Refused::of(faults, stated))
    }

    /// The traits that the policy states.
    pub fn traits(&self) -> Option<Traits> {
        let text = self.slo.iter().find(|(name, _)| *name == POLICY_TRAITS);
        text.and_then(|(_, text)| Traits::parse(text))
    }
}

static SCHEMA: LazyLock<Value> = LazyLock::new(schema::of::<PolicySpec>);

/// A default SLO for the pods that it selects.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicySpec {
    /// The pods. `{}` selects all pods of the namespace.
    selector: LabelSelector,
    /// If several policies select a pod, the highest precedence counts, then the first by name. Default 0.
    precedence: Option<Decimal<0, { -MAX_PRECEDENCE }, MAX_PRECEDENCE>>,
    /// The SLO fields of these pods, where a pod does not state its own.
    slo: SloDefaults,
}

/// The fields of an SLO, as in the annotations `slo.<domain>/…`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct SloDefaults {
    /// Workload class.
    class: Class,
    /// End-to-end deadline, ms.
    deadline_ms: Option<Decimal<0, 1, { MAX_MILLIS as i64 }>>,
    /// p95 latency target, ms.
    latency_target_ms: Option<Decimal<0, 1, { MAX_MILLIS as i64 }>>,
    /// 0 to 10; higher is more important. Default 5.
    priority: Option<Decimal<0, 0, 10>>,
    /// Whether the pods may run in the cloud. Default true.
    offload_allowed: Option<bool>,
    /// The only sites where the pods may run: names (`near, far`) or a selector of site labels
    /// (`region in (eu), tier!=spot`). It applies in addition to the pod's own restriction.
    #[schemars(length(max = site_restriction::MAX_BYTES), title = site_restriction::ALLOWED)]
    sites: Option<String>,
    /// Traits that the site or node must have: `SecureRuntime, GreenEnergy?, SoftDistanceLimit=20ms`. `?` marks an
    /// optional trait. They apply in addition to the pod's own traits.
    #[schemars(length(max = traits::MAX_BYTES), title = traits::ALLOWED)]
    traits: Option<String>,
    /// The PerformanceProfile that ranks the sites that meet the SLO.
    #[schemars(with = "Option<ProfileName>")]
    profile: Option<String>,
}

impl SloDefaults {
    /// Converts the defaults to SLO annotations.
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
        let fields = [
            ("class", Some(self.class.as_str().to_owned())),
            ("deadlineMs", self.deadline_ms.map(|ms| ms.0.to_string())),
            ("latencyTargetMs", self.latency_target_ms.map(|ms| ms.0.to_string())),
            ("priority", self.priority.map(|priority| priority.0.to_string())),
            (
                "offloadAllowed",
                self.offload_allowed.map(|allowed| allowed.to_string()),
            ),
            // Sites and traits have keys of their own, because they apply in addition to the pod's.
            (POLICY_SITES, self.sites),
            (POLICY_TRAITS, self.traits),
            ("profile", self.profile),
        ];
        let stated = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
        stated.collect()
    }
}

/// An SloPolicy as last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// The policy, or why it does not apply as written.
    pub policy: Result<Policy, Refused>,
}

impl Seen {
    /// The policy that applies, or the part that applies in spite of faults.
    pub fn in_force(&self) -> Option<&Policy> {
        match &self.policy {
            Ok(policy) => Some(policy),
            Err(refused) => refused.instead().map(Instead::policy),
        }
    }

    /// This version as the successor of `before`. If this version has faults, the last one without faults continues to
    /// apply.
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

/// All policies, as an immutable value that reviews read without waiting.
#[derive(Debug, Default, Clone)]
pub struct Policies(BTreeMap<Arc<str>, Arc<NamespacePolicies>>);

impl Policies {
    /// Groups these policies by namespace. Cost: [`NamespacePolicies::of`] for each namespace.
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

    /// Replaces the policies of this namespace.
    pub fn replace(&mut self, namespace: Arc<str>, policies: NamespacePolicies) {
        if policies.seen().next().is_some() {
            self.0.insert(namespace, Arc::new(policies));
        } else {
            self.0.remove(&namespace);
        }
    }

    /// The policies of each namespace, sorted by namespace.
    pub fn by_namespace(&self) -> &BTreeMap<Arc<str>, Arc<NamespacePolicies>> {
        &self.0
    }

    /// The number of policies in force.
    pub fn in_force(&self) -> usize {
        self.0.values().map(|policies| policies.in_force.len()).sum()
    }

    /// Gives the pod the SLO of the policy that applies to it, for everything that the pod does not state itself. The
    /// policy's sites and traits apply in addition to the pod's own. Without a policy, the pod is unchanged. Cost: a
    /// comparison with each policy of the namespace up to the match.
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
