//! An object as the API server sent it: metadata for the watch, and the JSON text for the readers in `crates/`.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::core::DynamicResourceScope;
use kube::{Api, Client, Resource};
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;

/// Group, version and plural of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Gvr {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) plural: &'static str,
}

impl Gvr {
    pub(crate) const CLAIMS: Self = Self::of("", "v1", "persistentvolumeclaims");
    pub(crate) const CLASSES: Self = Self::of("storage.k8s.io", "v1", "storageclasses");
    pub(crate) const DEVICE_CLASSES: Self = Self::of("resource.k8s.io", "v1", "deviceclasses");
    pub(crate) const NAMESPACES: Self = Self::of("", "v1", "namespaces");
    pub(crate) const NODES: Self = Self::of("", "v1", "nodes");
    pub(crate) const PODS: Self = Self::of("", "v1", "pods");
    pub(crate) const PROFILES: Self = Self::of("edgeward.io", "v1alpha1", "performanceprofiles");
    pub(crate) const PEERS: Self = Self::of("edgeward.io", "v1alpha1", "peers");
    pub(crate) const REPORTS: Self = Self::of("edgeward.io", "v1alpha1", "clusterreports");
    pub(crate) const SITES: Self = Self::of("edgeward.io", "v1alpha1", "sites");
    pub(crate) const POLICIES: Self = Self::of("edgeward.io", "v1alpha1", "slopolicies");
    pub(crate) const VOLUMES: Self = Self::of("", "v1", "persistentvolumes");

    // Gangs of Kubernetes and coscheduling.
    pub(crate) const POD_GROUPS: Self = Self::of("scheduling.k8s.io", "v1alpha2", "podgroups");
    pub(crate) const COSCHEDULING_POD_GROUPS: Self = Self::of("scheduling.x-k8s.io", "v1alpha1", "podgroups");

    // Open Cluster Management.
    pub(crate) const SCORES: Self = Self::of("cluster.open-cluster-management.io", "v1alpha1", "addonplacementscores");

    // Karmada.
    pub(crate) const CLUSTERS: Self = Self::of("cluster.karmada.io", "v1alpha1", "clusters");

    // Kinds of Liqo.
    pub(crate) const CONNECTIONS: Self = Self::of("networking.liqo.io", "v1beta1", "connections");
    pub(crate) const FOREIGN_CLUSTERS: Self = Self::of("core.liqo.io", "v1beta1", "foreignclusters");
    pub(crate) const NAMESPACE_MAPS: Self = Self::of("offloading.liqo.io", "v1beta1", "namespacemaps");
    pub(crate) const OFFLOADINGS: Self = Self::of("offloading.liqo.io", "v1beta1", "namespaceoffloadings");
    pub(crate) const VIRTUAL_NODES: Self = Self::of("offloading.liqo.io", "v1beta1", "virtualnodes");

    const fn of(group: &'static str, version: &'static str, plural: &'static str) -> Self {
        Self { group, version, plural }
    }

    /// An API for all objects of the kind in all namespaces.
    pub(crate) fn all(self, client: &Client) -> Api<Raw> {
        Api::all_with(client.clone(), &self)
    }
}

/// An unparsed object. Its metadata contains only name, namespace, uid, resource version and creation time. The rest
/// would take most of a watch's work and memory, and is not needed.
#[derive(Debug, Clone)]
pub(crate) struct Raw {
    metadata: ObjectMeta,
    json: Box<str>,
}

impl Raw {
    /// The object's JSON text.
    pub(crate) fn json(&self) -> &str {
        &self.json
    }

    /// Creates an object from its JSON text.
    ///
    /// # Errors
    /// The object has no metadata.
    pub(crate) fn from_json(json: Box<str>) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            name: Option<String>,
            namespace: Option<String>,
            uid: Option<String>,
            resource_version: Option<String>,
            creation_timestamp: Option<String>,
        }
        let Object { metadata } = serde_json::from_str(&json)?;
        let created = metadata.creation_timestamp.and_then(|at| at.parse().ok());
        let metadata = ObjectMeta {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            creation_timestamp: created.map(Time),
            ..ObjectMeta::default()
        };
        Ok(Self { metadata, json })
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_json(json.into()).map_err(de::Error::custom)
    }
}

impl Resource for Raw {
    type DynamicType = Gvr;
    type Scope = DynamicResourceScope;

    fn kind(gvr: &Gvr) -> Cow<'_, str> {
        gvr.plural.into()
    }

    fn group(gvr: &Gvr) -> Cow<'_, str> {
        gvr.group.into()
    }

    fn version(gvr: &Gvr) -> Cow<'_, str> {
        gvr.version.into()
    }

    fn plural(gvr: &Gvr) -> Cow<'_, str> {
        gvr.plural.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use kube::core::WatchEvent;

    use super::*;

    #[test]
    fn watch_event_keeps_the_json_of_its_object() {
        let line = r#"{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"a","uid":"u","resourceVersion":"7","managedFields":[{}]},"spec":{"x":1}}}"#;
        let WatchEvent::Added(object) = serde_json::from_str::<WatchEvent<Raw>>(line).unwrap() else {
            panic!("another event");
        };
        assert_eq!(object.meta().name.as_deref(), Some("a"));
        assert_eq!(object.meta().resource_version.as_deref(), Some("7"));
        assert!(object.json().contains(r#""spec":{"x":1}"#), "{}", object.json());
    }
}
