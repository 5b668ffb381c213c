//! What is read of a pod that exists and that is too large for [`Pod::from_json`]: what it charges, and for whom.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::resources::is_native;
use crate::units::Quantity;
use crate::wire::counted;
use crate::wire::pod::fields::{Metadata, OwnerReference, Quantities, Resources, SchedulingGate, Spec};
use crate::wire::pod::{Container, Pod, StringMap, Text};

/// How many list elements and map entries are taken of such a pod, and as many of its status. In what the API server stores,
/// each takes 8 bytes and more of the 1.5 MiB that it takes for an object.
const LIMIT: usize = 200_000;

/// How many entries are taken of one map: more than are kept of a pod, so that the rest makes no difference.
const ENTRIES: usize = 128;

#[derive(serde::Deserialize)]
struct PartialPod<'a> {
    #[serde(borrow)]
    metadata: Option<PartialMetadata<'a>>,
    spec: PartialSpec<'a>,
    status: Option<&'a RawValue>,
}

/// Without labels and annotations.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartialMetadata<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    namespace: Option<Text<'a>>,
    uid: Option<Text<'a>>,
    resource_version: Option<Text<'a>>,
    creation_timestamp: Option<Text<'a>>,
    deletion_timestamp: Option<Text<'a>>,
    owner_references: Option<Vec<OwnerReference<'a>>>,
}

/// Without affinity, tolerations and volumes.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartialSpec<'a> {
    #[serde(borrow)]
    containers: Option<Vec<PartialContainer<'a>>>,
    init_containers: Option<Vec<PartialContainer<'a>>>,
    overhead: Option<First<'a, Option<Quantity>>>,
    resources: Option<PartialResources<'a>>,
    node_name: Option<Text<'a>>,
    scheduler_name: Option<Text<'a>>,
    node_selector: Option<First<'a, Text<'a>>>,
    scheduling_gates: Option<Vec<SchedulingGate<'a>>>,
    priority: Option<i32>,
    preemption_policy: Option<Text<'a>>,
}

/// The first entries of a map, and those of its resources that every node has.
struct First<'a, V>(Vec<(Text<'a>, V)>);

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for First<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FirstVisitor<'a, V>(PhantomData<(&'a str, V)>);

        impl<'de: 'a, 'a, V: Deserialize<'de>> Visitor<'de> for FirstVisitor<'a, V> {
            type Value = First<'a, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut entries = vec![];
                while let Some(key) = map.next_key::<Text<'a>>()? {
                    if entries.len() < ENTRIES || is_native(&key) {
                        entries.push((key, map.next_value()?));
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(First(entries))
            }
        }

        deserializer.deserialize_any(FirstVisitor(PhantomData))
    }
}

impl<'a> From<First<'a, Option<Quantity>>> for Quantities<'a> {
    fn from(First(entries): First<'a, Option<Quantity>>) -> Self {
        let entries = entries.into_iter();
        Quantities(
            entries
                .map(|(name, quantity)| (name.0, quantity.unwrap_or_default()))
                .collect(),
        )
    }
}

/// Without ports.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct PartialContainer<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    resources: Option<PartialResources<'a>>,
    restart_policy: Option<Text<'a>>,
}

/// Without limits.
#[derive(serde::Deserialize)]
struct PartialResources<'a> {
    #[serde(borrow)]
    requests: Option<First<'a, Option<Quantity>>>,
}

impl<'a> Pod<'a> {
    /// Reads of a pod that exists who it is, what it charges, its node selector, its gates and its status, and nothing else: a
    /// list of any length elsewhere costs no memory.
    ///
    /// # Errors
    /// These fields cannot be read, or have more in their lists and maps than any API server takes.
    pub fn in_part(json: &'a str) -> Result<Self, counted::Error> {
        let PartialPod { metadata, spec, status } = counted::from_str(json, LIMIT)?;
        Ok(Pod {
            metadata: metadata.map(Metadata::from),
            spec: spec.into(),
            status,
            inherited: vec![],
            is_partial: true,
        })
    }

    /// How many list elements and map entries are taken of its status.
    pub(super) fn limit(&self) -> usize {
        if self.is_partial { LIMIT } else { counted::LIMIT }
    }
}

impl<'a> From<PartialMetadata<'a>> for Metadata<'a> {
    fn from(metadata: PartialMetadata<'a>) -> Self {
        let is_controller = |owner: &OwnerReference<'_>| owner.controller == Some(true);
        let owners = metadata.owner_references.into_iter().flatten();
        Metadata {
            name: metadata.name,
            generate_name: None,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            creation_timestamp: metadata.creation_timestamp,
            deletion_timestamp: metadata.deletion_timestamp,
            labels: None,
            annotations: None,
            owner_references: Some(owners.filter(is_controller).take(1).collect()),
        }
    }
}

impl<'a> From<PartialSpec<'a>> for Spec<'a> {
    fn from(spec: PartialSpec<'a>) -> Self {
        let containers =
            |list: Option<Vec<PartialContainer<'a>>>| list.map(|list| list.into_iter().map(Container::from).collect());
        Spec {
            containers: containers(spec.containers),
            init_containers: containers(spec.init_containers),
            overhead: spec.overhead.map(Quantities::from),
            resources: spec.resources.map(Resources::from),
            node_name: spec.node_name,
            scheduler_name: spec.scheduler_name,
            node_selector: spec.node_selector.map(|First(entries)| StringMap::from(entries)),
            affinity: None,
            tolerations: None,
            scheduling_gates: spec.scheduling_gates,
            priority: spec.priority,
            preemption_policy: spec.preemption_policy,
            termination_grace_period_seconds: None,
            runtime_class_name: None,
            priority_class_name: None,
            volumes: None,
            automount_service_account_token: None,
            host_network: None,
            host_pid: None,
            host_ipc: None,
            resource_claims: None,
        }
    }
}

impl<'a> From<PartialContainer<'a>> for Container<'a> {
    fn from(container: PartialContainer<'a>) -> Self {
        Container {
            name: container.name,
            resources: container.resources.map(Resources::from),
            restart_policy: container.restart_policy,
            ports: None,
        }
    }
}

impl<'a> From<PartialResources<'a>> for Resources<'a> {
    fn from(resources: PartialResources<'a>) -> Self {
        Resources {
            requests: resources.requests.map(Quantities::from),
            limits: None,
        }
    }
}
