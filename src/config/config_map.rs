//! Reads the configuration from a ConfigMap, watched through the API server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1;
use kube::{Api, Client};
use tokio::time::timeout;

use crate::config::{Configuration, ReadConfig, of, read_keys};
use crate::controllers::events;
use crate::instruments::logs::LogLimit;
use crate::platform::clock::Clock;
use crate::platform::hash;
use crate::watch::namespaced_name::NamespacedName;
use crate::watch::watcher;

/// How long to wait for the API server to accept an Event.
const PATIENCE: Duration = Duration::from_secs(10);

/// A ConfigMap. Every change of it is a new version of the configuration.
pub struct ConfigMap {
    name: NamespacedName,
    client: Client,
    configuration: Configuration,
    clock: Clock,
}

impl ConfigMap {
    /// Creates a follower of this ConfigMap. Nothing is read yet, and no configuration is in use until a valid
    /// version arrives.
    pub fn new(name: NamespacedName, client: Client, configuration: Configuration, clock: Clock) -> Self {
        Self {
            name,
            client,
            configuration,
            clock,
        }
    }

    /// Accepts every valid version. Never returns. A refused version, a deleted ConfigMap and an API server that does
    /// not answer leave the last valid version in use. They are logged and counted. A refused
    /// version gets an Event.
    pub async fn follow(mut self) {
        let maps = Api::<v1::ConfigMap>::namespaced(self.client.clone(), &self.name.namespace);
        let metrics = Arc::clone(&self.configuration.metrics);
        let mut maps = watcher::object("configmaps", maps, &self.name.name, metrics);
        while let Some(map) = maps.next().await {
            match map {
                Some(map) => self.offer(map).await,
                None => {
                    self.configuration.lost();
                    tracing::warn!(config_map = %self.name, "the ConfigMap does not exist; {}", self.instead());
                }
            }
        }
    }

    async fn offer(&mut self, map: v1::ConfigMap) {
        let data = values(&map);
        if let Err(faults) = self.configuration.offer(hash(&data), || read_keys(&data)) {
            tracing::warn!(config_map = %self.name, error = %faults, "configuration refused; {}", self.instead());
            let event = events::config_refused(&map, &faults, self.clock.wall());
            let limit = LogLimit::new(self.clock);
            let _ = timeout(PATIENCE, events::create(&self.client, &event, &limit)).await;
        }
    }

    fn instead(&self) -> &'static str {
        if self.configuration.is_in_use() {
            "the last good one stays"
        } else {
            "edgeward is not ready until there is a good one"
        }
    }
}

/// The keys of both maps. kubectl stores a value that is not UTF-8 under `binaryData`, and its fault shows it.
fn values(map: &v1::ConfigMap) -> BTreeMap<String, String> {
    let mut data = map.data.clone().unwrap_or_default();
    let binary = map.binary_data.iter().flatten();
    data.extend(binary.map(|(key, bytes)| (key.clone(), String::from_utf8_lossy(&bytes.0).into_owned())));
    data
}

/// Reads a ConfigMap as an edgeward in this namespace would.
pub(crate) fn read_config_map(map: &v1::ConfigMap, namespace: &str) -> ReadConfig {
    let (config, notices) = read_keys(&values(map))?;
    Ok((of(config, namespace, true), notices))
}
