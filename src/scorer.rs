//! Reads the learned scorer from a file or a ConfigMap, and again when it changes. A version with faults leaves the last good
//! one in use.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use edgeward_cluster::engine::Change;
use edgeward_decision::config::{Config, ScorerSettings, ScorerSource};
use edgeward_decision::model::scorer::{MAX_BYTES, Ranker, Scorer};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};

use crate::config::Versions;
use crate::inspect::Connection;
use crate::instruments::metrics::{Metrics, Reload};
use crate::observer::Changes;
use crate::platform::blocking::blocking;
use crate::platform::yaml;
use crate::watch::watcher;

/// The key of the ConfigMap.
const KEY: &str = "scorer.json";

/// Interval between two reads of the file.
const POLL: Duration = Duration::from_secs(1);

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
    /// Sends each version without faults. A new source leaves the last good version in use until it has one; `off` unloads it.
    /// Never returns.
    pub async fn follow(self, mut versions: Versions) {
        let mut config = versions.next().await;
        loop {
            let settings = config.scorer.clone();
            let reading = async {
                match settings.source() {
                    None => self.changes.send(Change::Scorer(None)).await,
                    Some(ScorerSource::File(path)) => self.follow_file(path).await,
                    Some(ScorerSource::ConfigMap(name)) => self.follow_map(name).await,
                }
            };
            let same = |one: &Config, other: &Config| one.scorer.source() == other.scorer.source();
            config = versions.until_other(&config, same, reading).await;
        }
    }

    async fn follow_file(&self, path: &Path) {
        let mut poll = tokio::time::interval(POLL);
        let mut last = None;
        loop {
            poll.tick().await;
            let file = path.to_owned();
            let text = blocking(move || text_of_file(&file)).await;
            let text = text.map_err(|error| format!("{error:#}"));
            if last.as_ref() == Some(&text) {
                continue;
            }
            match &text {
                Ok(text) => self.offer(&path.display().to_string(), text).await,
                Err(error) => self.report(Reload::Unreadable, error),
            }
            last = Some(text);
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

/// Reads a file, and of a file above [`MAX_BYTES`] one byte more than that.
fn text_of_file(path: &Path) -> anyhow::Result<String> {
    let mut bytes = vec![];
    let open = File::open(path);
    open.and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes))
        .with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a file once.
///
/// # Errors
/// The file cannot be read, or has faults. The error names all of them.
pub fn read_file(path: &Path) -> anyhow::Result<Scorer> {
    Scorer::read(&text_of_file(path)?).map_err(|faults| yaml::faulty(&path.display().to_string(), &faults))
}

/// Reads the scorer of a cluster once; `None` if none is in use.
///
/// # Errors
/// The scorer is in a file, which only the pod of edgeward has; or the ConfigMap cannot be read, does not exist, or has faults.
pub(crate) async fn read(
    connection: &Connection,
    namespace: &str,
    settings: &ScorerSettings,
) -> anyhow::Result<Option<Arc<dyn Ranker>>> {
    let name = match settings.source() {
        None => return Ok(None),
        Some(ScorerSource::File(_)) => anyhow::bail!("scorer.file is read in the pod of edgeward alone"),
        Some(ScorerSource::ConfigMap(name)) => name,
    };
    let source = source_of(namespace, name);
    let map = connection.get::<ConfigMap>(namespace, name).await?;
    let text = map
        .and_then(text_of)
        .with_context(|| format!("{source} does not exist"))?;
    let scorer = Scorer::read(&text).map_err(|faults| yaml::faulty(&source, &faults))?;
    Ok(Some(Arc::new(scorer)))
}
