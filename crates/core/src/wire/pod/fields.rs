//! The fields of a pod that are read, as they are on the wire. A null reads as absent, as it does in Go.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use serde_json::value::RawValue;

use crate::model::constraints::Toleration;
use crate::resources::ResourceList;
use crate::units::Quantity;

/// A string that borrows from the document where it holds no escapes. (serde borrows a `Cow` only as a direct
/// field, not inside lists and maps.) A null in a list or map is the empty string, as it is in Go.
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

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_unit<E: de::Error>(self) -> Result<Text<'de>, E> {
                Ok(Text::default())
            }
        }

        deserializer.deserialize_any(TextVisitor)
    }
}

/// A map of strings, in document order; the last of several equal keys counts.
#[derive(Debug, Clone, Default)]
pub struct StringMap<'a>(Vec<(Text<'a>, Text<'a>)>);

impl<'a> StringMap<'a> {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.find(key).map(|text| &*text.0)
    }

    /// The value of `key`, borrowed from the document where possible.
    pub fn cow(&self, key: &str) -> Option<Cow<'a, str>> {
        self.find(key).map(|text| text.0.clone())
    }

    fn find(&self, key: &str) -> Option<&Text<'a>> {
        self.0.iter().rev().find(|(k, _)| *k == *key).map(|(_, value)| value)
    }

    /// Keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Keys and values, borrowed from the document where possible.
    pub fn cows(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
        self.0.iter().map(|(key, value)| (key.0.clone(), value.0.clone()))
    }
}

/// Reads a map into a list of pairs.
struct Pairs<K, V>(Vec<(K, V)>);

impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Deserialize<'de> for Pairs<K, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor<K, V>(std::marker::PhantomData<(K, V)>);

        impl<'de, K: Deserialize<'de>, V: Deserialize<'de>> Visitor<'de> for PairsVisitor<K, V> {
            type Value = Pairs<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(4));
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(PairsVisitor(std::marker::PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for StringMap<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Pairs::deserialize(deserializer).map(|pairs| Self(pairs.0))
    }
}

/// A resource list on the wire.
#[derive(Debug, Clone, Default)]
pub(crate) struct Quantities<'a>(pub(crate) ResourceList<'a>);

impl<'a> Quantities<'a> {
    pub(super) fn round_to_millis(&mut self) {
        self.0 = self
            .0
            .iter()
            .map(|(name, quantity)| (name.clone(), quantity.round_to_millis()))
            .collect();
    }

    /// Adds the entries whose names are not there yet.
    pub(super) fn fill_from<'s>(&mut self, entries: impl Iterator<Item = (&'s Cow<'a, str>, Quantity)>)
    where
        'a: 's,
    {
        for (name, quantity) in entries {
            if self.0.get(name).is_none() {
                self.0.set(name.clone(), quantity);
            }
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Quantities<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Pairs(pairs) = Pairs::<Text<'a>, Option<Quantity>>::deserialize(deserializer)?;
        let quantities = pairs
            .into_iter()
            .map(|(name, quantity)| (name.0, quantity.unwrap_or_default()));
        Ok(Self(quantities.collect()))
    }
}

/// A pod.
#[derive(Debug, Clone)]
pub struct Pod<'a> {
    pub(super) metadata: Option<Metadata<'a>>,
    pub(super) spec: Spec<'a>,
    /// Read only of pods that exist: whatever is there on arrival does not count.
    pub(super) status: Option<&'a RawValue>,
    /// Annotations that count as its own: see [`Pod::inherit`].
    pub(super) inherited: Vec<(String, String)>,
}

/// A pod whose constraints are not read yet.
#[derive(serde::Deserialize)]
pub(super) struct UnreadPod<'a> {
    #[serde(borrow)]
    metadata: Option<Metadata<'a>>,
    spec: Spec<'a>,
    status: Option<&'a RawValue>,
}

impl<'a> UnreadPod<'a> {
    /// Reads the constraints if they have at most `most` bytes.
    pub(super) fn read(mut self, most: usize) -> Result<Pod<'a>, serde_json::Error> {
        self.spec.read_constraints(most)?;
        Ok(Pod {
            metadata: self.metadata,
            spec: self.spec,
            status: self.status,
            inherited: vec![],
        })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pod<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        UnreadPod::deserialize(deserializer)?
            .read(usize::MAX)
            .map_err(de::Error::custom)
    }
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    pub(super) generate_name: Option<Text<'a>>,
    pub(super) namespace: Option<Text<'a>>,
    pub(super) uid: Option<Text<'a>>,
    pub(super) resource_version: Option<Text<'a>>,
    pub(super) creation_timestamp: Option<Text<'a>>,
    pub(super) deletion_timestamp: Option<Text<'a>>,
    pub(super) labels: Option<StringMap<'a>>,
    pub(super) annotations: Option<StringMap<'a>>,
    pub(super) owner_references: Option<Vec<OwnerReference<'a>>>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OwnerReference<'a> {
    #[serde(borrow, default)]
    pub(super) kind: Text<'a>,
    pub(super) uid: Option<Text<'a>>,
    pub(super) controller: Option<bool>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec<'a> {
    #[serde(borrow)]
    pub(super) containers: Option<Vec<Container<'a>>>,
    pub(super) init_containers: Option<Vec<Container<'a>>>,
    pub(super) overhead: Option<Quantities<'a>>,
    pub(super) resources: Option<Resources<'a>>,
    pub(super) node_name: Option<Text<'a>>,
    pub(super) scheduler_name: Option<Text<'a>>,
    pub(super) node_selector: Option<&'a RawValue>,
    pub(super) affinity: Option<&'a RawValue>,
    pub(super) tolerations: Option<&'a RawValue>,
    /// Read from these three texts: see [`Spec::read_constraints`].
    #[serde(skip)]
    pub(super) constraints: Constraints<'a>,
    pub(super) scheduling_gates: Option<Vec<SchedulingGate<'a>>>,
    pub(super) priority: Option<i32>,
    pub(super) preemption_policy: Option<Text<'a>>,
    pub(super) termination_grace_period_seconds: Option<i64>,
    pub(super) runtime_class_name: Option<Text<'a>>,
    pub(super) priority_class_name: Option<Text<'a>>,
    pub(super) volumes: Option<Vec<Volume<'a>>>,
    pub(super) automount_service_account_token: Option<bool>,
    pub(super) host_network: Option<bool>,
    #[serde(rename = "hostPID")]
    pub(super) host_pid: Option<bool>,
    #[serde(rename = "hostIPC")]
    pub(super) host_ipc: Option<bool>,
    pub(super) resource_claims: Option<Vec<IgnoredAny>>,
}

/// Where a pod may run.
#[derive(Debug, Clone, Default)]
pub(super) struct Constraints<'a> {
    pub(super) node_selector: Option<StringMap<'a>>,
    pub(super) affinity: Option<Affinity<'a>>,
    pub(super) tolerations: Option<Vec<WireToleration<'a>>>,
}

impl Spec<'_> {
    /// The bytes of the JSON text of its nodeSelector, affinity and tolerations.
    pub(super) fn constraints_length(&self) -> usize {
        let texts = [self.node_selector, self.affinity, self.tolerations];
        texts.into_iter().flatten().map(|text| text.get().len()).sum()
    }

    /// Reads the three fields if they have at most so many bytes together; else the nodeSelector, if that has.
    pub(super) fn read_constraints(&mut self, most: usize) -> Result<(), serde_json::Error> {
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

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    pub(super) resources: Option<Resources<'a>>,
    pub(super) restart_policy: Option<Text<'a>>,
    pub(super) ports: Option<Vec<Port>>,
}

impl<'a> Container<'a> {
    pub(super) fn requests(&self) -> Option<&ResourceList<'a>> {
        self.resources.as_ref()?.requests()
    }

    /// The requests, for sums over containers.
    pub(super) fn stated(&self) -> Option<Cow<'_, ResourceList<'a>>> {
        self.requests().map(Cow::Borrowed)
    }

    /// A restartable init container (KEP-753).
    pub(super) fn is_sidecar(&self) -> bool {
        self.restart_policy.as_ref().is_some_and(|policy| policy == "Always")
    }
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Port {
    pub(super) container_port: Option<i64>,
    pub(super) host_port: Option<i64>,
}

#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct Resources<'a> {
    #[serde(borrow)]
    pub(super) requests: Option<Quantities<'a>>,
    pub(super) limits: Option<Quantities<'a>>,
}

impl<'a> Resources<'a> {
    pub(super) fn requests(&self) -> Option<&ResourceList<'a>> {
        self.requests.as_ref().map(|requests| &requests.0)
    }

    pub(super) fn round_to_millis(&mut self) {
        [&mut self.requests, &mut self.limits]
            .into_iter()
            .flatten()
            .for_each(Quantities::round_to_millis);
    }
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Affinity<'a> {
    #[serde(borrow)]
    pub(super) node_affinity: Option<NodeAffinity<'a>>,
    pub(super) pod_affinity: Option<IgnoredAny>,
    pub(super) pod_anti_affinity: Option<IgnoredAny>,
}

#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct NodeAffinity<'a> {
    #[serde(borrow, rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub(super) required: Option<NodeSelector<'a>>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeSelector<'a> {
    #[serde(borrow)]
    pub(super) node_selector_terms: Option<Vec<NodeSelectorTerm<'a>>>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NodeSelectorTerm<'a> {
    #[serde(borrow)]
    pub(super) match_expressions: Option<Vec<NodeSelectorRequirement<'a>>>,
    pub(super) match_fields: Option<Vec<NodeSelectorRequirement<'a>>>,
}

#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct NodeSelectorRequirement<'a> {
    #[serde(borrow, default)]
    pub(super) key: Text<'a>,
    #[serde(default)]
    pub(super) operator: Text<'a>,
    pub(super) values: Option<Vec<Text<'a>>>,
}

/// What the cluster says of a pod that exists.
#[derive(Debug, Clone, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status<'a> {
    #[serde(borrow)]
    pub(super) phase: Option<Text<'a>>,
    pub(super) conditions: Option<Vec<Condition<'a>>>,
    pub(super) nominated_node_name: Option<Text<'a>>,
    pub(super) container_statuses: Option<Vec<ContainerStatus<'a>>>,
    pub(super) init_container_statuses: Option<Vec<ContainerStatus<'a>>>,
    pub(super) resources: Option<Resources<'a>>,
    pub(super) allocated_resources: Option<Quantities<'a>>,
}

#[derive(Debug, Clone, serde::Deserialize)]
pub(in crate::wire) struct Condition<'a> {
    #[serde(borrow, default, rename = "type")]
    pub(in crate::wire) kind: Text<'a>,
    #[serde(default)]
    pub(in crate::wire) status: Text<'a>,
    pub(in crate::wire) reason: Option<Text<'a>>,
    pub(in crate::wire) message: Option<Text<'a>>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ContainerStatus<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    pub(super) state: Option<ContainerState<'a>>,
    pub(super) resources: Option<Resources<'a>>,
    pub(super) allocated_resources: Option<Quantities<'a>>,
}

#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct ContainerState<'a> {
    #[serde(borrow)]
    pub(super) terminated: Option<Terminated<'a>>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Terminated<'a> {
    #[serde(borrow)]
    pub(super) started_at: Option<Text<'a>>,
    pub(super) finished_at: Option<Text<'a>>,
}

/// A toleration on the wire; the domain's own type behind it.
#[derive(Debug, Clone)]
pub(crate) struct WireToleration<'a>(pub(super) Toleration<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for WireToleration<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Fields<'a> {
            #[serde(borrow)]
            key: Option<Text<'a>>,
            operator: Option<Text<'a>>,
            value: Option<Text<'a>>,
            effect: Option<Text<'a>>,
            toleration_seconds: Option<i64>,
        }
        let fields = Fields::deserialize(deserializer)?;
        let text = |text: Option<Text<'a>>| text.unwrap_or_default().0;
        Ok(Self(Toleration {
            key: text(fields.key),
            operator: text(fields.operator),
            value: text(fields.value),
            effect: text(fields.effect),
            seconds: fields.toleration_seconds,
        }))
    }
}

#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct SchedulingGate<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Volume<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
    pub(super) persistent_volume_claim: Option<ClaimSource<'a>>,
    pub(super) ephemeral: Option<EphemeralSource<'a>>,
    pub(super) host_path: Option<IgnoredAny>,
    pub(super) projected: Option<ProjectedSource>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ClaimSource<'a> {
    #[serde(borrow, default)]
    pub(super) claim_name: Text<'a>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EphemeralSource<'a> {
    #[serde(borrow)]
    volume_claim_template: Option<ClaimTemplate<'a>>,
}

impl<'a> EphemeralSource<'a> {
    /// The StorageClass that it states.
    pub(super) fn class(&self) -> Option<Cow<'a, str>> {
        let class = self
            .volume_claim_template
            .as_ref()?
            .spec
            .as_ref()?
            .storage_class_name
            .as_ref()?;
        Some(class.0.clone())
    }
}

#[derive(Debug, Clone, serde::Deserialize)]
struct ClaimTemplate<'a> {
    #[serde(borrow)]
    spec: Option<ClaimSpec<'a>>,
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimSpec<'a> {
    #[serde(borrow)]
    storage_class_name: Option<Text<'a>>,
}

#[derive(Debug, Clone, serde::Deserialize)]
pub(super) struct ProjectedSource {
    sources: Option<Vec<Projection>>,
}

impl ProjectedSource {
    /// Whether it has a token of the pod's service account.
    pub(super) fn has_token(&self) -> bool {
        let mut sources = self.sources.iter().flatten();
        sources.any(|source| source.service_account_token.is_some())
    }
}

#[derive(Debug, Clone, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Projection {
    service_account_token: Option<IgnoredAny>,
}
