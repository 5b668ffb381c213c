//! Reads the configuration from a ConfigMap, watched through the API server.

use std::collections::BTreeMap;

use edgeward_decision::config::map::Refused;
use futures::StreamExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::config::{Configuration, ReadConfig, of, read_keys, version};
use crate::watch::namespaced_name::NamespacedName;
use crate::watch::watcher;

/// A ConfigMap. Every change of it is a new version of the configuration.
pub struct ConfigMap {
    name: NamespacedName,
    client: Client,
    configuration: Configuration,
    refused: watch::Sender<Option<Refused>>,
}

impl ConfigMap {
    /// Creates a follower of this ConfigMap. Nothing is read yet, and no configuration is in use until a valid
    /// version arrives. Refused versions are sent to `refused`.
    pub fn new(
        name: NamespacedName,
        client: Client,
        configuration: Configuration,
        refused: watch::Sender<Option<Refused>>,
    ) -> Self {
        configuration.versions.send_replace(None);
        Self {
            name,
            client,
            configuration,
            refused,
        }
    }

    /// Accepts every valid version. Never returns. A refused version, a deleted ConfigMap and an API server that does
    /// not answer leave the last valid version in use. They are logged and counted.
    pub async fn follow(mut self) {
        let maps = Api::<v1::ConfigMap>::namespaced(self.client.clone(), &self.name.namespace);
        let mut maps = watcher::object(maps, &self.name.name);
        while let Some(map) = maps.next().await {
            match map {
                Ok(Some(map)) => self.offer(map),
                Ok(None) => {
                    self.configuration.lost();
                    tracing::warn!(config_map = %self.name, "the ConfigMap does not exist; {}", self.instead());
                }
                Err(error) => {
                    tracing::warn!(%error, config_map = %self.name, "the ConfigMap cannot be watched; {}", self.instead());
                }
            }
        }
    }

    fn offer(&mut self, map: v1::ConfigMap) {
        let data = values(map.data, map.binary_data);
        if let Err(faults) = self.configuration.offer(version(&data), || read_keys(&data)) {
            tracing::warn!(config_map = %self.name, error = %faults, "configuration refused; {}", self.instead());
            self.refused.send_replace(Some(Refused {
                namespace: self.name.namespace.clone(),
                name: self.name.name.clone(),
                uid: map.metadata.uid.unwrap_or_default(),
                resource_version: map.metadata.resource_version.unwrap_or_default(),
                faults,
            }));
        }
    }

    fn instead(&self) -> &'static str {
        if self.configuration.in_use {
            "the last good one stays"
        } else {
            "edgeward is not ready until there is a good one"
        }
    }
}

/// Merges both maps. kubectl stores a value that is not UTF-8 under `binaryData`, and its fault shows it.
fn values(
    data: Option<BTreeMap<String, String>>,
    binary: Option<BTreeMap<String, ByteString>>,
) -> BTreeMap<String, String> {
    let mut data = data.unwrap_or_default();
    let binary = binary.unwrap_or_default().into_iter();
    data.extend(binary.map(|(key, bytes)| (key, String::from_utf8_lossy(&bytes.0).into_owned())));
    data
}

/// Reads a ConfigMap as an edgeward in this namespace would.
pub(crate) fn read_config_map(map: v1::ConfigMap, namespace: &str) -> ReadConfig {
    let (config, notices) = read_keys(&values(map.data, map.binary_data))?;
    Ok((of(config, namespace, true), notices))
}
