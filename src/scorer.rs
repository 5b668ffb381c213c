//! Reads the learned scorer from a file or a ConfigMap, and again when it changes. A version with faults leaves the last good
//! one in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use edgeward_cluster::engine::Change;
use edgeward_decision::config::{Config, ScorerSettings};
use edgeward_decision::model::scorer::{Ranker, Scorer};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use crate::config::Versions;
use crate::inspect::Connection;
use crate::instruments::metrics::{Metrics, Reload};
use crate::observer::Changes;
use crate::platform::files::Watch;
use crate::platform::yaml;
use crate::watch::watcher;

/// The key of the ConfigMap.
const KEY: &str = "scorer.json";

/// Pause before a missing file is read again.
const PAUSE: Duration = Duration::from_secs(1);

/// Follows the scorer that the configuration names.
pub struct Scorers {
    /// Client of the watched cluster.
    pub client: Client,
    /// edgeward's own namespace.
    pub namespace: String,
    /// The process's metrics.
    pub metrics: Arc<Metrics>,
    /// Where scorers are sent.
    pub changes: Changes,
}

impl Scorers {
    /// Sends each version without faults. Never returns.
    pub async fn follow(self, mut versions: Versions) {
        let mut config = versions.next().await;
        loop {
            let settings = config.scorer.clone();
            let reading = async {
                self.changes.send(Change::Scorer(None)).await;
                match settings {
                    settings if !settings.is_on() => {}
                    ScorerSettings { file: Some(path), .. } => self.follow_file(path).await,
                    ScorerSettings { config_map, .. } => self.follow_map(&config_map.unwrap_or_default()).await,
                }
            };
            let source = |config: &Config| {
                (
                    config.scorer.is_on(),
                    config.scorer.file.clone(),
                    config.scorer.config_map.clone(),
                )
            };
            let same = |one: &Config, other: &Config| source(one) == source(other);
            config = versions.until_other(&config, same, reading).await;
        }
    }

    async fn follow_file(&self, path: PathBuf) {
        let mut is_missing = false;
        let (mut watch, mut contents) = loop {
            match Watch::open(vec![path.clone()]).await {
                Ok(opened) => break opened,
                Err(error) if !is_missing => self.report(Reload::Unreadable, &format!("{error:#}")),
                Err(_) => {}
            }
            is_missing = true;
            tokio::time::sleep(PAUSE).await;
        };
        loop {
            let bytes = contents.first().map(|file| &*file.bytes).unwrap_or_default();
            self.offer(&path.display().to_string(), &String::from_utf8_lossy(bytes))
                .await;
            contents = loop {
                match watch.changed().await {
                    Ok(contents) => break contents,
                    Err(error) => self.report(Reload::Unreadable, &format!("{error:#}")),
                }
            };
        }
    }

    async fn follow_map(&self, name: &str) {
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let mut maps = watcher::object("configmaps", maps, name, Arc::clone(&self.metrics));
        let mut last = None;
        while let Some(map) = maps.next().await {
            let text = map.and_then(text_of);
            // Each new list repeats the object.
            if last.as_ref() == Some(&text) {
                continue;
            }
            let source = source_of(&self.namespace, name);
            match &text {
                Some(text) => self.offer(&source, text).await,
                None => self.report(Reload::Unreadable, &format!("{source} does not exist")),
            }
            last = Some(text);
        }
    }

    async fn offer(&self, source: &str, text: &str) {
        match Scorer::read(text) {
            Ok(scorer) => {
                tracing::info!(source, sha256 = scorer.sha256, "scorer loaded");
                self.metrics.scorer_reloads.at([Reload::Loaded.as_str()]).inc();
                self.changes.send(Change::Scorer(Some(Arc::new(scorer)))).await;
            }
            Err(faults) => self.report(Reload::Refused, &yaml::faulty(source, &faults).to_string()),
        }
    }

    fn report(&self, result: Reload, error: &str) {
        self.metrics.scorer_reloads.at([result.as_str()]).inc();
        tracing::warn!(
            error,
            "scorer not loaded; the last good one stays, or else sitePolicy alone ranks clouds"
        );
    }
}

fn text_of(map: ConfigMap) -> Option<String> {
    map.data?.remove(KEY)
}

fn source_of(namespace: &str, name: &str) -> String {
    format!("{KEY} of ConfigMap {namespace}/{name}")
}

/// Reads a file once.
///
/// # Errors
/// The file cannot be read, or has faults. The error names all of them.
pub fn read_file(path: &Path) -> anyhow::Result<Scorer> {
    let source = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| source.clone())?;
    Scorer::read(&text).map_err(|faults| yaml::faulty(&source, &faults))
}

/// Reads the scorer of a cluster once; `None` if none is in use.
pub(crate) async fn read(
    connection: &Connection,
    namespace: &str,
    settings: &ScorerSettings,
) -> anyhow::Result<Option<Arc<dyn Ranker>>> {
    let Some(name) = settings.config_map.as_ref().filter(|_| settings.is_on()) else {
        anyhow::ensure!(!settings.is_on(), "scorer.file is read in the pod of edgeward alone");
        return Ok(None);
    };
    let source = source_of(namespace, name);
    let map = connection.get::<ConfigMap>(namespace, name).await?;
    let text = map
        .and_then(text_of)
        .with_context(|| format!("{source} does not exist"))?;
    let scorer = Scorer::read(&text).map_err(|faults| yaml::faulty(&source, &faults))?;
    Ok(Some(Arc::new(scorer)))
}
