//! Liqo's objects, watched while its definitions are installed: where namespaces may run, how its clusters are, and the sites
//! that there are by them.
//!
//! While they are not installed, nothing is asked but which API groups are served.

mod kinds;

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use edgeward_core::config::{Config, Enabled};
use edgeward_core::engine::Change;
use edgeward_core::model::liqo as model;
use edgeward_core::model::site::SiteDefinition;
use edgeward_core::units::Micros;
use edgeward_core::wire::liqo::{self as wire, Latency};
use edgeward_core::wire::liqo_objects::{LiqoObjects, MAX_DISCOVERED};
use kube::Client;
use tokio::sync::{Notify, watch};

use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::sources::Changes;
use crate::sources::configuration::Versions;
use crate::sources::objects::{self, PERIOD, Seen};
use crate::sources::raw::Raw;
use crate::sources::watcher::Key;

pub(crate) use kinds::{Connection, ForeignCluster, NamespaceMap, NamespaceOffloading, VirtualNode};

/// The sites that were discovered; `None` until it is known whether there are any.
pub(crate) type Discovered = Option<Arc<Vec<Arc<SiteDefinition>>>>;

/// The shortest time between two publications: a namespace that is offloaded is several events.
const PAUSE: Duration = Duration::from_millis(100);

/// How long the first lists may take, until edgeward goes on without them.
const PATIENCE: Micros = Micros::from_secs(30);

/// Follows Liqo's objects as the configuration says.
pub struct Liqo {
    client: Client,
    metrics: Arc<Metrics>,
    clock: Clock,
    changes: Changes,
    discovered: watch::Sender<Discovered>,
}

impl Liqo {
    /// Nothing is known yet.
    pub fn new(client: Client, metrics: Arc<Metrics>, clock: Clock, changes: Changes) -> Self {
        Self {
            client,
            metrics,
            clock,
            changes,
            discovered: watch::Sender::default(),
        }
    }

    /// The sites that were discovered, always the newest.
    pub(crate) fn discovered(&self) -> watch::Receiver<Discovered> {
        self.discovered.subscribe()
    }

    /// Follows them, for ever. Calls `known` once it is known whether Liqo is in use, and what it says.
    pub async fn follow(self, mut versions: Versions, known: impl FnOnce()) {
        let mut known = Some(known);
        let mut told = None;
        let mut in_use = Some(versions.next().await);
        while let Some(config) = in_use {
            let same = |one: &Config, other: &Config| one.liqo == other.liqo;
            let work = self.follow_with(&config, &mut told, &mut known);
            in_use = versions.until_other(&config, same, work).await;
        }
    }

    async fn follow_with(&self, config: &Config, told: &mut Option<Facts>, known: &mut Option<impl FnOnce()>) {
        let state = &State::default();
        let patient_until = self.clock.moment().after(PATIENCE);
        let published = async {
            loop {
                let is_impatient = known.is_some() && self.clock.moment() >= patient_until;
                if let Some(objects) = state.objects(config.liqo.enabled, is_on(told), is_impatient) {
                    self.tell(objects, config, told).await;
                    if let Some(known) = known.take() {
                        known();
                    }
                }
                if config.liqo.enabled == Enabled::Never {
                    pending::<()>().await;
                }
                tokio::select! {
                    () = state.changed.notified() => tokio::time::sleep(PAUSE).await,
                    () = self.clock.reach(Some(patient_until)), if known.is_some() => {}
                }
            }
        };
        match config.liqo.enabled {
            Enabled::Never => published.await,
            Enabled::Auto | Enabled::Always => {
                tokio::join!(published, self.watch(state));
            }
        }
    }

    /// Sends what is another now.
    async fn tell(&self, objects: Option<LiqoObjects>, config: &Config, told: &mut Option<Facts>) {
        let runtime_class = config.liqo.runtime_class.as_ref().map(|name| &*name.0);
        let sites = objects.as_ref().map(|objects| objects.sites(runtime_class));
        let sites = Some(Arc::new(sites.unwrap_or_default()));
        let clusters = objects.as_ref().map_or(0, LiqoObjects::clusters);
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

    /// Asks for Liqo's kinds while one of their API groups is served, and else for the list of groups alone.
    async fn watch(&self, state: &State) {
        loop {
            match self.is_served().await {
                Ok(true) => {
                    *state.kinds() = Kinds::default();
                    tokio::select! {
                        () = self.watch_kinds(state) => {}
                        () = state.none_is_installed() => {}
                    }
                }
                Ok(false) => state.nothing_is_installed(),
                Err(error) => {
                    self.metrics.view.failure("apigroups");
                    tracing::debug!(%error, "cannot tell whether Liqo is installed");
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Everybody who is known to the API server may ask this.
    async fn is_served(&self) -> kube::Result<bool> {
        let served = self.client.list_api_groups().await?.groups;
        Ok(served.iter().any(|group| kinds::GROUPS.contains(&&*group.name)))
    }

    async fn watch_kinds(&self, state: &State) {
        let client = || self.client.clone();
        let metrics = &*self.metrics;
        tokio::join!(
            objects::follow_if_allowed("foreignclusters", client(), metrics, read_foreign_cluster, |seen| state
                .take(seen, |seen| &mut seen.foreign_clusters)),
            objects::follow_if_allowed("virtualnodes", client(), metrics, read_virtual_node, |seen| state
                .take(seen, |seen| &mut seen.virtual_nodes)),
            objects::follow_if_allowed("namespaceoffloadings", client(), metrics, read_offloading, |seen| state
                .take(seen, |seen| &mut seen.offloadings)),
            objects::follow_if_allowed("namespacemaps", client(), metrics, read_map, |seen| state
                .take(seen, |seen| &mut seen.maps)),
            objects::follow_if_allowed("connections", client(), metrics, read_connection, |seen| state
                .take(seen, |seen| &mut seen.connections)),
        );
    }
}

/// What is told of Liqo; `None` while it is not in use.
type Facts = Option<Arc<model::Liqo>>;

/// Whether Liqo is in use by what was told last.
fn is_on(told: &Option<Facts>) -> bool {
    told.as_ref().is_some_and(Option::is_some)
}

/// What is known of the objects of one kind. One that cannot be read is there, and says nothing.
#[derive(Debug, Default)]
enum Kind<T> {
    /// It was not asked yet.
    #[default]
    Pending,
    NotInstalled,
    Forbidden,
    Objects(BTreeMap<Key, Option<T>>),
}

impl<T: Clone> Kind<T> {
    fn is_pending(&self) -> bool {
        matches!(self, Kind::Pending)
    }

    fn is_listed(&self) -> bool {
        matches!(self, Kind::Objects(_))
    }

    fn iter(&self) -> impl Iterator<Item = (&Key, &T)> {
        let objects = match self {
            Kind::Objects(objects) => Some(objects),
            _ => None,
        };
        let objects = objects.into_iter().flatten();
        objects.filter_map(|(key, object)| Some((key, object.as_ref()?)))
    }

    fn all(&self) -> Vec<T> {
        self.iter().map(|(_, object)| object.clone()).collect()
    }
}

/// What is known of all kinds.
#[derive(Debug, Default)]
struct Kinds {
    foreign_clusters: Kind<wire::ForeignCluster>,
    virtual_nodes: Kind<wire::VirtualNode>,
    offloadings: Kind<wire::NamespaceOffloading>,
    maps: Kind<Arc<wire::NamespaceMap>>,
    connections: Kind<(Box<str>, Latency)>,
}

impl Kinds {
    fn is_nothing_installed(&self) -> bool {
        matches!(self.foreign_clusters, Kind::NotInstalled)
            && matches!(self.virtual_nodes, Kind::NotInstalled)
            && matches!(self.offloadings, Kind::NotInstalled)
            && matches!(self.maps, Kind::NotInstalled)
            && matches!(self.connections, Kind::NotInstalled)
    }
}

#[derive(Debug, Default)]
struct State {
    kinds: Mutex<Kinds>,
    changed: Notify,
    /// A kind is not installed.
    gone: Notify,
}

impl State {
    fn kinds(&self) -> MutexGuard<'_, Kinds> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take<T: Clone>(&self, seen: Seen<'_, Option<T>>, kind: impl FnOnce(&mut Kinds) -> &mut Kind<T>) {
        let mut kinds = self.kinds();
        let kind = kind(&mut kinds);
        match (seen, &mut *kind) {
            (Seen::NotInstalled, _) => {
                *kind = Kind::NotInstalled;
                self.gone.notify_one();
            }
            (Seen::Forbidden, _) => *kind = Kind::Forbidden,
            (Seen::Objects(all, Some(one)), Kind::Objects(known)) => match all.get(one) {
                Some(object) => drop(known.insert(one.clone(), object.clone())),
                None => drop(known.remove(one)),
            },
            (Seen::Objects(all, _), _) => *kind = Kind::Objects(all.clone()),
        }
        self.changed.notify_one();
    }

    fn nothing_is_installed(&self) {
        *self.kinds() = Kinds {
            foreign_clusters: Kind::NotInstalled,
            virtual_nodes: Kind::NotInstalled,
            offloadings: Kind::NotInstalled,
            maps: Kind::NotInstalled,
            connections: Kind::NotInstalled,
        };
        self.changed.notify_one();
    }

    /// Waits until it is known of every kind that it is not installed.
    async fn none_is_installed(&self) {
        loop {
            // Whoever is told of a change after this asks again.
            let gone = self.gone.notified();
            if self.kinds().is_nothing_installed() {
                return;
            }
            gone.await;
        }
    }

    /// All objects; `Some(None)` where Liqo is not in use, and `None` while that is not known. Connections are only where there
    /// is a network between the clusters. Rights that are taken away do not end it: then nothing is known of namespaces. For who `is_impatient`, what was not listed yet cannot be read.
    fn objects(&self, enabled: Enabled, is_on: bool, is_impatient: bool) -> Option<Option<LiqoObjects>> {
        if enabled == Enabled::Never {
            return Some(None);
        }
        let kinds = self.kinds();
        let is_pending = kinds.foreign_clusters.is_pending()
            || kinds.virtual_nodes.is_pending()
            || kinds.offloadings.is_pending()
            || kinds.maps.is_pending();
        if is_pending && !is_impatient {
            return None;
        }
        let are_namespaces_known = kinds.offloadings.is_listed() && kinds.maps.is_listed();
        let is_listed = are_namespaces_known && kinds.foreign_clusters.is_listed() && kinds.virtual_nodes.is_listed();
        let is_forbidden = matches!(kinds.foreign_clusters, Kind::Forbidden)
            || matches!(kinds.virtual_nodes, Kind::Forbidden)
            || matches!(kinds.offloadings, Kind::Forbidden)
            || matches!(kinds.maps, Kind::Forbidden);
        let goes_on = is_on && is_forbidden;
        if enabled == Enabled::Auto && !is_listed && !goes_on {
            return Some(None);
        }
        let offloadings = kinds.offloadings.iter();
        let offloadings = offloadings.map(|((namespace, _), offloading)| (namespace.as_str().into(), *offloading));
        Some(Some(LiqoObjects {
            are_namespaces_known,
            foreign_clusters: kinds.foreign_clusters.all(),
            virtual_nodes: kinds.virtual_nodes.all(),
            offloadings: offloadings.collect(),
            maps: kinds.maps.all(),
            latencies: kinds.connections.all(),
        }))
    }
}

// What an object says; nothing, where it cannot be read.

pub(crate) fn read_foreign_cluster(object: &Raw<ForeignCluster>) -> Option<wire::ForeignCluster> {
    wire::foreign_cluster(object.json())
}

pub(crate) fn read_virtual_node(object: &Raw<VirtualNode>) -> Option<wire::VirtualNode> {
    wire::virtual_node(object.json())
}

pub(crate) fn read_offloading(object: &Raw<NamespaceOffloading>) -> Option<wire::NamespaceOffloading> {
    wire::namespace_offloading(object.json())
}

pub(crate) fn read_map(object: &Raw<NamespaceMap>) -> Option<Arc<wire::NamespaceMap>> {
    wire::namespace_map(object.json()).map(Arc::new)
}

pub(crate) fn read_connection(object: &Raw<Connection>) -> Option<(Box<str>, Latency)> {
    wire::connection(object.json())
}

#[cfg(test)]
mod tests;
