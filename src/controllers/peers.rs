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
use crate::instruments::logs::LogLimit;
use crate::peers::{self, Membership, Near, NearPeer};
use crate::reports::site_of;

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
            config = versions.until_other(&config, same, work).await;
        }
    }

    async fn lead(&self, settings: &Settings) {
        loop {
            let error = match self.open().await {
                Ok((membership, listener)) => return self.look(settings, membership, listener).await,
                Err(error) => format!("{error:#}"),
            };
            tracing::warn!(error, "peers cannot be looked for; it is tried again");
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn open(&self) -> anyhow::Result<(Membership, TcpListener)> {
        let membership = Membership::open(&self.options.peers_certificate, self.context.clock).await?;
        let listener = crate::serve::bind(self.options.peers_listen, "listener for peers")?.0;
        Ok((membership, listener))
    }

    async fn look(&self, settings: &Settings, membership: Membership, listener: TcpListener) {
        let (sender, near) = watch::channel(Near::default());
        tracing::info!(id = membership.id().as_str(), listen = %self.options.peers_listen, "looking for peers");
        let domain = membership.domain().to_owned();
        let config = Arc::clone(&self.context.config);
        let looking = peers::Peers {
            settings: settings.clone(),
            membership,
            report: self.report.clone(),
            refines: Box::new(move |id: &ClusterId| site_of(&config.load(), id.as_str()).is_some()),
            near: sender,
            clock: self.context.clock,
            metrics: Arc::clone(&self.context.metrics),
        };
        tokio::join!(looking.run(listener), self.keep(near, &domain), self.announce());
    }

    /// Keeps the Peer objects for ever. The first failure of a series is logged; the next pass tries again.
    async fn keep(&self, mut near: watch::Receiver<Near>, domain: &str) {
        let api = Api::<Peer>::all(self.context.client.clone());
        let limit = LogLimit::new(self.context.clock);
        let (mut objects, begun) = (None, Instant::now());
        loop {
            let current = near.borrow_and_update().peers.clone();
            self.context.metrics.near_peers.set(current.len() as i64);
            let is_found = begun.elapsed() > SEARCH;
            if let Err(error) = self.write(&api, &current, domain, &mut objects, is_found).await
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

    /// Writes the statuses that changed, and deletes the objects of peers that are not near any more. `objects` holds the status
    /// of each object that this replica wrote; others are deleted once all peers are found.
    async fn write(
        &self,
        api: &Api<Peer>,
        near: &[NearPeer],
        domain: &str,
        objects: &mut Option<BTreeMap<String, Option<PeerStatus>>>,
        is_found: bool,
    ) -> kube::Result<()> {
        let objects = match objects {
            Some(objects) => objects,
            none => none.insert(listed(api).await?),
        };
        for peer in near {
            let (name, status) = (peer.id.as_str(), self.status(peer, domain));
            if objects.get(name).and_then(Option::as_ref) == Some(&status) {
                continue;
            }
            write_status(api, &Peer::new(name, PeerSpec {}), &status).await?;
            objects.insert(name.to_owned(), Some(status));
        }
        let is_gone = |name: &String| !near.iter().any(|peer| peer.id.as_str() == name);
        let gone = objects
            .iter()
            .filter(|(name, written)| is_gone(name) && (written.is_some() || is_found));
        for name in gone.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            match api.delete(&name, &DeleteParams::default()).await {
                Err(Error::Api(failure)) if failure.code == 404 => {}
                deleted => drop(deleted?),
            }
            objects.remove(&name);
        }
        Ok(())
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

    /// Makes this replica the one that the Service of peers leads to. Outside a pod there is no Service.
    async fn announce(&self) {
        let Some(address) = std::env::var("POD_IP")
            .ok()
            .and_then(|address| address.parse::<IpAddr>().ok())
        else {
            return;
        };
        let api = Api::<EndpointSlice>::namespaced(self.context.client.clone(), &self.namespace);
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": SERVICE,
                "labels": {"kubernetes.io/service-name": SERVICE, "endpointslice.kubernetes.io/managed-by": MANAGER},
            },
            "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            "ports": [{"name": "peers", "port": self.options.peers_listen.port(), "protocol": "TCP"}],
        });
        let force = PatchParams::apply(MANAGER).force();
        while let Err(error) = api.patch(SERVICE, &force, &Patch::Apply(&slice)).await {
            tracing::warn!(%error, "the EndpointSlice of peers cannot be written; it is tried again");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The objects of an earlier leader.
async fn listed(api: &Api<Peer>) -> kube::Result<BTreeMap<String, Option<PeerStatus>>> {
    let objects = api.list_metadata(&ListParams::default()).await?.items.into_iter();
    Ok(objects
        .filter_map(|object| Some((object.metadata.name?, None)))
        .collect())
}
