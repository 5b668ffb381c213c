//! Watches Liqo's objects while its CRDs are installed. They define where namespaces are offloaded, the state of
//! remote clusters, and the sites for them.
//!
//! Without the CRDs, edgeward only asks for them from time to time.

use std::sync::Arc;

use edgeward_cluster::engine::Change;
use edgeward_cluster::liqo as wire;
use edgeward_cluster::liqo::{Latency, LiqoObjects, MAX_DISCOVERED};
use edgeward_decision::config::{Config, Enabled};
use edgeward_decision::model::liqo as model;
use edgeward_decision::model::site::SiteDefinition;
use edgeward_kube::units::Micros;
use kube::Client;
use tokio::sync::watch;

use crate::config::Versions;
use crate::instruments::metrics::Metrics;
use crate::observer::Changes;
use crate::platform::clock::Clock;
use crate::watch::objects::{self, Key, Rights, Seen, Standing};
use crate::watch::raw::{Gvr, Raw};

/// The discovered sites; `None` until it is known whether there are any.
pub(crate) type Discovered = Option<Arc<Vec<Arc<SiteDefinition>>>>;

/// How long to wait for the first lists before edgeward continues without them.
const PATIENCE: Micros = Micros::from_secs(30);

/// Follows Liqo's objects according to the configuration.
pub struct Liqo {
    client: Client,
    metrics: Arc<Metrics>,
    clock: Clock,
    changes: Changes,
    /// The latest discovered sites.
    pub(crate) discovered: watch::Sender<Discovered>,
}

impl Liqo {
    /// Creates a follower that knows nothing yet.
    pub fn new(client: Client, metrics: Arc<Metrics>, clock: Clock, changes: Changes) -> Self {
        Self {
            client,
            metrics,
            clock,
            changes,
            discovered: watch::Sender::default(),
        }
    }

    /// Follows Liqo's objects. Never returns. Calls `known` once it is known whether Liqo is in use and, if so, its
    /// state, and after each change.
    pub async fn follow(self, mut versions: Versions, known: impl Fn()) {
        let mut told = None;
        let mut config = versions.next().await;
        loop {
            let same = |one: &Config, other: &Config| one.liqo == other.liqo;
            let work = self.follow_with(&config, &mut told, &known);
            config = versions.until_other(&config, same, work).await;
        }
    }

    async fn follow_with(&self, config: &Config, told: &mut Option<Facts>, known: &impl Fn()) {
        let enabled = config.liqo.enabled;
        let (kinds, mut changed) = watch::channel(Kinds::default());
        let patient_until = self.clock.moment().after(PATIENCE);
        let published = async {
            loop {
                let is_impatient = told.is_none() && self.clock.moment() >= patient_until;
                let objects = changed.borrow_and_update().objects(enabled, is_on(told), is_impatient);
                if let Some(objects) = objects {
                    self.tell(objects, config, told).await;
                    known();
                }
                tokio::select! {
                    Ok(()) = changed.changed() => {}
                    () = self.clock.reach(Some(patient_until)), if told.is_none() => {}
                }
            }
        };
        match enabled {
            Enabled::Never => published.await,
            Enabled::Auto | Enabled::Always => {
                tokio::join!(published, self.watch(&kinds));
            }
        }
    }

    /// Sends the facts and the discovered sites if they have changed.
    async fn tell(&self, objects: Option<LiqoObjects>, config: &Config, told: &mut Option<Facts>) {
        let sites = objects.as_ref().map(|objects| objects.sites(&config.liqo));
        let sites = Some(Arc::new(sites.unwrap_or_default()));
        let clusters = objects.as_ref().map_or(0, |objects| objects.clusters().len());
        let facts = objects.map(|objects| Arc::new(objects.facts(self.clock.now())));
        match (is_on(told), &facts) {
            (false, Some(_)) => {
                tracing::info!(clusters, "Liqo is in use: pods go where their namespaces are offloaded")
            }
            (true, None) => tracing::info!("Liqo is not in use any more"),
            _ => {}
        }
        if told.as_ref() != Some(&facts) {
            self.changes.send(Change::Liqo(facts.clone())).await;
            *told = Some(facts);
        }
        if *self.discovered.borrow() != sites {
            if clusters > MAX_DISCOVERED {
                tracing::warn!(clusters, "only the first {MAX_DISCOVERED} by id are sites");
            }
            self.discovered.send_replace(sites);
        }
    }

    async fn watch(&self, kinds: &watch::Sender<Kinds>) {
        let namespace_map = |json: &str| wire::namespace_map(json).map(Arc::new);
        tokio::join!(
            self.watch_kind(Gvr::FOREIGN_CLUSTERS, kinds, wire::foreign_cluster, |all| &mut all
                .foreign_clusters),
            self.watch_kind(Gvr::VIRTUAL_NODES, kinds, wire::virtual_node, |all| &mut all
                .virtual_nodes),
            self.watch_kind(Gvr::OFFLOADINGS, kinds, wire::namespace_offloading, |all| &mut all
                .offloadings),
            self.watch_kind(Gvr::NAMESPACE_MAPS, kinds, namespace_map, |all| &mut all.maps),
            self.watch_kind(Gvr::CONNECTIONS, kinds, wire::connection, |all| &mut all.connections),
        );
    }

    /// Watches a kind while its CRD is installed. An unreadable object counts as present but without content.
    async fn watch_kind<T: PartialEq>(
        &self,
        name: Gvr,
        kinds: &watch::Sender<Kinds>,
        read: impl Fn(&str) -> Option<T>,
        kind: impl Fn(&mut Kinds) -> &mut Kind<T>,
    ) {
        let read = |object: &Raw, _: Option<&_>| Some(read(object.json()));
        objects::follow(name, Rights::Optional, &self.client, &self.metrics, read, kinds, kind).await;
    }
}

/// The facts sent to the engine; `None` while Liqo is not in use.
type Facts = Option<Arc<model::Liqo>>;

/// Whether Liqo was in use according to the facts sent last.
fn is_on(told: &Option<Facts>) -> bool {
    told.as_ref().is_some_and(Option::is_some)
}

/// State of the objects of one kind.
type Kind<T> = Seen<Option<T>>;

/// State of all kinds.
#[derive(Debug, Default)]
struct Kinds {
    foreign_clusters: Kind<wire::ForeignCluster>,
    virtual_nodes: Kind<wire::VirtualNode>,
    offloadings: Kind<model::Offloading>,
    maps: Kind<Arc<wire::NamespaceMap>>,
    connections: Kind<(Box<str>, Latency)>,
}

impl Kinds {
    /// Returns all objects. `Some(None)` means that Liqo is not in use, and `None` that this is not known yet.
    /// Connections exist only where the clusters share a network. If rights are withdrawn, Liqo stays in use, but
    /// nothing is known of namespaces. With `is_impatient`, a kind that is not listed yet counts as unreadable.
    fn objects(&self, enabled: Enabled, is_on: bool, is_impatient: bool) -> Option<Option<LiqoObjects>> {
        if enabled == Enabled::Never {
            return Some(None);
        }
        let needed = [
            self.foreign_clusters.standing,
            self.virtual_nodes.standing,
            self.offloadings.standing,
            self.maps.standing,
        ];
        if needed.contains(&Standing::Pending) && !is_impatient {
            return None;
        }
        let are_listed = |standings: &[Standing]| standings.iter().all(|standing| *standing == Standing::Listed);
        let goes_on = is_on && needed.contains(&Standing::Forbidden);
        if enabled == Enabled::Auto && !are_listed(&needed) && !goes_on {
            return Some(None);
        }
        let offloading = |(key, offloading): (&Key, &Option<_>)| Some((key.0.as_str().into(), offloading.clone()?));
        Some(Some(LiqoObjects {
            are_namespaces_known: are_listed(&needed[2..]),
            foreign_clusters: readable(&self.foreign_clusters),
            virtual_nodes: readable(&self.virtual_nodes),
            offloadings: self.offloadings.objects.iter().filter_map(offloading).collect(),
            maps: readable(&self.maps),
            latencies: readable(&self.connections),
        }))
    }
}

/// The objects that could be read.
fn readable<T: Clone>(kind: &Kind<T>) -> Vec<T> {
    kind.objects.values().flatten().cloned().collect()
}

#[cfg(test)]
mod tests;
