//! Which SLO applies to a pod: its own annotations, and for anything that these do not state, one policy of its namespace.
//!
//! If several policies select the pod, the one with the highest precedence applies, then the first by name. A policy
//! applies as a whole, because no user wrote an SLO that is pieced together from several policies.

mod neighbourhood;
mod selector;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document;
use crate::document::texts::ProfileName;
use crate::document::{Checks, Decimal, Faults, schema};
use crate::keys::Keys;
use crate::model::site_restriction::{self, Demand};
use crate::model::slo::{Class, MAX_MILLIS};
use crate::model::snapshot::Neighbourhoods;
use crate::model::traits::{self, Traits};
use crate::pod::Pod;
use edgeward_kube::selector::Selector;

pub use neighbourhood::{Candidates, Neighbourhood};
use neighbourhood::{NeighbourhoodSpec, RankBy};
use selector::LabelSelector;
pub use selector::MAX_SELECTOR_BYTES;

/// The most policies of a namespace that are in force. A user who may create policies can create many of them with long
/// selectors.
pub const MAX_POLICIES: usize = 100;

/// The annotation, without the SLO prefix, for the sites that a policy allows.
const POLICY_SITES: &str = "policySites";

/// The annotation, without the SLO prefix, that names the policy whose neighbourhood holds.
const NEIGHBOURHOOD: &str = "neighbourhood";

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
    slo: Vec<(String, String)>,
    neighbourhood: Option<Neighbourhood>,
}

impl Policy {
    /// Reads an SloPolicy: its name and its `spec`.
    ///
    /// # Errors
    /// All faults, and what applies in spite of them. With the newest CRD, the API server rejects such a policy.
    pub fn read(object: &Value) -> Result<Self, Refused> {
        let stated = &object["spec"];
        let read = document::checked("spec", |checks| {
            let spec: PolicySpec = schema::read(&SCHEMA, stated, "spec", checks.faults)?;
            let neighbourhood = spec.neighbourhood.map(Neighbourhood::from);
            if neighbourhood.is_some_and(|stated| stated.rank_by == RankBy::Profile) && spec.slo.profile.is_none() {
                checks.fault("neighbourhood.rankBy", "is profile, and slo.profile is missing");
            }
            let selector = spec.selector.selector("selector", checks);
            let mut slo = spec.slo.annotations(checks);
            slo.extend(neighbourhood.map(|_| named(object)));
            Some(Self {
                precedence: spec.precedence.map_or(0, |precedence| precedence.0),
                selector,
                slo,
                neighbourhood,
            })
        });
        read.map_err(|faults| Refused {
            faults,
            instead: Instead::of_restrictions(object),
        })
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
    /// The clouds that these pods may use, as the leader keeps them in the status.
    neighbourhood: Option<NeighbourhoodSpec>,
}

/// The fields of an SLO, as in the annotations `slo.<domain>/…`.
#[derive(Serialize, Deserialize, JsonSchema)]
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
    #[serde(rename(serialize = "policySites"))]
    #[schemars(length(max = site_restriction::MAX_BYTES), title = site_restriction::ALLOWED)]
    sites: Option<String>,
    /// Traits that the site or node must have: `SecureRuntime, GreenEnergy?, SoftDistanceLimit=20ms`. `?` marks an
    /// optional trait. They apply in addition to the pod's own traits.
    #[serde(rename(serialize = "policyTraits"))]
    #[schemars(length(max = traits::MAX_BYTES), title = traits::ALLOWED)]
    traits: Option<String>,
    /// The PerformanceProfile that ranks the sites that meet the SLO.
    #[schemars(with = "Option<ProfileName>")]
    profile: Option<String>,
}

impl SloDefaults {
    /// Converts the defaults to SLO annotations. Sites and traits have keys of their own, because they apply in addition
    /// to the pod's.
    fn annotations(self, checks: &mut Checks<'_>) -> Vec<(String, String)> {
        if let Some(text) = self.sites.as_ref().filter(|text| Demand::parse(text).is_none()) {
            checks.fault(
                "slo.sites",
                format_args!("{text:?} is not {}", site_restriction::ALLOWED),
            );
        }
        if let Some(text) = self.traits.as_ref().filter(|text| Traits::parse(text).is_none()) {
            checks.fault("slo.traits", format_args!("{text:?} is not {}", traits::ALLOWED));
        }
        let stated = document::without_nulls(serde_json::to_value(self).unwrap_or_default());
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let stated = stated.as_object().into_iter().flatten();
        stated.map(|(name, value)| (name.clone(), text(value))).collect()
    }
}

/// Why a policy does not apply as written, and what applies instead. A policy promises where pods may run, and a slip in a
/// manifest must not break that promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// All faults.
    pub faults: Faults,
    /// The part or version in force meanwhile; `None` if there is none.
    pub instead: Option<Instead>,
}

/// The part or version of a policy in force while its newest version has faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instead {
    policy: Arc<Policy>,
    /// Whether it is the last known version without faults.
    is_last: bool,
    /// Describes what applies.
    pub what: String,
}

impl Instead {
    /// The last known version without faults, and its generation.
    fn last(policy: Policy, generation: Option<i64>) -> Self {
        Self {
            policy: Arc::new(policy),
            is_last: true,
            what: match generation {
                Some(generation) => format!("generation {generation}, the last without faults, counts meanwhile"),
                None => "the last version without faults counts meanwhile".to_owned(),
            },
        }
    }

    /// The sites, traits and neighbourhood that a policy with faults states. If sites or traits cannot be read, the policy's
    /// pods may run nowhere. `None` if it states none of the three, or if its selector cannot be read.
    ///
    /// If the precedence cannot be read, it is unknown whether this policy or another applies. The policy then comes first,
    /// and its pods may run nowhere.
    fn of_restrictions(object: &Value) -> Option<Self> {
        let spec = &object["spec"];
        let selector = document::checked("", |checks| {
            let schema = &SCHEMA["properties"]["selector"];
            let selector: LabelSelector = schema::read(schema, &spec["selector"], "", checks.faults)?;
            Some(selector.selector("", checks))
        });
        let precedence = match &spec["precedence"] {
            Value::Null => Some(0),
            stated => stated.as_i64(),
        };
        let mut slo = vec![];
        for (name, key) in [("sites", POLICY_SITES), ("traits", POLICY_TRAITS)] {
            let stated = match &spec["slo"] {
                Value::Object(slo) => slo.get(name).unwrap_or_default(),
                Value::Null => &Value::Null,
                _ => &Value::Bool(false),
            };
            let is_readable = |text: &&str| match key {
                POLICY_SITES => Demand::parse(text).is_some(),
                _ => Traits::parse(text).is_some(),
            };
            if !stated.is_null() {
                // An empty text counts as unreadable.
                let text = stated.as_str().filter(|text| precedence.is_some() && is_readable(text));
                slo.push((key.to_owned(), text.unwrap_or_default().to_owned()));
            }
        }
        if !spec["neighbourhood"].is_null() {
            slo.push(named(object));
        }
        let what = match slo.iter().any(|(_, text)| text.is_empty()) {
            true => {
                "its sites, its traits or its precedence cannot be read, so pods that it selects are refused meanwhile"
            }
            false => "of it, its sites, traits and neighbourhood alone count meanwhile",
        };
        let policy = Policy {
            precedence: precedence
                .unwrap_or(MAX_PRECEDENCE)
                .clamp(-MAX_PRECEDENCE, MAX_PRECEDENCE),
            selector: selector.ok()?,
            slo,
            neighbourhood: None,
        };
        (!policy.slo.is_empty()).then(|| Self {
            policy: Arc::new(policy),
            is_last: false,
            what: what.to_owned(),
        })
    }
}

/// The annotation that names the policy of a neighbourhood.
fn named(policy: &Value) -> (String, String) {
    let name = policy["metadata"]["name"].as_str().unwrap_or_default();
    (NEIGHBOURHOOD.to_owned(), name.to_owned())
}

/// Lists the faults.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults.fmt(f)
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
    /// The clouds of its neighbourhood, as the status names them.
    pub members: Vec<Box<str>>,
}

impl Seen {
    /// The policy that applies, or the part that applies in spite of faults.
    pub fn in_force(&self) -> Option<&Policy> {
        match &self.policy {
            Ok(policy) => Some(policy),
            Err(refused) => refused.instead.as_ref().map(|instead| &*instead.policy),
        }
    }

    /// This version as the successor of `before`. If this version has faults, the last one without faults continues to
    /// apply.
    pub fn after(self, before: &Self) -> Self {
        let Err(Refused { faults, instead }) = self.policy else {
            return self;
        };
        let last = match &before.policy {
            Ok(policy) => Some(Instead::last(policy.clone(), before.generation)),
            Err(before) => before.instead.clone().filter(|instead| instead.is_last),
        };
        let instead = last.or(instead);
        let policy = Err(Refused { faults, instead });
        Self { policy, ..self }
    }
}

/// The policies of one namespace.
#[derive(Debug)]
pub struct NamespacePolicies {
    /// Policies with a part in force, in the order in which they apply. Only the first [`MAX_POLICIES`] are in force.
    sorted: Vec<Arc<Seen>>,
    /// Policies with faults that have no part in force.
    refused: Vec<Arc<Seen>>,
}

impl NamespacePolicies {
    /// Sorts the policies of one namespace.
    pub fn of(seen: impl IntoIterator<Item = Arc<Seen>>) -> Self {
        let (mut sorted, refused): (Vec<_>, Vec<_>) = seen.into_iter().partition(|seen| seen.in_force().is_some());
        let order = |seen: &Seen| Reverse(seen.in_force().map_or(0, |policy| policy.precedence));
        sorted.sort_by(|a, b| (order(a), &a.name).cmp(&(order(b), &b.name)));
        Self { sorted, refused }
    }

    /// All policies, in no particular order.
    pub fn seen(&self) -> impl Iterator<Item = &Arc<Seen>> {
        self.sorted.iter().chain(&self.refused)
    }

    /// Policies that are not in force because [`MAX_POLICIES`] others come first.
    pub fn beyond(&self) -> &[Arc<Seen>] {
        self.sorted.get(MAX_POLICIES..).unwrap_or_default()
    }

    /// The policies in force. The first that selects a pod applies to it.
    pub fn in_force(&self) -> impl Iterator<Item = (&Seen, &Policy)> {
        let sorted = self.sorted.iter().take(MAX_POLICIES);
        sorted.filter_map(|seen| Some((&**seen, seen.in_force()?)))
    }
}

/// All policies, as an immutable value that reviews read without waiting.
#[derive(Debug, Default)]
pub struct Policies {
    /// The policies of each namespace that has any.
    pub by_namespace: BTreeMap<String, NamespacePolicies>,
}

impl Policies {
    /// Groups these policies by namespace. Cost: a sort for each namespace.
    pub fn of(seen: impl IntoIterator<Item = Arc<Seen>>) -> Self {
        let mut by_namespace = BTreeMap::<String, Vec<_>>::new();
        for seen in seen {
            by_namespace.entry(seen.namespace.clone()).or_default().push(seen);
        }
        let sorted = by_namespace.into_iter();
        let by_namespace = sorted
            .map(|(namespace, seen)| (namespace, NamespacePolicies::of(seen)))
            .collect();
        Self { by_namespace }
    }

    /// The clouds of the neighbourhoods of the policies in force, if any.
    pub fn neighbourhoods(&self) -> Neighbourhoods {
        let mut all = Neighbourhoods::default();
        let in_force = self.by_namespace.values().flat_map(NamespacePolicies::in_force);
        for (seen, _) in in_force.filter(|(_, policy)| policy.keeps_members()) {
            all.entry(&seen.namespace, &seen.name)
                .insert_entry(seen.members.clone());
        }
        all
    }

    /// The number of policies in force.
    pub fn in_force(&self) -> usize {
        self.by_namespace
            .values()
            .map(|policies| policies.in_force().count())
            .sum()
    }

    /// Gives the pod the SLO of the policy that applies to it, for everything that the pod does not state itself. The
    /// policy's sites and traits apply in addition to the pod's own. Without a policy, the pod is unchanged. If a label key
    /// occurs several times, its last value counts. Cost: a comparison with each policy of the namespace up to the match.
    pub fn apply(&self, pod: &mut Pod<'_>, namespace: &str, keys: &Keys) {
        let Some(policies) = self.by_namespace.get(namespace) else {
            return;
        };
        let labels: BTreeMap<_, _> = pod.labels().collect();
        let selects = |(_, policy): &(&Seen, &Policy)| policy.selector.matches(|key| labels.get(key).copied());
        if let Some((_, policy)) = policies.in_force().find(selects) {
            let annotations = policy.slo.iter();
            let annotations = annotations.map(|(name, value)| (format!("{}{name}", keys.slo_prefix), value.clone()));
            pod.inherit(annotations, keys);
        }
    }
}

#[cfg(test)]
mod tests;
