//! The [`Snapshot`] of all sites that a decision reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config::Input;
use crate::model::component::Component;
use crate::model::group::{MAX_SIZE, Members, Membership, PodGroups, UNKNOWN_SIZE};
use crate::model::link::{Bandwidth, Link, Links};
use crate::model::liqo::{ApiServerStatus, OffloadingPhase, Offloadings, REMOTE_CLUSTER_ID};
use crate::model::queue_claims::QueueClaims;
use crate::model::remote_room::FullFrom;
use crate::model::report::SiteReport;
use crate::model::scorer::Ranker;
use crate::model::scores::Profiles;
use crate::model::site::{SiteDefinition, SiteKind};
use crate::model::slo::{Class, PerClass, Slo};
use crate::model::volumes::Volumes;
use edgeward_kube::node::{Node, NodeId};
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Bytes, Micros, Millicores, Moment, Permille};

/// All sites at one moment. Immutable; many reviews read it at once.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Number of this publication.
    pub revision: u64,
    /// The moment that the Kubernetes data reflects.
    pub kubernetes_as_of: Moment,
    /// The edge site first, then the cloud sites by name.
    pub sites: Vec<Site>,
    /// Room that gated pods claim.
    pub queue_claims: Arc<QueueClaims>,
    /// The number of queue claims at each site before the plan of this snapshot was made, so that the plan and releases read one
    /// number. Empty while the learned scorer is `off`.
    pub claims_before: BTreeMap<Arc<str>, u64>,
    /// Gated pods of groups.
    pub gated_members: Arc<Members>,
    /// What Prometheus measures between sites.
    pub links: Arc<Links>,
    /// When Prometheus measured them, by query; the oldest value counts.
    pub links_as_of: BTreeMap<Input, Moment>,
    /// Sizes of PodGroups.
    pub pod_groups: Arc<PodGroups>,
    /// Where the pods' data is. `None` if no cloud can hold data, or if not everything is listed yet.
    pub volumes: Option<Arc<Volumes>>,
    /// Whether a cloud can hold data, and the lists that tell where it is are still expected.
    pub awaits_volumes: bool,
    /// Whether any node has placeholders. If none has, decisions do not look for them.
    pub has_placeholders: bool,
    /// Where Liqo lets the pods of a namespace run. `None` while Liqo is not in use.
    pub offloadings: Option<Arc<Offloadings>>,
    /// Scores of the sites by performance profile.
    pub profiles: Arc<Profiles>,
    /// The learned scorer. `None` while none is in use.
    pub scorer: Option<Arc<dyn Ranker>>,
    /// The clouds of neighbourhoods.
    pub neighbourhoods: Arc<Neighbourhoods>,
    /// The nodes that pods without a node charge, by uid. Empty unless kube-scheduler asks about pods.
    pub charged_by_unbound: Arc<BTreeMap<Arc<str>, NodeId>>,
}

/// The names of the clouds in the neighbourhood of each SloPolicy that has one, by namespace and policy.
pub type Neighbourhoods = ByNamespace<Vec<Box<str>>>;

impl Snapshot {
    /// Whether a site is closed to this controller. Cost: two searches per site.
    pub fn is_closed_to(&self, namespace: &str, uid: &str) -> bool {
        let mut sites = self.sites.iter();
        sites.any(|site| site.closed.get(namespace, uid).is_some())
    }

    /// Whether the run time of this Job is known at any site. Cost: two searches per site.
    pub fn knows_job(&self, namespace: &str, key: &str) -> bool {
        let mut sites = self.sites.iter();
        sites.any(|site| site.job_times.of_jobs.get(namespace, key).is_some())
    }

    /// Returns the phase of Liqo's offloading of this namespace to a cloud of this snapshot. kube-scheduler may take
    /// any of the site's virtual nodes, so the worst phase of the clusters behind them counts. `None` at the edge, if
    /// Liqo is not in use, or if the site has no virtual nodes. Cost: two searches, and a pass over the site's nodes
    /// unless its selector names the cluster.
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

    /// The number of pods of the group that start together, if that is stated or a PodGroup tells. Cost: a few searches.
    pub fn size_of(&self, namespace: &str, membership: &Membership) -> Option<u32> {
        if !membership.is_gang || membership.size.is_some() {
            return membership.size;
        }
        let (api, name) = membership.group.split_once('/')?;
        let size = self.pod_groups.get(api)?.get(namespace, name).copied();
        let size = size.unwrap_or(UNKNOWN_SIZE);
        Some(size).filter(|size| *size <= MAX_SIZE || *size == UNKNOWN_SIZE)
    }

    /// The number of pods of the group that are placed or have succeeded. Cost: a few searches for each site.
    pub fn placed(&self, namespace: &str, group: &str) -> u64 {
        let sites = self.sites.iter();
        let members = sites.flat_map(|site| [&site.members, &site.succeeded_members]);
        let pods = members.map(|members| members.count(namespace, group));
        pods.fold(0, u64::saturating_add)
    }

    /// RTT between a pod at one site and a pod at another. `None` if it is unknown: if the WAN was not measured within `ttl` or
    /// does not answer. Between clouds it is the one that Prometheus measures, the larger of both directions. Without one it is
    /// unknown, unless both are Liqo's, whose traffic passes through the edge.
    pub fn delay(&self, one: &Site, other: &Site, ttl: Micros, now: Moment) -> Option<Micros> {
        let inside = one.definition.inside_rtt + other.definition.inside_rtt;
        if one.name() == other.name() {
            return Some(inside);
        }
        let rtt = |from, to| Some(self.rtt(from, to, ttl, now)?.0);
        Some(inside + rtt(one, other).max(rtt(other, one))?)
    }

    /// The longest limit of the classes of the group's live pods. Cost: a few searches for each site.
    pub fn longest_limit(&self, namespace: &str, group: &str, limits: &PerClass<Micros>) -> Micros {
        let members = self.sites.iter().map(|site| &*site.members);
        let members = members.chain([&*self.gated_members]);
        let pods = members.flat_map(|members| members.of(namespace, group));
        pods.map(|(member, _)| limits[member.class]).max().unwrap_or_default()
    }

    /// Whether the Kubernetes data is older than `ttl`.
    pub fn is_stale(&self, ttl: Micros, now: Moment) -> bool {
        now.since(self.kubernetes_as_of) > ttl
    }

    /// The edge.
    pub fn edge(&self) -> Option<&Site> {
        self.sites.iter().find(|site| site.kind() == SiteKind::Edge)
    }

    /// Number of nodes that a pod's constraints are compared with.
    pub fn node_count(&self) -> usize {
        self.sites.iter().map(|site| site.nodes.len()).sum()
    }
}

/// A place where pods can run, with its current state.
#[derive(Debug, Clone)]
pub struct Site {
    /// Definition of the site.
    pub definition: Arc<SiteDefinition>,
    /// Nodes of the site, sorted by name. Snapshots whose nodes do not differ share them.
    pub nodes: Arc<Vec<Arc<Node>>>,
    /// WAN to the site. `None` at the edge, and at a cloud site whose WAN is not known.
    pub link: Option<Link>,
    /// Bandwidth from the site to others, measured to the edge or stated. `None` if it is unknown.
    pub uplink: Option<Bandwidth>,
    /// Bandwidth from others to the site, measured from the edge or stated. `None` if it is unknown.
    pub downlink: Option<Bandwidth>,
    /// Since when no pod could use this cloud, because its WAN is not healthy or it has no node that is Ready and not
    /// cordoned. `None` if the cloud can be used, or has not been observed.
    pub away_since: Option<Moment>,
    /// State of the API server of the cluster behind the site, as Liqo reports it. `None` if Liqo reports none.
    pub api_server: Option<ApiServerStatus>,
    /// Pods that are not running yet at the site.
    pub queues: Vec<QueueGroup>,
    /// Processing times by class, over the pods of all namespaces, from a Prometheus server.
    pub observed: PerClass<Option<ProcessingTime>>,
    /// The same by namespace and class.
    pub observed_in: Arc<BTreeMap<Box<str>, PerClass<Option<ProcessingTime>>>>,
    /// How long finished pods of Jobs took at the site.
    pub job_times: Arc<JobTimes>,
    /// Measured free capacity of the whole site. It is an upper bound in addition to the room on the nodes.
    pub free: Free,
    /// Controllers whose pods kube-scheduler refuses at this site, with the number of their pods that wait there. The
    /// cause is something that edgeward does not evaluate.
    pub closed: Arc<ByNamespace<u64>>,
    /// Bounds from which on the site is full, as pods there report. Sorted; no bound covers another.
    pub full: Arc<Vec<FullFrom>>,
    /// The report of the cluster behind the site, while it is fresh.
    pub report: Option<Arc<SiteReport>>,
    /// Nodes that carry the edge's selector but do not belong to the edge. Placements exclude them.
    pub foreign: Vec<Arc<str>>,
    /// Number of pods per controller at the site, bound or not. Filled only with `sitePolicy: spread`, and for pods with `spread:
    /// sites`.
    pub pods_of: Arc<ByNamespace<u64>>,
    /// Number of pods per controller at the site, bound or not, for the learned scorer. Empty while that is `off`.
    pub owned: Arc<ByNamespace<u64>>,
    /// Number of pods at the site by their labels. The labels take the place of a controller's uid.
    pub labelled: Arc<ByNamespace<u64>>,
    /// Live pods of groups at the site.
    pub members: Arc<Members>,
    /// Pods of groups that have succeeded at the site.
    pub succeeded_members: Arc<Members>,
    /// Components that run at the site, by a fleet file or by the report of its cluster.
    pub components: Arc<Vec<Component>>,
}

impl Site {
    /// Creates a site without any observed state.
    pub fn new(definition: Arc<SiteDefinition>) -> Self {
        Self {
            uplink: definition.uplink,
            downlink: definition.downlink,
            definition,
            nodes: Arc::default(),
            link: None,
            away_since: None,
            api_server: None,
            queues: vec![],
            observed: PerClass::default(),
            observed_in: Arc::default(),
            job_times: Arc::default(),
            free: Free::default(),
            closed: Arc::default(),
            full: Arc::default(),
            report: None,
            foreign: vec![],
            pods_of: Arc::default(),
            owned: Arc::default(),
            labelled: Arc::default(),
            members: Arc::default(),
            succeeded_members: Arc::default(),
            components: Arc::default(),
        }
    }

    /// Takes the bandwidth to and from the edge of this name from the measured links, or else from the definition.
    pub fn set_bandwidth(&mut self, edge: &str, links: &Links) {
        let measured = |from: &str, to: &str| links.get(from, to)?.bandwidth;
        self.uplink = measured(self.name(), edge).or(self.definition.uplink);
        self.downlink = measured(edge, self.name()).or(self.definition.downlink);
    }

    /// The node of this name. Cost: a search.
    pub fn node(&self, name: &str) -> Option<&Node> {
        let at = self.nodes.binary_search_by(|node| (*node.name).cmp(name)).ok()?;
        Some(&self.nodes[at])
    }

    /// Removes the charge of a pod from one of the site's nodes. Returns whether the node is of the site. Cost: a copy of the
    /// list of nodes.
    pub fn uncharge(&mut self, node: NodeId, request: &Amounts) -> bool {
        let Some(at) = self.nodes.iter().position(|found| found.id == node) else {
            return false;
        };
        let node = Arc::make_mut(&mut Arc::make_mut(&mut self.nodes)[at]);
        node.charges.used = node.charges.used.less(request);
        node.charges.pods -= 1;
        true
    }

    /// Iterates over the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> + Clone {
        self.nodes.iter().map(|node| &**node)
    }

    /// The nodes that are Ready and not cordoned.
    pub fn usable_nodes(&self) -> impl Iterator<Item = &Node> + Clone {
        self.nodes().filter(|node| node.state.ready && !node.state.cordoned)
    }

    /// Sums what charges leave free of one resource on the usable nodes.
    pub fn uncharged(&self, amount: fn(&Amounts) -> i64) -> i64 {
        let rest = |node: &Node| amount(&node.allocatable).saturating_sub(amount(&node.charges.used));
        let free = self.usable_nodes().map(|node| rest(node).max(0));
        free.fold(0, i64::saturating_add)
    }

    /// The WAN to this cloud, if it was measured within `ttl`.
    pub fn fresh_link(&self, ttl: Micros, now: Moment) -> Option<Link> {
        self.link.filter(|link| now.since(link.as_of) <= ttl)
    }

    /// Name of the site.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Edge or cloud.
    pub fn kind(&self) -> SiteKind {
        self.definition.kind
    }
}

/// How long pods or requests take to process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessingTime {
    /// The mean.
    pub mean: Micros,
    /// The time that 19 of 20 do not exceed. It is the mean where only that is known.
    pub p95: Micros,
}

impl ProcessingTime {
    /// A time whose distribution is unknown.
    pub fn all(mean: Micros) -> Self {
        Self { mean, p95: mean }
    }

    /// The mean and p95 of these times; `None` if there are none. Reorders them. Cost: a pass over them.
    pub fn of(times: &mut [Micros]) -> Option<Self> {
        let sum: u128 = times.iter().map(|time| u128::from(time.0)).sum();
        let mean = sum.checked_div(times.len() as u128)?;
        Some(Self {
            mean: Micros(u64::try_from(mean).unwrap_or(u64::MAX)),
            p95: Micros::p95(times)?,
        })
    }

    /// The time at the speed factor `to`, if this is the time at the speed factor `from`.
    pub fn rescaled(self, from: Permille, to: Permille) -> Self {
        let [mean, p95] = [self.mean, self.p95].map(|time| time.rescaled(from, to));
        Self { mean, p95 }
    }
}

/// Run times of the last finished pods of Jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobTime {
    /// The times.
    pub time: ProcessingTime,
    /// When the last pod finished. `None` for times of a fleet file, which do not age.
    pub as_of: Option<Moment>,
}

impl JobTime {
    /// The times at the speed factor `to`, if these are the times at the speed factor `from`.
    pub fn rescaled(self, from: Permille, to: Permille) -> Self {
        Self {
            time: self.time.rescaled(from, to),
            ..self
        }
    }
}

impl From<ProcessingTime> for JobTime {
    fn from(time: ProcessingTime) -> Self {
        Self { time, as_of: None }
    }
}

/// Run times of finished pods of Jobs at a site, where there are enough recent ones. A tenant can make its pods
/// run as long as it likes, so each time counts only within its namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobTimes {
    /// Times by namespace and class.
    pub classes: BTreeMap<Box<str>, PerClass<Option<JobTime>>>,
    /// Times by [`Pod::job_key`](edgeward_kube::pod::Pod::job_key), which are more precise than those of the class.
    pub of_jobs: ByNamespace<JobTime>,
}

/// Measured free capacity of a whole site, less everything reserved since the measurement. `None` means no limit,
/// because nothing was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Free {
    /// CPU.
    pub cpu: Option<Millicores>,
    /// Memory.
    pub memory: Option<Bytes>,
}

impl Free {
    /// The free amount of this resource, if it is measured.
    pub fn get(&self, name: &str) -> Option<i64> {
        match name {
            "cpu" => self.cpu.map(|cpu| cpu.0),
            "memory" => self.memory.map(|memory| memory.0),
            _ => None,
        }
    }

    /// Whether more CPU or memory is free than in `other`.
    pub fn has_more_than(&self, other: &Free) -> bool {
        let is_more = |name: &&str| {
            let others = other.get(name);
            others.is_some_and(|others| self.get(name).is_none_or(|some| some > others))
        };
        ["cpu", "memory"].iter().any(is_more)
    }
}

/// A value per namespace and key. The key is the uid of a controller, or the labels of pods. A pod states the uid of
/// its controller itself, so a value counts only within its namespace. The cost of a clone grows with the number of
/// namespaces. The first change in a namespace after that copies the entries of this namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByNamespace<T>(BTreeMap<Box<str>, Arc<BTreeMap<Box<str>, T>>>);

impl<T> Default for ByNamespace<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Clone> ByNamespace<T> {
    /// Returns the value of this key. Cost: two searches.
    pub fn get(&self, namespace: &str, key: &str) -> Option<&T> {
        self.0.get(namespace)?.get(key)
    }

    /// Iterates over the keys of a namespace.
    pub fn of(&self, namespace: &str) -> impl Iterator<Item = &str> {
        let keys = self.0.get(namespace).into_iter().flat_map(|keys| keys.keys());
        keys.map(|key| &**key)
    }

    /// Returns the map entry of this key, for reading or insertion.
    pub fn entry(&mut self, namespace: &str, key: &str) -> std::collections::btree_map::Entry<'_, Box<str>, T> {
        Arc::make_mut(self.0.entry(namespace.into()).or_default()).entry(key.into())
    }

    /// Removes the value of this key.
    pub fn remove(&mut self, namespace: &str, key: &str) {
        let Some(keys) = self.0.get_mut(namespace) else { return };
        Arc::make_mut(keys).remove(key);
        if keys.is_empty() {
            self.0.remove(namespace);
        }
    }

    /// Keeps the values for which `keep`, which may change them, returns true. Cost: a copy of the maps that others share.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &str, &mut T) -> bool) {
        for (namespace, keys) in &mut self.0 {
            Arc::make_mut(keys).retain(|key, value| keep(namespace, key, value));
        }
        self.0.retain(|_, keys| !keys.is_empty());
    }

    /// Maps every value.
    pub fn map<U: Clone>(&self, change: impl Fn(&T) -> U) -> ByNamespace<U> {
        let mut changed = ByNamespace::default();
        for (namespace, key, known) in self.iter() {
            changed.entry(namespace, key).insert_entry(change(known));
        }
        changed
    }

    /// Iterates over namespaces, keys and values, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &T)> {
        self.0
            .iter()
            .flat_map(|(namespace, keys)| keys.iter().map(|(key, known)| (&**namespace, &**key, known)))
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl ByNamespace<u64> {
    /// Changes a count. A count of zero is removed.
    pub fn change(&mut self, namespace: &str, key: &str, by: i64) {
        let keys = Arc::make_mut(self.0.entry(namespace.into()).or_default());
        let count = keys.entry(key.into()).or_default();
        *count = count.saturating_add_signed(by);
        if *count == 0 {
            keys.remove(key);
        }
        if keys.is_empty() {
            self.0.remove(namespace);
        }
    }
}

/// Pods of one class and priority that are not running yet at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct QueueGroup {
    /// Class of the pods.
    pub class: Class,
    /// `spec.priority` of the pods.
    #[serde(default)]
    pub priority: i32,
    /// SLO priority of the pods.
    #[serde(default = "Slo::default_priority")]
    pub slo_priority: u8,
    /// Number of pods that wait for room.
    #[serde(default)]
    pub waiting: u64,
}
