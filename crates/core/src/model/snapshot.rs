//! The [`Snapshot`] of all sites that a decision reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::link::Link;
use super::liqo::{ApiServerStatus, OffloadingPhase, Offloadings, REMOTE_CLUSTER_ID};
use super::node::Node;
use super::queue_claims::QueueClaims;
use super::remote_room::FullFrom;
use super::scores::Profiles;
use super::site::{SiteDefinition, SiteKind};
use super::slo::{Class, PerClass, Slo};
use super::volumes::Volumes;
use crate::resources::Amounts;
use crate::units::{Bytes, Micros, Millicores, Moment};

/// All sites at one moment, immutable. Read by many reviews at once, written by none.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Counts publications.
    pub revision: u64,
    /// When the Kubernetes telemetry was true.
    pub kubernetes_as_of: Moment,
    /// The edge site first, then the cloud sites by name.
    pub sites: Vec<Site>,
    /// Room that gated pods claim.
    pub queue_claims: Arc<QueueClaims>,
    /// Where pods' data is; `None` where no cloud can have any, or not all of it is known yet.
    pub volumes: Option<Arc<Volumes>>,
    /// Whether a cloud can have data, and it will soon be known where it is.
    pub awaits_volumes: bool,
    /// Whether placeholders are on any node: where there are none, nobody looks for them.
    pub has_placeholders: bool,
    /// Where Liqo lets the pods of a namespace run; `None` while it is not in use.
    pub offloadings: Option<Arc<Offloadings>>,
    /// What performance profiles say of the sites.
    pub profiles: Arc<Profiles>,
}

impl Snapshot {
    /// Whether anything is known of the controller with this uid that decides whether there is a place for its pods; how many it has
    /// at each site only decides which. Cost: two searches for each site.
    pub fn knows_controller(&self, namespace: &str, uid: &str) -> bool {
        let is_known_at = |site: &Site| {
            site.job_times.controllers.get(namespace, uid).is_some() || site.closed.get(namespace, uid).is_some()
        };
        self.sites.iter().any(is_known_at)
    }

    /// How far Liqo has come with offloading this namespace to a cloud of this snapshot: the worst of the clusters behind its
    /// virtual nodes, any of which kube-scheduler may take. `None` where Liqo is not in use, or it has no virtual nodes. Cost:
    /// two searches, and a pass over its nodes unless its selector names the cluster.
    pub fn offloading(&self, namespace: &str, site: &Site) -> Option<OffloadingPhase> {
        let offloadings = self.offloadings.as_ref().filter(|_| site.kind() == SiteKind::Cloud)?;
        if let Some(cluster) = site.definition.remote_cluster() {
            return Some(offloadings.phase(namespace, cluster));
        }
        let clusters = site.nodes().filter_map(|node| node.labels.get(REMOTE_CLUSTER_ID));
        clusters.map(|cluster| offloadings.phase(namespace, cluster)).max()
    }

    /// Whether Liqo lets the pods of this namespace run on virtual nodes only (strategy Remote).
    pub fn is_remote(&self, namespace: &str) -> bool {
        self.offloadings
            .as_ref()
            .is_some_and(|offloadings| offloadings.is_remote(namespace))
    }

    /// Whether the Kubernetes telemetry is older than this.
    pub fn is_stale(&self, ttl: Micros, now: Moment) -> bool {
        now.since(self.kubernetes_as_of) > ttl
    }

    /// How many nodes a pod's constraints are compared with.
    pub fn node_count(&self) -> usize {
        self.sites.iter().map(|site| site.nodes.len()).sum()
    }
}

/// A place where pods can run, as it is.
#[derive(Debug, Clone)]
pub struct Site {
    /// What it is.
    pub definition: Arc<SiteDefinition>,
    /// Its nodes, sorted by name; shared between snapshots that do not differ in them.
    pub nodes: Arc<Vec<Arc<Node>>>,
    /// The WAN towards it; `None` at the edge, and at a cloud site nothing is known of.
    pub link: Option<Link>,
    /// Since when no pod could use this cloud: its WAN is not healthy, or it has no node that is Ready and not cordoned. `None` if
    /// it can be used, or has not been watched.
    pub away_since: Option<Moment>,
    /// What Liqo says of the API server of the cluster behind it; `None` where it says nothing.
    pub api_server: Option<ApiServerStatus>,
    /// Pods not yet running there.
    pub queues: Vec<QueueGroup>,
    /// Mean processing time there by class, for pods of all namespaces, as a Prometheus server states it.
    pub observed: PerClass<Option<Micros>>,
    /// How long finished pods of Jobs took there.
    pub job_times: Arc<JobTimes>,
    /// What is free there as a whole by measurement: an upper bound beside what the nodes have.
    pub free: Free,
    /// Controllers to whose pods kube-scheduler closes the site, with the number of pods that wait there for something
    /// we do not evaluate.
    pub closed: Arc<ByNamespace<u64>>,
    /// From where on it is full, by what pods there say; sorted, none of which covers another.
    pub full: Arc<Vec<FullFrom>>,
    /// The nodes that carry the edge's selector and are not of the edge: placements exclude them.
    pub foreign: Vec<Arc<str>>,
    /// How many pods a controller has there, bound or not; only where that decides anything (`sitePolicy: spread`).
    pub pods_of: Arc<ByNamespace<u64>>,
    /// How many pods are there by their labels, in the place of a controller's uid.
    pub labelled: Arc<ByNamespace<u64>>,
}

impl Site {
    /// A site of which nothing is seen yet.
    pub fn new(definition: Arc<SiteDefinition>) -> Self {
        Self {
            definition,
            nodes: Arc::default(),
            link: None,
            away_since: None,
            api_server: None,
            queues: vec![],
            observed: PerClass::default(),
            job_times: Arc::default(),
            free: Free::default(),
            closed: Arc::default(),
            full: Arc::default(),
            foreign: vec![],
            pods_of: Arc::default(),
            labelled: Arc::default(),
        }
    }

    /// Its nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> + Clone {
        self.nodes.iter().map(|node| &**node)
    }

    /// Those of its nodes that are Ready and not cordoned.
    pub fn usable_nodes(&self) -> impl Iterator<Item = &Node> + Clone {
        self.nodes().filter(|node| node.ready && !node.cordoned)
    }

    /// What charges leave free of this, summed over its usable nodes.
    pub fn uncharged(&self, amount: fn(&Amounts) -> i64) -> i64 {
        let free = |node: &Node| amount(&node.allocatable).saturating_sub(amount(&node.used)).max(0);
        self.usable_nodes().map(free).fold(0, i64::saturating_add)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Edge or cloud.
    pub fn kind(&self) -> SiteKind {
        self.definition.kind
    }
}

/// Mean run times of finished pods of Jobs at a site, where there are enough recent ones. A tenant can make these as long as it
/// likes, so each counts within its namespace only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobTimes {
    /// By namespace and class.
    pub classes: BTreeMap<Box<str>, PerClass<Option<Micros>>>,
    /// By controller, which knows better than its class.
    pub controllers: ByNamespace<Micros>,
}

/// What is free at a site as a whole, as somebody measured it, less everything reserved since; unbounded where nobody
/// did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Free {
    /// CPU.
    pub cpu: Option<Millicores>,
    /// Memory.
    pub memory: Option<Bytes>,
}

impl Free {
    /// Whether more of anything is free than by `other`.
    pub fn has_more_than(&self, other: &Free) -> bool {
        let is_more =
            |some: Option<i64>, others: Option<i64>| others.is_some_and(|others| some.is_none_or(|some| some > others));
        is_more(self.cpu.map(|cpu| cpu.0), other.cpu.map(|cpu| cpu.0))
            || is_more(self.memory.map(|memory| memory.0), other.memory.map(|memory| memory.0))
    }
}

/// Something known of the controllers of a namespace, by uid, or of its pods, by labels. A pod names its controller's uid itself, so
/// it counts within its namespace only. A copy costs as much as there are namespaces, and the first change in a namespace after it a
/// copy of that one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<Box<str>, Keyed<T>>", into = "BTreeMap<Box<str>, Keyed<T>>")]
pub struct ByNamespace<T: Clone>(BTreeMap<Box<str>, Arc<Keyed<T>>>);

type Keyed<T> = BTreeMap<Box<str>, T>;

impl<T: Clone> From<BTreeMap<Box<str>, Keyed<T>>> for ByNamespace<T> {
    fn from(plain: BTreeMap<Box<str>, Keyed<T>>) -> Self {
        let shared = plain.into_iter().map(|(namespace, keys)| (namespace, Arc::new(keys)));
        Self(shared.collect())
    }
}

impl<T: Clone> From<ByNamespace<T>> for BTreeMap<Box<str>, Keyed<T>> {
    fn from(shared: ByNamespace<T>) -> Self {
        let plain = shared.0.into_iter();
        plain
            .map(|(namespace, keys)| (namespace, Arc::unwrap_or_clone(keys)))
            .collect()
    }
}

impl<T: Clone> Default for ByNamespace<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Clone> ByNamespace<T> {
    /// What is known under this key. Cost: two searches.
    pub fn get(&self, namespace: &str, key: &str) -> Option<&T> {
        self.0.get(namespace)?.get(key)
    }

    /// The keys of a namespace.
    pub fn of(&self, namespace: &str) -> impl Iterator<Item = &str> {
        self.0
            .get(namespace)
            .into_iter()
            .flat_map(|keys| keys.keys().map(|key| &**key))
    }

    /// The entry under this key, made if it is missing.
    pub fn entry(&mut self, namespace: &str, key: &str) -> std::collections::btree_map::Entry<'_, Box<str>, T> {
        Arc::make_mut(self.0.entry(namespace.into()).or_default()).entry(key.into())
    }

    /// Forgets what is known under this key.
    pub fn remove(&mut self, namespace: &str, key: &str) {
        if let Some(keys) = self.0.get_mut(namespace) {
            Arc::make_mut(keys).remove(key);
            if keys.is_empty() {
                self.0.remove(namespace);
            }
        }
    }

    /// Forgets those of which this is not so.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.0.retain(|_, keys| {
            Arc::make_mut(keys).retain(|_, known| is_kept(known));
            !keys.is_empty()
        });
    }

    /// What is made of each, where something is.
    pub fn filter_map<U: Clone>(&self, change: impl Fn(&T) -> Option<U>) -> ByNamespace<U> {
        let mut changed = ByNamespace::default();
        for (namespace, key, known) in self.iter() {
            if let Some(known) = change(known) {
                changed.entry(namespace, key).insert_entry(known);
            }
        }
        changed
    }

    /// Namespace, key and what is known, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &T)> {
        self.0
            .iter()
            .flat_map(|(namespace, keys)| keys.iter().map(|(key, known)| (&**namespace, &**key, known)))
    }

    /// Whether nothing is known of any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ByNamespace<u64> {
    /// Changes a count, which is dropped with its last.
    pub fn change(&mut self, namespace: &str, key: &str, by: i64) {
        let count = self.entry(namespace, key).or_default();
        *count = count.saturating_add_signed(by);
        if *count == 0 {
            self.remove(namespace, key);
        }
    }
}

/// Pods of one class and priority that are not running yet at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueGroup {
    /// Their class.
    pub class: Class,
    /// Their `spec.priority`.
    #[serde(default)]
    pub priority: i32,
    /// Their SLO priority.
    #[serde(default = "Slo::default_priority")]
    pub slo_priority: u8,
    /// How many wait for room.
    #[serde(default)]
    pub waiting: u64,
}
