//! Current configuration and its next versions, from files ([`Files`]) or from a ConfigMap ([`ConfigMap`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use edgeward_cluster::engine::Change;
use edgeward_decision::config::{Config, Gating, map};
use edgeward_decision::document::{Fault, Faults};
use futures::FutureExt as _;
use tokio::sync::watch;

use crate::instruments::metrics::{Metrics, Reload};
use crate::observer::Changes;
use crate::platform::yaml;

mod config_map;
mod files;

pub use config_map::ConfigMap;
pub(crate) use config_map::read_config_map;
pub use files::{Files, read};

/// A configuration with notices for the operator, or all its faults.
pub type ReadConfig = Result<(Config, Vec<String>), Faults>;

/// Receives valid versions of the configuration.
#[derive(Debug, Clone)]
pub struct Versions(watch::Receiver<Option<Arc<Config>>>);

impl Versions {
    /// Versions that this sender offers.
    pub(crate) fn of(sender: &watch::Sender<Option<Arc<Config>>>) -> Self {
        let mut versions = sender.subscribe();
        versions.mark_changed();
        Self(versions)
    }

    /// Returns the newest version that this clone has not returned yet. It first returns the version in use, as soon
    /// as there is one. It skips versions that were replaced before the call. Cancel-safe.
    pub async fn next(&mut self) -> Arc<Config> {
        loop {
            if self.0.changed().await.is_err() {
                // The sender is gone, so the process is ending.
                std::future::pending::<()>().await;
            }
            if let Some(config) = &*self.0.borrow_and_update() {
                return Arc::clone(config);
            }
        }
    }

    /// Runs `work`, which belongs to version `config`, until a version arrives that `same` tells apart from it.
    /// Returns that version.
    pub async fn until_other(
        &mut self,
        config: &Config,
        same: impl Fn(&Config, &Config) -> bool,
        work: impl Future<Output = ()>,
    ) -> Arc<Config> {
        let other = async {
            loop {
                let next = self.next().await;
                if !same(&next, config) {
                    return next;
                }
            }
        };
        tokio::select! {
            other = other => other,
            other = work.then(|()| std::future::pending()) => other,
        }
    }

    /// Sends each version to the engine as settings. Never returns.
    pub async fn send_settings(mut self, changes: Changes) {
        loop {
            changes.send(Change::Settings(self.next().await)).await;
        }
    }
}

/// The last valid configuration, or the defaults until there is one.
#[derive(Debug)]
pub struct Configuration {
    /// The current configuration. Two loads may return two versions.
    pub current: Arc<ArcSwap<Config>>,
    /// The current configuration for waiting tasks; `None` until the first valid one arrives.
    pub versions: watch::Sender<Option<Arc<Config>>>,
    /// edgeward's own namespace, whose pods are never mutated.
    namespace: String,
    /// Whether pods may be gated.
    may_gate: bool,
    metrics: Arc<Metrics>,
    /// The last offered version, accepted or refused.
    seen: Option<u64>,
}

impl Configuration {
    /// Starts with the defaults. Pods of edgeward's own `namespace` pass through under every version. Without `may_gate`,
    /// gating is off under every version: the process cannot release pods.
    pub fn new(namespace: String, may_gate: bool, metrics: Arc<Metrics>) -> Self {
        let config = of(Config::default(), &namespace, may_gate);
        Self {
            current: Arc::new(ArcSwap::from_pointee(config)),
            versions: watch::Sender::default(),
            namespace,
            may_gate,
            metrics,
            seen: None,
        }
    }

    /// Accepts a valid version of the configuration, and reports acceptance or refusal in log and metrics. Does
    /// nothing if the version equals the last offered one.
    ///
    /// # Errors
    /// The version has faults. The previous configuration stays in use.
    fn offer(&mut self, version: u64, outcome: impl FnOnce() -> ReadConfig) -> Result<(), Faults> {
        if self.seen.replace(version) == Some(version) {
            return Ok(());
        }
        let outcome = outcome().and_then(|(mut config, notices)| {
            if self.is_in_use() {
                config = config.replacing(&self.current.load())?;
            }
            Ok((config, notices))
        });
        match outcome {
            Ok((config, notices)) => {
                let config = Arc::new(of(config, &self.namespace, self.may_gate));
                for notice in notices {
                    tracing::warn!("configuration: {notice}");
                }
                self.current.store(Arc::clone(&config));
                self.versions.send_replace(Some(config));
                self.count(Reload::Loaded);
                self.metrics.config_version(version);
                tracing::info!(version = format!("{version:016x}"), "configuration loaded");
                Ok(())
            }
            Err(faults) => {
                self.count(Reload::Refused);
                self.metrics.config_faults(faults.0.iter().map(|fault| &*fault.path));
                Err(faults)
            }
        }
    }

    /// Whether a version was ever accepted. Some settings cannot change after that.
    fn is_in_use(&self) -> bool {
        self.versions.borrow().is_some()
    }

    /// Records that there is nothing to read. The configuration stays in use, and the next version counts as new in
    /// any case.
    fn lost(&mut self) {
        self.seen = None;
        self.count(Reload::Unreadable);
    }

    fn count(&self, result: Reload) {
        self.metrics.config_reloads.at([result.as_str()]).inc();
    }
}

fn of(mut config: Config, namespace: &str, may_gate: bool) -> Config {
    config.excluded_namespaces.push(namespace.to_owned());
    if !may_gate {
        config.gating = Gating::never();
    }
    config
}

/// Reads the keys of a ConfigMap.
fn read_keys(data: &BTreeMap<String, String>) -> ReadConfig {
    map::read(data, yaml::parse_value)
}

/// Reads one document: a configuration, or the manifest of a ConfigMap with a configuration.
fn read_document(text: &str) -> ReadConfig {
    let document = yaml::parse_value(text).map_err(|message| {
        let path = String::new();
        Faults(vec![Fault { path, message }])
    })?;
    if document["kind"] == "ConfigMap" {
        return map::read_manifest(&document, yaml::parse_value);
    }
    Ok((Config::read(&document)?, vec![]))
}

#[cfg(test)]
mod tests;
