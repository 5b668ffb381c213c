//! Karmada: what it says about the clusters behind clouds, and its questions about the edge ([`estimator`]).
//!
//! Karmada writes a Cluster only when it changes. Every replica reads the Clusters again and again, so that nothing counts once
//! Karmada cannot be read.

pub mod estimator;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use edgeward_cluster::engine::Change;
use edgeward_decision::config::Config;
use edgeward_decision::model::report::{Report, Source, Total};
use edgeward_decision::model::site::SiteKind;
use edgeward_kube::units::{Bytes, Millicores, Quantity};
use futures::{StreamExt as _, stream};
use kube::Api;
use serde::Deserialize;
use tokio::time::timeout;

use crate::config::Versions;
use crate::instruments::logs::news;
use crate::instruments::metrics::Metrics;
use crate::observer::Changes;
use crate::platform::blocking::blocking;
use crate::reports::limited;
use crate::watch::kubeconfig;
use crate::watch::raw::{Gvr, Raw};

/// Time between two passes. Karmada writes what changed every 10 s.
const PERIOD: Duration = Duration::from_secs(10);

/// Timeout of one read.
const TIMEOUT: Duration = Duration::from_secs(5);

/// How many Clusters are read at the same time.
const AT_ONCE: usize = 8;

/// Reads the Cluster of each cloud's name.
pub struct Clusters {
    /// The process's metrics.
    pub metrics: Arc<Metrics>,
    /// Where reports are sent.
    pub changes: Changes,
}

impl Clusters {
    /// Reads the Clusters while the configuration names a kubeconfig. Never returns.
    pub async fn follow(self, mut versions: Versions) {
        let mut config = versions.next().await;
        loop {
            let same =
                |one: &Config, other: &Config| kubeconfig(one) == kubeconfig(other) && clouds(one).eq(clouds(other));
            let work = async {
                if let Some(kubeconfig) = kubeconfig(&config) {
                    self.keep(kubeconfig, &config).await;
                }
            };
            config = versions.until_other(&config, same, work).await;
        }
    }

    /// Reads for ever. A failure is logged if it differs from the last one.
    async fn keep(&self, kubeconfig: &Path, config: &Config) {
        let mut last = String::new();
        loop {
            match self.read(kubeconfig, config).await {
                Ok(()) => last.clear(),
                Err(error) => {
                    self.metrics.watch_failures.at([Gvr::CLUSTERS.plural]).inc();
                    if let Some(error) = news(&error, &mut last) {
                        tracing::warn!(error, "Clusters of Karmada cannot be read; it is tried again");
                    }
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Reads the Cluster of each cloud once, and sends what it reports. Returns a failure if there was one.
    async fn read(&self, kubeconfig: &Path, config: &Config) -> anyhow::Result<()> {
        let path = kubeconfig.to_owned();
        let read = blocking(move || kubeconfig::of_secret(&std::fs::read(path)?)).await;
        let client = limited(read.with_context(|| kubeconfig.display().to_string())?)?;
        let clusters = Gvr::CLUSTERS.all(&client);
        let reads: Vec<_> = clouds(config).map(|cloud| self.read_one(&clusters, cloud)).collect();
        let results: Vec<_> = stream::iter(reads).buffer_unordered(AT_ONCE).collect().await;
        results.into_iter().collect()
    }

    async fn read_one(&self, clusters: &Api<Raw>, cloud: &str) -> anyhow::Result<()> {
        let what = || format!("Cluster {cloud:?}");
        let object = timeout(TIMEOUT, clusters.get_opt(cloud)).await;
        let object = object.with_context(|| format!("{}: no answer in {TIMEOUT:?}", what()))?;
        let Some(object) = object.with_context(what)? else {
            return Ok(());
        };
        if let Some(report) = report_of(object.json()).with_context(what)? {
            let change = Change::Report(cloud.to_owned(), Some(Arc::new(report)));
            self.changes.send(change).await;
        }
        Ok(())
    }
}

fn kubeconfig(config: &Config) -> Option<&Path> {
    config.karmada.as_ref()?.kubeconfig.as_deref()
}

/// The names of the clouds, in the order of the sites.
fn clouds(config: &Config) -> impl Iterator<Item = &str> {
    let clouds = config.sites.iter().filter(|site| site.kind == SiteKind::Cloud);
    clouds.map(|site| &*site.name)
}

/// What a Cluster says about the room of its nodes: allocatable, less what pods with and without a node request. `None` without
/// a summary, and unless it is Ready: a Cluster that Karmada cannot reach is not Ready either, and may be well.
fn report_of(object: &str) -> anyhow::Result<Option<Report>> {
    let Cluster { status } = serde_json::from_str(object).context("it is not readable")?;
    let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
    let summary = status.resource_summary;
    if ready.is_none_or(|condition| condition.status != "True") || summary.allocatable.is_empty() {
        return Ok(None);
    }
    let total = Total {
        cpu: Millicores(summary.free("cpu", Quantity::millis)),
        memory: Bytes(summary.free("memory", Quantity::units)),
        pods: summary.free("pods", Quantity::units),
    };
    Ok(Some(Report {
        room: total.into(),
        source: Source::Karmada,
        ..Report::default()
    }))
}

/// The part of a Cluster that is read.
#[derive(Deserialize)]
struct Cluster {
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    conditions: Vec<Condition>,
    resource_summary: Summary,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Summary {
    allocatable: BTreeMap<String, Quantity>,
    allocating: BTreeMap<String, Quantity>,
    allocated: BTreeMap<String, Quantity>,
}

impl Summary {
    fn free(&self, name: &str, amount: impl Fn(Quantity) -> i64) -> i64 {
        let of = |list: &BTreeMap<String, Quantity>| list.get(name).map_or(0, |quantity| amount(*quantity));
        let taken = of(&self.allocating).saturating_add(of(&self.allocated));
        of(&self.allocatable).saturating_sub(taken)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn cluster_reports_what_is_neither_allocated_nor_allocating() {
        let ready = |status: &str| json!([{"type": "CompleteAPIEnablements", "status": "True"}, {"type": "Ready", "status": status}]);
        let summary = json!({
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
            "allocated": {"cpu": "5500m", "memory": "4Gi", "pods": "30"}, "allocating": {"cpu": "1", "pods": "2"},
        });
        let report = |status: Value| report_of(&json!({"status": status}).to_string()).unwrap();
        let free = |status: Value| {
            let room = report(status).map(|report| report.room)?;
            Some(["cpu", "memory", "pods"].map(|name| room.largest(name).unwrap()))
        };
        let known = |status: &str| json!({"conditions": ready(status), "resourceSummary": summary});
        assert_eq!(free(known("True")), Some([1_500, 12 << 30, 78]));
        assert_eq!(report(known("True")).unwrap().source, Source::Karmada);
        for unknown in [
            known("Unknown"),
            known("False"),
            json!({"conditions": ready("True")}),
            json!({"resourceSummary": summary}),
            json!({}),
        ] {
            assert_eq!(free(unknown.clone()), None, "{unknown}");
        }
        let mut full = known("True");
        full["resourceSummary"]["allocating"]["cpu"] = json!("9");
        assert_eq!(free(full).unwrap()[0], 0);
        assert!(report_of(r#"{"status": {"resourceSummary": {"allocatable": {"cpu": "many"}}}}"#).is_err());
    }
}
