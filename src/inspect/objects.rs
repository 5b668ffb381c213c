//! Our custom resources and our ConfigMap, read once.

use std::collections::BTreeMap;
use std::sync::Arc;

use edgeward_core::config::{Config, sites};
use edgeward_core::model::remembered_node::RememberedNode;
use edgeward_core::placement::policy::Seen;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Connection;
use crate::api::{Site, site_memory_of};
use crate::instruments::logs::LogLimit;
use crate::platform::clock::Clock;
use crate::sources::configuration::{ConfigMapName, Outcome, read_config_map};
use crate::sources::objects::is_installed;
use crate::sources::raw::Raw;
use crate::sources::{policies as slo_policies, site_memory, sites as objects};

/// All objects of a kind, each as `read` has it; `None` while the definition is not installed.
///
/// # Errors
/// The API server cannot be reached or does not allow it.
async fn list<K, T>(connection: &Connection, read: impl Fn(&Raw<K>) -> Option<T>) -> anyhow::Result<Option<Vec<T>>>
where
    K: Resource<DynamicType = ()> + 'static,
    Raw<K>: DeserializeOwned,
{
    let failure = |error| connection.failure(&format!("cannot list {}", K::plural(&())), error);
    if !is_installed::<K>(&connection.client).await.map_err(failure)? {
        return Ok(None);
    }
    let api = Api::<Raw<K>>::all(connection.client.clone());
    let list = api.list(&ListParams::default()).await.map_err(failure)?;
    Ok(Some(list.items.iter().filter_map(read).collect()))
}

/// This configuration with the sites that are in use at a cluster: those of its Sites, where there are any.
///
/// # Errors
/// The API server cannot be reached or does not allow it, or the Sites have faults.
pub async fn sites_in_use(connection: &Connection, config: Config) -> anyhow::Result<Config> {
    let specs = site_specs(connection).await?.unwrap_or_default();
    if specs.is_empty() {
        return Ok(config);
    }
    let sites = sites::of_objects(&specs)?;
    Ok(Config { sites, ..config })
}

/// `spec` of every Site, by name; `None` while the definition is not installed.
///
/// # Errors
/// The API server cannot be reached or does not allow it.
pub async fn site_specs(connection: &Connection) -> anyhow::Result<Option<BTreeMap<String, Value>>> {
    let named = |object: &Raw<Site>| Some((object.meta().name.clone()?, objects::read(object)?.1));
    let specs = list(connection, named).await?;
    Ok(specs.map(|specs| specs.into_iter().collect()))
}

/// The policies of a cluster; `None` while the definition is not installed. One with faults is logged, too.
///
/// # Errors
/// The API server cannot be reached or does not allow it.
pub async fn policies(connection: &Connection) -> anyhow::Result<Option<Vec<Arc<Seen>>>> {
    let limit = LogLimit::new(Clock::start());
    list(connection, |object| slo_policies::read(object, &limit)).await
}

/// Reads the configuration in a ConfigMap once, as an edgeward in its namespace would take it; `None` if there is none.
///
/// # Errors
/// It cannot be read. That it has faults is no error.
pub async fn config_map(connection: &Connection, name: &ConfigMapName) -> anyhow::Result<Option<Outcome>> {
    let api = Api::<ConfigMap>::namespaced(connection.client(), &name.namespace);
    let map = api.get_opt(&name.name).await;
    let map = map.map_err(|error| connection.failure(&format!("cannot get ConfigMap {name}"), error))?;
    Ok(map.map(|map| read_config_map(map, &name.namespace)))
}

/// What the edgeward of this Service remembers of the nodes of clouds, read once.
///
/// # Errors
/// It cannot be read. That there is nothing is no error.
pub async fn site_memory(
    connection: &Connection,
    namespace: &str,
    service: &str,
    clock: Clock,
) -> anyhow::Result<Vec<RememberedNode>> {
    let (maps, name) = (Api::namespaced(connection.client(), namespace), site_memory_of(service));
    let read = site_memory::get(&maps, &name, clock).await;
    read.map_err(|error| connection.failure(&format!("cannot get ConfigMap {namespace}/{name}"), error))
}
