//! The configuration in use, and the next version of it: from files ([`Files`]) or from a ConfigMap ([`ConfigMap`]).

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use arc_swap::ArcSwap;
use edgeward_core::config::map::Notice;
use edgeward_core::config::{Config, Gating, map};
use edgeward_core::document::{Fault, Faults};
use edgeward_core::engine::Change;
use tokio::sync::watch;

use crate::instruments::metrics::{Metrics, Reload};
use crate::platform::yaml;
use crate::sources::Changes;

mod config_map;
mod files;

pub use config_map::ConfigMap;
pub(crate) use config_map::read_config_map;
pub use files::{Files, read};

/// What was read: a configuration and what an operator should know of it, or every fault.
pub type Outcome = Result<(Config, Vec<Notice>), Faults>;

/// Tells good versions of the configuration as they come.
#[derive(Debug, Clone)]
pub struct Versions(watch::Receiver<Option<Arc<Config>>>);

impl Versions {
    /// Those that this sender offers.
    pub(super) fn of(sender: &watch::Sender<Option<Arc<Config>>>) -> Self {
        let mut versions = sender.subscribe();
        versions.mark_changed();
        Self(versions)
    }

    /// The newest version that this clone has not returned yet: first the one in use, once one is, and later ones when
    /// they are. Versions that nobody asked for in time are left out. Cancel-safe.
    pub async fn next(&mut self) -> Arc<Config> {
        loop {
            if self.0.changed().await.is_err() {
                // Whoever offers versions is gone: the process is ending.
                std::future::pending::<()>().await;
            }
            if let Some(config) = &*self.0.borrow_and_update() {
                return Arc::clone(config);
            }
        }
    }

    /// Does this work, which is of this version, until there is one that is not the `same` to it, and returns that; `None` if
    /// the work has ended.
    pub async fn until_other(
        &mut self,
        config: &Config,
        same: impl Fn(&Config, &Config) -> bool,
        work: impl Future<Output = ()>,
    ) -> Option<Arc<Config>> {
        let other = async {
            loop {
                let next = self.next().await;
                if !same(&next, config) {
                    return next;
                }
            }
        };
        tokio::select! {
            other = other => Some(other),
            () = work => None,
        }
    }

    /// Sends each version as settings, for ever.
    pub async fn send_settings(mut self, changes: Changes) {
        loop {
            changes.send(Change::Settings(self.next().await)).await;
        }
    }
}

/// The last good configuration: the defaults until there is one.
#[derive(Debug)]
pub struct Configuration {
    current: Arc<ArcSwap<Config>>,
    /// The same for those who wait; `None` while the first good one is waited for.
    versions: watch::Sender<Option<Arc<Config>>>,
    /// Our own namespace, whose pods are never mutated.
    namespace: String,
    /// Whether pods may be gated.
    may_gate: bool,
    metrics: Arc<Metrics>,
    /// Whether a version was ever taken. From then on some things cannot change.
    in_use: bool,
    /// The version offered last, taken or not.
    seen: Option<u64>,
}

impl Configuration {
    /// The defaults. Pods of `namespace`, our own, pass through under every version.
    pub fn new(namespace: String, metrics: Arc<Metrics>) -> Self {
        let config = Arc::new(of(Config::default(), &namespace, true));
        Self {
            current: Arc::new(ArcSwap::new(Arc::clone(&config))),
            versions: watch::Sender::new(Some(config)),
            namespace,
            may_gate: true,
            metrics,
            in_use: false,
            seen: None,
        }
    }

    /// The same for a process that could not release a pod: none is gated, whatever a version says.
    pub fn without_gating(self) -> Self {
        let config = Arc::new(of(Config::default(), &self.namespace, false));
        self.current.store(Arc::clone(&config));
        self.versions.send_replace(Some(config));
        Self {
            may_gate: false,
            ..self
        }
    }

    /// The configuration in use, always the newest. Whoever loads it twice may get two versions.
    pub fn current(&self) -> Arc<ArcSwap<Config>> {
        Arc::clone(&self.current)
    }

    /// The configuration in use and those that follow. [`ConfigMap`] has none in use before its first good one.
    pub fn versions(&self) -> Versions {
        Versions::of(&self.versions)
    }

    /// Takes a version of the configuration if it is a good one, and tells log and metrics either way; nothing if it is
    /// the version that was offered last.
    ///
    /// # Errors
    /// It has faults; what was in use stays.
    fn offer(&mut self, version: u64, outcome: impl FnOnce() -> Outcome) -> Result<(), Faults> {
        if self.seen.replace(version) == Some(version) {
            return Ok(());
        }
        let outcome = outcome().and_then(|(config, notices)| match self.in_use {
            true => Ok((config.replacing(&self.current.load())?, notices)),
            false => Ok((config, notices)),
        });
        match outcome {
            Ok((config, notices)) => {
                let config = Arc::new(of(config, &self.namespace, self.may_gate));
                for notice in notices {
                    tracing::warn!(key = notice.key, "configuration: {notice}");
                }
                self.current.store(Arc::clone(&config));
                self.versions.send_replace(Some(config));
                self.in_use = true;
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

    /// There is nothing to read; what was in use stays, and the next version is new whatever it says.
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

/// The version of a content: equal contents have the same one, in every replica of the same build.
fn version(content: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// Reads the keys of a ConfigMap.
fn read_keys(data: &BTreeMap<String, String>) -> Outcome {
    map::read(data, yaml::parse_value)
}

/// Reads one document: a configuration, or the manifest of a ConfigMap that holds one.
fn read_document(text: &str) -> Outcome {
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
