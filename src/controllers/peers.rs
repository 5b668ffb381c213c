//! Looks for peers while this replica holds the Lease: answers them, keeps a Peer object for each near one, and tells the Service
//! of peers that this replica answers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use edgeward_decision::config::{Config, Peers as Settings};
use edgeward_decision::model::report::Report;
use edgeward_peers::ClusterId;
use futures::future;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Error};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Context, write_status};
use crate::api::{Peer, PeerSpec, PeerStatus};
use crate::config::Versions;
use crate::instruments::logs::{LogLimit, news};
use crate::instruments::metrics::Metrics;
use crate::peers::{self, Membership, Near, NearPeer};
use crate::reports::{refined_site, site_of};

/// Name of the Service at which peers reach this cluster, and of its EndpointSlice.
const SERVICE: &str = "edgeward-peers";

/// The field manager of that EndpointSlice.
const MANAGER: &str = "edgeward";

/// Pause after a failure.
const PAUSE: Duration = Duration::from_secs(10);

/// The shortest time between two passes over the Peer objects.
const PASS: Duration = Duration::from_secs(1);

/// A new leader needs this long to find the peers again. Until then it removes no object.
const SEARCH: Duration = Duration::from_secs(60);

/// Where peers are answered, and with which certificate.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Directory with tls.crt, tls.key and ca.crt for the setting `peers`; read again when they change. The certificate needs
    /// the URI name spiffe://DOMAIN/cluster/ID.
    #[arg(long, value_name = "DIR", default_value = "/etc/edgeward/peers")]
    pub peers_certificate: PathBuf,

    /// Address for peers; open only on the leader, and with the setting `peers`.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:8444", value_parser = crate::serve::address)]
    pub peers_listen: SocketAddr,
}

/// Looks for peers.
pub struct Peers {
    /// What the controllers share.
    pub context: Context,
    /// The report of this cluster.
    pub report: watch::Receiver<Option<Arc<Report>>>,
    /// edgeward's own namespace, which has the Service.
    pub namespace: String,
    /// Where peers are answered.
    pub options: Options,
}

impl Peers {
    /// Looks for peers while this replica holds the Lease and the configuration enables it. Never returns.
    pub async fn run(self, mut versions: Versions) {
        let mut config = versions.next().await;
        loop {
            let same = |one: &Config, other: &Config| one.peers == other.peers;
            let work = async {
                let Some(settings) = config.enabled_peers() else {
                    return;
                };
                let leadership = &self.context.leadership;
                while leadership.during(self.lead(settings)).await.is_none() {}
            };
            let next = versions.until_other(&config, same, work).await;
            if config.enabled_peers().is_some() && next.enabled_peers().is_none() {
                self.clear().await;
            }
            config = next;
        }
    }

    /// Looks for peers for ever. A failure is logged if it differs from the last one.
    async fn lead(&self, settings: &Settings) {
        let mut last = String::new();
        loop {
            let error = match self.open().await {
                Ok((membership, listener)) => self.look(settings, membership, listener).await,
                Err(error) => error,
            };
            if let Some(error) = news(&error, &mut last) {
                tracing::warn!(error, "peers cannot be looked for; it is tried again");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn open(&self) -> anyhow::Result<(Membership, TcpListener)> {
        let membership = Membership::open(&self.options.peers_certificate, self.context.clock).await?;
        let listener = crate::serve::bind(self.options.peers_listen, "listener for peers")?.0;
        Ok((membership, listener))
    }

    /// Returns why the certificate cannot be used any more.
    async fn look(&self, settings: &Settings, membership: Membership, listener: TcpListener) -> anyhow::Error {
        let _looking = Looking(&self.context.metrics);
        let (sender, near) = watch::channel(Near::default());
        tracing::info!(id = membership.id().as_str(), listen = %self.options.peers_listen, "looking for peers");
        let domain = membership.domain().to_owned();
        let config = Arc::clone(&self.context.config);
        let looking = peers::Peers {
            settings: settings.clone(),
            membership,
            report: self.report.clone(),
            refines: Box::new(move |id: &ClusterId| refined_site(&config.load(), id.as_str()).is_some()),
            near: sender,
            clock: self.context.clock,
            metrics: Arc::clone(&self.context.metrics),
        };
        tokio::select! {
            error = looking.run(listener) => error,
            never = self.keep(near, &domain) => never,
            never = self.announce() => never,
        }
    }

    /// Keeps the Peer objects for ever. The first failure of a series is logged; the next pass tries again.
    async fn keep(&self, mut near: watch::Receiver<Near>, domain: &str) -> ! {
        let api = Api::<Peer>::all(self.context.client.clone());
        let limit = LogLimit::new(self.context.clock);
        let (mut objects, begun) = (None, Instant::now());
        loop {
            let current = near.borrow_and_update().peers.clone();
            self.context.metrics.near_peers.set(current.len() as i64);
            let is_found = begun.elapsed() > SEARCH;
            let statuses = current
                .iter()
                .map(|peer| (peer.id.as_str().to_owned(), self.status(peer, domain)));
            if let Err(error) = write(&api, &statuses.collect(), &mut objects, is_found).await
                && let Some(held_back) = limit.due("peers")
            {
                tracing::warn!(%error, held_back, "Peer objects cannot be kept");
            }
            tokio::time::sleep(PASS).await;
            if near.changed().await.is_err() {
                future::pending::<()>().await;
            }
        }
    }

    /// Removes what this replica keeps, after the configuration was changed. The leader does it.
    async fn clear(&self) {
        let api = Api::<Peer>::all(self.context.client.clone());
        let clearing = async {
            for name in listed(&api).await?.keys() {
                delete(&api, name).await?;
            }
            match own_address() {
                Some(address) => self.write_slice(address, false).await,
                None => Ok(()),
            }
        };
        let cleared = tokio::time::timeout(PAUSE, self.context.leadership.during(clearing)).await;
        if let Ok(Some(Err(error))) = cleared {
            tracing::warn!(%error, "Peer objects and the EndpointSlice of peers are not removed");
        }
    }

    fn status(&self, peer: &NearPeer, domain: &str) -> PeerStatus {
        let config = self.context.config.load();
        PeerStatus {
            identity: peer.id.uri(domain),
            address: peer.address.to_string(),
            rtt_ms: Some((peer.rtt.as_millis_f64() * 10.0).round() / 10.0),
            seen: Some(peer.seen.strftime("%FT%TZ").to_string()),
            site: site_of(&config, peer.id.as_str()).map(ToOwned::to_owned),
            room: peer.report.as_ref().map(|report| report.room.summary()),
            report: peer.report.as_deref().cloned(),
        }
    }

    /// Makes this replica the one that the Service of peers leads to, again and again. Outside a pod there is no Service.
    async fn announce(&self) -> ! {
        let address = match own_address() {
            Some(address) => address,
            None => future::pending().await,
        };
        loop {
            let pause = match self.write_slice(address, true).await {
                Ok(()) => SEARCH,
                Err(error) => {
                    tracing::warn!(%error, "the EndpointSlice of peers cannot be written; it is tried again");
                    PAUSE
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    async fn write_slice(&self, address: IpAddr, is_listening: bool) -> kube::Result<()> {
        let api = Api::<EndpointSlice>::namespaced(self.context.client.clone(), &self.namespace);
        let endpoint = json!({"addresses": [address], "conditions": {"ready": true}});
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": SERVICE,
                "labels": {"kubernetes.io/service-name": SERVICE, "endpointslice.kubernetes.io/managed-by": MANAGER},
            },
            "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": if is_listening { json!([endpoint]) } else { json!([]) },
            "ports": [{"name": "peers", "port": self.options.peers_listen.port(), "protocol": "TCP"}],
        });
        let force = PatchParams::apply(MANAGER).force();
        api.patch(SERVICE, &force, &Patch::Apply(&slice)).await.map(drop)
    }
}

/// Once nothing is looked for any more, no peer counts as near.
struct Looking<'m>(&'m Metrics);

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.0.near_peers.set(0);
    }
}

/// Writes the statuses that changed, and deletes the objects of peers that are not near any more. `objects` holds the status of
/// each object that this replica wrote; others are deleted once all peers are found. An object that the API server refuses does
/// not hold up the others.
async fn write(
    api: &Api<Peer>,
    near: &BTreeMap<String, PeerStatus>,
    objects: &mut Option<BTreeMap<String, Option<PeerStatus>>>,
    is_found: bool,
) -> kube::Result<()> {
    let objects = match objects {
        Some(objects) => objects,
        none => none.insert(listed(api).await?),
    };
    let mut refused = Ok(());
    for (name, status) in near {
        let written = objects.entry(name.clone()).or_default();
        if written.as_ref() == Some(status) {
            continue;
        }
        match write_status(api, &Peer::new(name, PeerSpec {}), status).await {
            Ok(()) => *written = Some(status.clone()),
            Err(error @ Error::Api(_)) => refused = Err(error),
            Err(error) => return Err(error),
        }
    }
    let gone = objects
        .iter()
        .filter(|(name, written)| !near.contains_key(*name) && (written.is_some() || is_found));
    for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
        delete(api, &name).await?;
        objects.remove(&name);
    }
    refused
}

/// The address of this pod, which `deploy/peers` puts into the environment.
fn own_address() -> Option<IpAddr> {
    std::env::var("POD_IP").ok()?.parse().ok()
}

async fn delete(api: &Api<Peer>, name: &str) -> kube::Result<()> {
    match api.delete(name, &DeleteParams::default()).await {
        Err(Error::Api(failure)) if failure.code == 404 => Ok(()),
        deleted => deleted.map(drop),
    }
}

/// The objects of an earlier leader.
async fn listed(api: &Api<Peer>) -> kube::Result<BTreeMap<String, Option<PeerStatus>>> {
    let objects = api.list_metadata(&ListParams::default()).await?.items.into_iter();
    Ok(objects
        .filter_map(|object| Some((object.metadata.name?, None)))
        .collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::testkit::{api_server, failure};

    #[tokio::test]
    async fn refused_object_holds_up_no_other() {
        let calls = Arc::new(Mutex::new(vec![]));
        let seen = Arc::clone(&calls);
        let client = api_server(move |method, uri, _| {
            let path = uri.path().rsplit("/peers").next().unwrap_or_default().to_owned();
            seen.lock().unwrap().push(format!("{method} {path}"));
            let listed = json!({"metadata": {}, "items": [{"metadata": {"name": "left"}}]});
            let answer = match &*path {
                "" => (200, listed),
                "/bad/status" => failure(422, "status.report.time is no date"),
                _ => (200, json!({"metadata": {"name": "any"}, "spec": {}})),
            };
            async move { answer }
        });
        let (api, mut objects) = (Api::all(client), None);
        let status = PeerStatus::default();
        let near = ["bad", "good"].map(|name| (name.to_owned(), status.clone())).into();
        for (near, is_found, expected) in [
            (&near, false, vec!["GET ", "PATCH /bad/status", "PATCH /good/status"]),
            (&near, true, vec!["PATCH /bad/status", "DELETE /left"]),
            (&BTreeMap::new(), true, vec!["DELETE /bad", "DELETE /good"]),
        ] {
            let wrote = write(&api, near, &mut objects, is_found).await;
            assert_eq!(wrote.is_err(), near.contains_key("bad"));
            assert_eq!(std::mem::take(&mut *calls.lock().unwrap()), expected);
        }
    }
}
