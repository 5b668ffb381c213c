//! Reads our custom resources, our ConfigMap, and Liqo's objects once.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use edgeward_cluster::liqo;
use edgeward_cluster::liqo::LiqoObjects;
use edgeward_decision::config::{Config, Enabled, sites};
use edgeward_decision::model::site::SiteDefinition;
use edgeward_decision::placement::policy::Seen;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::ListParams;
use kube::{Api, Resource as _};

use super::Connection;
use crate::config::{ReadConfig, read_config_map};
use crate::instruments::logs::LogLimit;
use crate::watch::namespaced_name::NamespacedName;
use crate::watch::raw::{Gvr, Raw};
use crate::{policies as slo_policies, sites as objects};

/// State of Liqo as far as the caller may read it.
#[derive(Debug, Default)]
pub struct Liqo {
    /// Liqo's objects; `None` if the configuration does not use Liqo, or no kind could be read.
    pub objects: Option<LiqoObjects>,
    /// Plurals of the kinds that could not be read, each with the error. Nothing is known of these kinds.
    pub(super) unreadable: Vec<(&'static str, anyhow::Error)>,
    /// Clusters without a site of their own, each with the site that prevents it.
    pub left_out: Vec<(String, String)>,
}

impl Liqo {
    /// Whether the objects of this kind, given by its plural, were read completely.
    fn is_known(&self, kind: &str) -> bool {
        self.unreadable.iter().all(|(unreadable, _)| *unreadable != kind)
    }

    /// Reads all objects of a kind; `None` if it is not installed. Returns none if the kind cannot be read.
    async fn read<T>(
        &mut self,
        connection: &Connection,
        kind: Gvr,
        read: impl Fn(&Raw) -> Option<T>,
    ) -> Option<Vec<T>> {
        let found = connection.installed(kind, read).await;
        found.unwrap_or_else(|error| {
            self.unreadable.push((kind.plural, error));
            Some(vec![])
        })
    }
}

/// Reads Liqo's objects once if this configuration uses Liqo, and adds the sites that they define to the
/// configuration. A kind that cannot be read does not affect the others.
pub(super) async fn liqo(connection: &Connection, config: &mut Config) -> Liqo {
    let mut found = match config.liqo.enabled {
        Enabled::Never => Liqo::default(),
        enabled => read_liqo(connection, enabled == Enabled::Always).await,
    };
    let discovered = found.objects.as_ref().map(|objects| objects.sites(&config.liqo));
    (config.sites, found.left_out) = sites::with_discovered(&config.sites, &discovered.unwrap_or_default());
    found
}

async fn read_liqo(connection: &Connection, is_required: bool) -> Liqo {
    let mut found = Liqo::default();
    let cluster = |object: &Raw| liqo::foreign_cluster(object.json());
    let node = |object: &Raw| liqo::virtual_node(object.json());
    let offloading = |object: &Raw| {
        let namespace = object.meta().namespace.as_deref()?;
        Some((Box::from(namespace), liqo::namespace_offloading(object.json())?))
    };
    let map = |object: &Raw| liqo::namespace_map(object.json()).map(Arc::new);
    let latency = |object: &Raw| liqo::connection(object.json());
    let clusters = found.read(connection, Gvr::FOREIGN_CLUSTERS, cluster).await;
    let nodes = found.read(connection, Gvr::VIRTUAL_NODES, node).await;
    let offloadings = found.read(connection, Gvr::OFFLOADINGS, offloading).await;
    let maps = found.read(connection, Gvr::NAMESPACE_MAPS, map).await;
    let latencies = found.read(connection, Gvr::CONNECTIONS, latency).await;
    let is_installed = clusters.is_some() && nodes.is_some() && offloadings.is_some() && maps.is_some();
    let objects = LiqoObjects {
        are_namespaces_known: is_installed && found.is_known("namespaceoffloadings") && found.is_known("namespacemaps"),
        foreign_clusters: clusters.unwrap_or_default(),
        virtual_nodes: nodes.unwrap_or_default(),
        offloadings: offloadings.unwrap_or_default(),
        maps: maps.unwrap_or_default(),
        latencies: latencies.unwrap_or_default(),
    };
    let is_in_use = is_installed || is_required;
    found.objects = Some(objects).filter(|_| is_in_use && found.unreadable.len() < 5);
    found
}

/// Returns the sites that the Sites define; `None` if there are none.
///
/// # Errors
/// The Sites cannot be listed, or have [`Faults`](edgeward_decision::document::Faults).
pub(super) async fn sites(connection: &Connection) -> anyhow::Result<Option<Vec<Arc<SiteDefinition>>>> {
    let named = |object: &Raw| Some((object.meta().name.clone()?, objects::read(object)?.1));
    let specs = connection.installed::<_, BTreeMap<_, _>>(Gvr::SITES, named).await?;
    let specs = specs.filter(|specs| !specs.is_empty());
    Ok(specs.as_ref().map(sites::of_objects).transpose()?)
}

/// Returns the policies of a cluster; `None` if the CRD is not installed. A policy with faults is also logged.
///
/// # Errors
/// The API server cannot be reached or refuses the request.
pub async fn policies(connection: &Connection) -> anyhow::Result<Option<Vec<Arc<Seen>>>> {
    let limit = LogLimit::new(connection.clock);
    let read = |object: &Raw| slo_policies::read(object, None, &limit);
    connection.installed(Gvr::POLICIES, read).await
}

/// Reads the configuration from a ConfigMap once, as an edgeward in its namespace would.
///
/// # Errors
/// The ConfigMap does not exist or cannot be read. Faults in the configuration are not an error.
pub async fn config_map(connection: &Connection, name: &NamespacedName) -> anyhow::Result<ReadConfig> {
    let map = connection.get::<ConfigMap>(&name.namespace, &name.name).await?;
    let map = map.with_context(|| format!("ConfigMap {name} does not exist"))?;
    Ok(read_config_map(&map, &name.namespace))
}

/// Returns the latest Events of a pod that are warnings or concern its reflection in another cluster. At most three,
/// newest first.
///
/// # Errors
/// The Events cannot be listed.
pub async fn events(connection: &Connection, namespace: &str, uid: &str) -> anyhow::Result<Vec<String>> {
    const MOST: usize = 3;
    let of_pod = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    let is_told = |event: &Event| {
        let reason = event.reason.as_deref().unwrap_or_default();
        // Liqo's reasons are FailedReflection and ReflectionDisabled. A successful reflection is of no interest.
        let is_of_reflection = reason.contains("Reflection") && !reason.starts_with("Successful");
        event.type_.as_deref() == Some("Warning") || is_of_reflection
    };
    let api = Api::namespaced(connection.client.clone(), namespace);
    let told = |event| Some(event).filter(is_told);
    let mut events = connection.list(&api, of_pod, told).await?;
    let last = |event: &Event| {
        let time = event.event_time.as_ref().map(|time| time.0);
        time.max(event.last_timestamp.as_ref().map(|time| time.0))
    };
    events.sort_by_key(|event| std::cmp::Reverse(last(event)));
    let said = |event: Event| {
        let [reason, message] = [event.reason, event.message].map(Option::unwrap_or_default);
        format!("{reason}: {message}")
    };
    Ok(events.into_iter().take(MOST).map(said).collect())
}

#[cfg(test)]
mod tests;
