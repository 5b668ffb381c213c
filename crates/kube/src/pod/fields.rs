//! The fields of a pod that are read, in their wire form. A null reads as absent, as it does in Go.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;

use serde::de::{self, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::constraints::{NodeSelector, Toleration};
use crate::pod::affinity::AffinityTerm;
use crate::resources::ResourceList;
use crate::units::Quantity;

/// A string that borrows from the document if it contains no escapes. serde borrows a `Cow` only as a direct field, not
/// inside lists and maps. A missing or null string is empty, as it is in Go.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Text<'a>(pub Cow<'a, str>);

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Text<'_> {
    /// The text, unless it is empty.
    pub fn stated(&self) -> Option<&str> {
        Some(&*self.0).filter(|text| !text.is_empty())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<Key<'a>>::deserialize(deserializer)?;
        Ok(Self(text.unwrap_or_default().0))
    }
}

/// Key of a map. It is never missing, and the path of a fault names it. It borrows like [`Text`].
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl Borrow<str> for Key<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A map of strings. The last of several equal keys counts.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct StringMap<'a>(#[serde(borrow)] BTreeMap<Key<'a>, Text<'a>>);

impl<'a> StringMap<'a> {
    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(|text| &**text)
    }

    /// Returns the value of `key`, borrowed from the document if possible.
    pub fn cow(&self, key: &str) -> Option<Cow<'a, str>> {
        self.0.get(key).map(|text| text.0.clone())
    }

    /// Iterates over keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&*key.0, &**value))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for ResourceList<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let quantities = BTreeMap::<Key<'a>, Option<Quantity>>::deserialize(deserializer)?.into_iter();
        let quantities = quantities.map(|(name, quantity)| (name.0, quantity.unwrap_or_default()));
        Ok(Self(quantities.collect()))
    }
}

/// A pod.
#[derive(Debug, Clone)]
pub struct Pod<'a> {
    pub metadata: Option<Metadata<'a>>,
    pub spec: Spec<'a>,
    /// Read only for pods that exist. The status of a pod that arrives does not count.
    pub status: Option<&'a RawValue>,
}

/// A pod whose constraints are not read yet.
#[derive(Deserialize)]
pub struct UnreadPod<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    spec: Spec<'a>,
    status: Option<&'a RawValue>,
}

impl<'a> UnreadPod<'a> {
    /// Reads the constraints if they have at most `most` bytes.
    pub fn read(mut self, most: usize) -> Result<Pod<'a>, serde_json::Error> {
        self.spec.read_constraints(most)?;
        Ok(Pod {
            metadata: self.metadata,
            spec: self.spec,
            status: self.status,
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pod<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pod = UnreadPod::deserialize(deserializer)?;
        pod.read(usize::MAX).map_err(de::Error::custom)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub generate_name: Text<'a>,
    pub namespace: Text<'a>,
    pub uid: Text<'a>,
    pub resource_version: Text<'a>,
    pub creation_timestamp: Text<'a>,
    pub deletion_timestamp: Text<'a>,
    pub labels: Option<StringMap<'a>>,
    pub annotations: Option<StringMap<'a>>,
    pub owner_references: Option<Vec<OwnerReference<'a>>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference<'a> {
    #[serde(borrow)]
    pub api_version: Text<'a>,
    pub kind: Text<'a>,
    pub name: Text<'a>,
    pub uid: Text<'a>,
    pub controller: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec<'a> {
    #[serde(borrow)]
    pub containers: Option<Vec<Container<'a>>>,
    pub init_containers: Option<Vec<Container<'a>>>,
    pub overhead: Option<ResourceList<'a>>,
    pub resources: Option<Resources<'a>>,
    pub node_name: Text<'a>,
    pub scheduler_name: Text<'a>,
    pub node_selector: Option<&'a RawValue>,
    pub affinity: Option<&'a RawValue>,
    pub tolerations: Option<&'a RawValue>,
    /// Parsed from the three texts above. See `Spec::read_constraints`.
    #[serde(skip)]
    pub constraints: Constraints<'a>,
    pub scheduling_gates: Option<Vec<SchedulingGate<'a>>>,
    pub priority: Option<i32>,
    pub preemption_policy: Text<'a>,
    pub termination_grace_period_seconds: Option<i64>,
    pub active_deadline_seconds: Option<i64>,
    pub runtime_class_name: Text<'a>,
    pub priority_class_name: Text<'a>,
    pub volumes: Option<Vec<Volume<'a>>>,
    pub automount_service_account_token: Option<bool>,
    pub host_network: Option<bool>,
    #[serde(rename = "hostPID")]
    pub host_pid: Option<bool>,
    #[serde(rename = "hostIPC")]
    pub host_ipc: Option<bool>,
    pub host_users: Option<bool>,
    pub resource_claims: Option<Vec<IgnoredAny>>,
    pub topology_spread_constraints: Option<Vec<SpreadConstraint<'a>>>,
    pub scheduling_group: Option<SchedulingGroup<'a>>,
}

/// A TopologySpreadConstraint.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SpreadConstraint<'a> {
    #[serde(borrow)]
    pub topology_key: Text<'a>,
    pub when_unsatisfiable: Text<'a>,
}

/// The PodGroup that a pod belongs to.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingGroup<'a> {
    #[serde(borrow)]
    pub pod_group_name: Text<'a>,
}

/// Constraints on where a pod may run.
#[derive(Debug, Clone, Default)]
pub struct Constraints<'a> {
    pub node_selector: Option<StringMap<'a>>,
    pub affinity: Option<Affinity<'a>>,
    pub tolerations: Option<Vec<Toleration>>,
}

impl Spec<'_> {
    /// Total length of the JSON text of nodeSelector, affinity and tolerations, in bytes.
    pub fn constraints_length(&self) -> usize {
        let texts = [self.node_selector, self.affinity, self.tolerations];
        texts.into_iter().flatten().map(|text| text.get().len()).sum()
    }

    /// Reads the three fields if they have at most `most` bytes together. Otherwise reads only the nodeSelector, if it
    /// alone has at most `most` bytes.
    pub(crate) fn read_constraints(&mut self, most: usize) -> Result<(), serde_json::Error> {
        let is_short = |text: &&RawValue| text.get().len() <= most;
        self.constraints.node_selector = read(self.node_selector.filter(is_short))?;
        if self.constraints_length() <= most {
            self.constraints.affinity = read(self.affinity)?;
            self.constraints.tolerations = read(self.tolerations)?;
        }
        Ok(())
    }
}

fn read<'a, T: Deserialize<'a>>(text: Option<&'a RawValue>) -> Result<Option<T>, serde_json::Error> {
    text.map(|text| serde_json::from_str(text.get())).transpose()
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub resources: Option<Resources<'a>>,
    pub restart_policy: Text<'a>,
    pub restart_policy_rules: Option<Vec<RestartRule<'a>>>,
    pub ports: Option<Vec<Port>>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct RestartRule<'a> {
    #[serde(borrow)]
    pub action: Text<'a>,
}

impl<'a> Container<'a> {
    pub fn requests(&self) -> Option<&ResourceList<'a>> {
        self.resources.as_ref()?.requests()
    }

    /// Returns the requests, for sums over containers.
    pub fn stated(&self) -> Option<Cow<'_, ResourceList<'a>>> {
        self.requests().map(Cow::Borrowed)
    }

    /// Whether this is a restartable init container (KEP-753).
    pub(crate) fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    pub container_port: Option<i64>,
    pub host_port: Option<i64>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Resources<'a> {
    #[serde(borrow)]
    pub requests: Option<ResourceList<'a>>,
    pub limits: Option<ResourceList<'a>>,
}

impl<'a> Resources<'a> {
    pub fn requests(&self) -> Option<&ResourceList<'a>> {
        self.requests.as_ref()
    }

    pub fn round_to_millis(&mut self) {
        [&mut self.requests, &mut self.limits]
            .into_iter()
            .flatten()
            .for_each(ResourceList::round_to_millis);
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Affinity<'a> {
    pub node_affinity: Option<Required<NodeSelector>>,
    #[serde(borrow)]
    pub pod_affinity: Option<Required<Vec<AffinityTerm<'a>>>>,
    pub pod_anti_affinity: Option<Required<Vec<AffinityTerm<'a>>>>,
}

/// The part of an affinity that must hold.
#[derive(Debug, Clone, Deserialize)]
pub struct Required<T> {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<T>,
}

/// Status of a pod that exists.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status<'a> {
    #[serde(borrow)]
    pub phase: Text<'a>,
    pub conditions: Option<Vec<Condition<'a>>>,
    pub nominated_node_name: Text<'a>,
    pub container_statuses: Option<Vec<ContainerStatus<'a>>>,
    pub init_container_statuses: Option<Vec<ContainerStatus<'a>>>,
    pub resources: Option<Resources<'a>>,
    pub allocated_resources: Option<ResourceList<'a>>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    pub status: Text<'a>,
    pub reason: Text<'a>,
    pub message: Text<'a>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub state: Option<&'a RawValue>,
    pub resources: Option<Resources<'a>>,
    pub allocated_resources: Option<ResourceList<'a>>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct SchedulingGate<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    pub persistent_volume_claim: Option<ClaimSource<'a>>,
    pub ephemeral: Option<&'a RawValue>,
    pub host_path: Option<IgnoredAny>,
    pub projected: Option<&'a RawValue>,
}

impl<'a> Volume<'a> {
    /// StorageClass that an ephemeral volume states.
    pub fn ephemeral_class(&self) -> Option<Cow<'a, str>> {
        let class = &value(self.ephemeral)["volumeClaimTemplate"]["spec"]["storageClassName"];
        Some(class.as_str()?.to_owned().into())
    }

    /// Whether the volume contains a token of the pod's service account.
    pub(crate) fn has_token(&self) -> bool {
        let sources = &value(self.projected)["sources"];
        let mut sources = sources.as_array().into_iter().flatten();
        sources.any(|source| !source["serviceAccountToken"].is_null())
    }
}

/// A part of a pod that is read only where it matters. Null if it is missing.
pub fn value(text: Option<&RawValue>) -> Value {
    let value = text.map(|text| serde_json::from_str(text.get()));
    value.and_then(Result::ok).unwrap_or_default()
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSource<'a> {
    #[serde(borrow)]
    pub claim_name: Text<'a>,
}
