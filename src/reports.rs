//! Reads the reports of the clusters behind the sites that name a kubeconfig (`report` of a site). Every replica reads them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use edgeward_cluster::engine::Change;
use edgeward_decision::config::Config;
use edgeward_decision::model::report::{Report, SecretRef};
use futures::StreamExt as _;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use serde::Deserialize;

use crate::config::Versions;
use crate::instruments::metrics::Metrics;
use crate::observer::Changes;
use crate::watch::kubeconfig;
use crate::watch::raw::Gvr;
use crate::watch::watcher::events;

/// The name of a cluster's ClusterReport.
pub const NAME: &str = "self";

/// Pause after a failure. Then the Secret is read again.
const PAUSE: Duration = Duration::from_secs(10);

/// How long a neighbour may be silent before its connection is given up. Its watches end earlier.
const SILENCE: Duration = Duration::from_secs(40);

/// Reads the reports.
pub struct Reports {
    /// Client of the watched cluster, which has the Secrets.
    pub client: Client,
    /// edgeward's own namespace.
    pub namespace: String,
    /// The process's metrics.
    pub metrics: Arc<Metrics>,
    /// Where reports are sent.
    pub changes: Changes,
}

impl Reports {
    /// Reads the reports of all sites that have a source. Never returns.
    pub async fn follow(self, mut versions: Versions) {
        let mut config = versions.next().await;
        loop {
            let reading = sources(&config)
                .into_iter()
                .map(|(site, secret)| self.read(site, secret));
            let reading = async { drop(join_all(reading).await) };
            let same = |one: &Config, other: &Config| sources(one) == sources(other);
            config = versions.until_other(&config, same, reading).await;
        }
    }

    /// Reads the report of one site for ever. A failure is logged if it differs from the last one.
    async fn read(&self, site: &str, secret: &SecretRef) {
        let (mut last, mut last_error) = (None, String::new());
        loop {
            let Err(error) = self.watch(site, secret, &mut last, &mut last_error).await else {
                continue;
            };
            self.metrics.watch_failures.at([Gvr::REPORTS.plural]).inc();
            let error = format!("{error:#}");
            if error != last_error {
                let secret = &*secret.name;
                tracing::warn!(site, secret, error, "the report cannot be read; it is tried again");
                last_error = error;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends each new report until the watch fails. A report that is listed again is not new.
    async fn watch(
        &self,
        site: &str,
        secret: &SecretRef,
        last: &mut Option<Arc<Report>>,
        last_error: &mut String,
    ) -> anyhow::Result<()> {
        let neighbour = self.connect(secret).await?;
        let only = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let mut events = events(Gvr::REPORTS.all(&neighbour), only);
        while let Some(event) = events.next().await {
            let (Event::InitApply(object) | Event::Apply(object)) = event? else {
                continue;
            };
            let report = Arc::new(parse(object.json())?);
            last_error.clear();
            if last.as_ref() != Some(&report) {
                *last = Some(Arc::clone(&report));
                self.changes.send(Change::Report(site.to_owned(), report)).await;
            }
        }
        Ok(())
    }

    async fn connect(&self, secret: &SecretRef) -> anyhow::Result<Client> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let data = secrets.get(&secret.name).await?.data.unwrap_or_default();
        let Some(kubeconfig) = data.get(&secret.key) else {
            bail!("the Secret has no key {:?}", secret.key);
        };
        let mut config = kubeconfig::of_secret(&kubeconfig.0)?;
        config.read_timeout = Some(SILENCE);
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }
}

/// The Secret of each site with a source.
fn sources(config: &Config) -> BTreeMap<&str, &SecretRef> {
    let sites = config.sites.iter();
    let sites = sites.filter_map(|site| Some((&*site.name, site.report.as_ref()?)));
    sites
        .map(|(site, source)| (site, &source.kubeconfig_secret_ref))
        .collect()
}

fn parse(object: &str) -> anyhow::Result<Report> {
    #[derive(Deserialize)]
    struct ClusterReport {
        #[serde(default)]
        status: Report,
    }
    let object: ClusterReport = serde_json::from_str(object).context("the ClusterReport is not readable")?;
    Ok(object.status)
}
