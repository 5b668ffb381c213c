//! Reads the reports of the clusters behind the sites: with the kubeconfig that a site names, or from the Peer object that the
//! leader keeps. Every replica reads them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use edgeward_cluster::engine::Change;
use edgeward_decision::config::Config;
use edgeward_decision::model::report::{Report, SecretRef};
use futures::StreamExt as _;
use futures::future::join_all;
use http::Response;
use http_body_util::Limited;
use k8s_openapi::api::core::v1::Secret;
use kube::client::{ClientBuilder, DynBody};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource as _};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tower::layer::layer_fn;
use tower::util::MapResponse;

use crate::api::PeerStatus;
use crate::config::Versions;
use crate::instruments::logs::news;
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

/// The most bytes of an answer that are read. A watch ends after half a minute, in which a report changes six times.
const MAX_ANSWER: usize = 1 << 20;

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
    pub async fn follow(self, versions: Versions) {
        tokio::join!(self.follow_kubeconfigs(versions.clone()), self.follow_peers(versions));
    }

    async fn follow_kubeconfigs(&self, mut versions: Versions) {
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

    /// Reads the reports of peers that are the cluster of a Liqo site.
    async fn follow_peers(&self, mut versions: Versions) {
        let mut config = versions.next().await;
        loop {
            let looks = |config: &Config| config.enabled_peers().is_some();
            let same = |one: &Config, other: &Config| looks(one) == looks(other) && one.sites == other.sites;
            let reading = async {
                while looks(&config) {
                    let Err(error) = self.watch_peers(&config).await else {
                        continue;
                    };
                    self.metrics.watch_failures.at([Gvr::PEERS.plural]).inc();
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "peers cannot be read; they are read again"
                    );
                    tokio::time::sleep(PAUSE).await;
                }
            };
            config = versions.until_other(&config, same, reading).await;
        }
    }

    /// Sends each new report of a peer until the watch fails. As for a neighbour, a listed report only tells which is new.
    async fn watch_peers(&self, config: &Config) -> anyhow::Result<()> {
        let mut events = events(Gvr::PEERS.all(&self.client), watcher::Config::default());
        let mut last = BTreeMap::new();
        while let Some(event) = events.next().await {
            let (object, is_listed, exists) = match event? {
                Event::InitApply(object) => (object, true, true),
                Event::Apply(object) => (object, false, true),
                Event::Delete(object) => (object, false, false),
                Event::Init | Event::InitDone => continue,
            };
            let name = object.meta().name.clone().unwrap_or_default();
            let report = if exists { parse_peer(object.json()) } else { Ok(None) };
            // One that cannot be read must not hold up the others.
            let report = report.unwrap_or_else(|error| {
                tracing::warn!(peer = name, error = format!("{error:#}"), "the report cannot be read");
                None
            });
            let known = last.insert(name.clone(), report.clone());
            let site = refined_site(config, &name).filter(|_| !is_listed && known.as_ref() != Some(&report));
            if let Some(site) = site {
                let report = report.map(Arc::new);
                self.changes.send(Change::Report(site.to_owned(), report)).await;
            }
        }
        Ok(())
    }

    /// Reads the report of one site for ever. A failure is logged if it differs from the last one.
    async fn read(&self, site: &str, secret: &SecretRef) {
        let (mut last, mut last_error) = (None, String::new());
        loop {
            let Err(error) = self.watch(site, secret, &mut last, &mut last_error).await else {
                continue;
            };
            self.metrics.watch_failures.at([Gvr::REPORTS.plural]).inc();
            if let Some(error) = news(&error, &mut last_error) {
                let secret = &*secret.name;
                tracing::warn!(site, secret, error, "the report cannot be read; it is tried again");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Sends each new report until the watch fails. The age of a report in a list is unknown, so that one only tells which is
    /// new.
    async fn watch(
        &self,
        site: &str,
        secret: &SecretRef,
        last: &mut Option<Option<Report>>,
        last_error: &mut String,
    ) -> anyhow::Result<()> {
        let neighbour = self.connect(secret).await?;
        let only = watcher::Config::default().fields(&format!("metadata.name={NAME}"));
        let mut events = events(Gvr::REPORTS.all(&neighbour), only);
        while let Some(event) = events.next().await {
            let (is_listed, report) = match event? {
                Event::InitApply(object) => (true, parse(object.json())?),
                Event::Apply(object) => (false, parse(object.json())?),
                Event::Delete(_) => (false, None),
                Event::Init | Event::InitDone => continue,
            };
            last_error.clear();
            let known = last.replace(report.clone());
            if !is_listed && known.as_ref() != Some(&report) {
                let report = report.map(Arc::new);
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
        limited(kubeconfig::of_secret(&kubeconfig.0)?)
    }
}

/// A client that reads at most [`MAX_ANSWER`] bytes of an answer.
pub(crate) fn limited(mut config: kube::Config) -> anyhow::Result<Client> {
    config.read_timeout = Some(SILENCE);
    config.default_retry = false;
    let limited = |response: Response<Box<DynBody>>| response.map(|body| Limited::new(body, MAX_ANSWER));
    let limit = layer_fn(move |service| MapResponse::new(service, limited));
    Ok(ClientBuilder::try_from(config)?.with_layer(&limit).build())
}

/// The Secret of each site with a source.
fn sources(config: &Config) -> BTreeMap<&str, &SecretRef> {
    let sites = config.sites.iter();
    sites
        .filter_map(|site| Some((&*site.name, site.report.as_ref()?.kubeconfig_secret_ref.as_ref()?)))
        .collect()
}

/// The Liqo site whose remote cluster has this id.
pub fn site_of<'c>(config: &'c Config, id: &str) -> Option<&'c str> {
    let mut sites = config.sites.iter();
    sites
        .find(|site| site.remote_cluster() == Some(id))
        .map(|site| &*site.name)
}

/// The site that the report of this peer counts for: the one of its cluster, unless that names a kubeconfig.
pub fn refined_site<'c>(config: &'c Config, id: &str) -> Option<&'c str> {
    site_of(config, id).filter(|site| !sources(config).contains_key(site))
}

/// Reads the report of a Peer. `None` if it reports nothing.
fn parse_peer(object: &str) -> anyhow::Result<Option<Report>> {
    let status = status::<PeerStatus>(object).context("the Peer is not readable")?;
    Ok(status.and_then(|status| status.report?.within_limits()))
}

/// Reads the report of a ClusterReport, within its limits. `None` if nothing was reported yet, or without a time.
fn parse(object: &str) -> anyhow::Result<Option<Report>> {
    let status = status::<Report>(object).context("the ClusterReport is not readable")?;
    Ok(status.and_then(Report::within_limits))
}

/// Reads the status of an object.
fn status<T: DeserializeOwned>(object: &str) -> serde_json::Result<Option<T>> {
    #[derive(Deserialize)]
    struct Object<T> {
        status: Option<T>,
    }
    let object: Object<T> = serde_json::from_str(object)?;
    Ok(object.status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn report_is_read_within_its_limits() {
        let shape = json!({"cpu": "4", "memory": "8Gi", "pods": 9, "nodes": 1, "gpus": 1});
        let gated = json!({"batch": 1, "other": 2});
        let status = json!({"time": "2026-11-30T08:00:00Z", "gated": gated, "room": vec![shape; 99], "components": vec!["a"; 999], "traits": {"all": vec!["b"; 999]}});
        let report = parse(&json!({"status": status}).to_string()).unwrap().unwrap();
        assert_eq!((report.components.len(), report.traits.all.len()), (256, 64));
        assert_eq!(report.room.largest("cpu"), Some(4_000));
        assert_eq!(report.gated, [("batch".to_owned(), 1)].into());
        for nothing in [json!({}), json!({"status": null}), json!({"status": {"time": "today"}})] {
            assert_eq!(parse(&nothing.to_string()).unwrap(), None);
        }
        assert!(parse(r#"{"status": {"room": [{"cpu": "many"}]}}"#).is_err());
    }
}
