//! The cache of nodes and pods, as kube-scheduler has one: free room by node, queues of waiting pods, and closed sites.
//!
//! It is a plain struct that takes in decoded watch events and publishes [`Snapshot`]s. `docs/design/room.md` says what a
//! pod charges. `unbound` decides that for a pod that has no node yet.

mod delta;
mod entry;
mod full_clouds;
mod link;
mod measured;
mod node_entry;
mod pods;
mod queues;
mod terminations;
mod unbound;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use edgeward_decision::config::Config;
use edgeward_decision::model::liqo::VIRTUAL_NODE;
use edgeward_decision::model::report::FRESH;
use edgeward_decision::model::site::{SiteDefinition, SiteKind};
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_kube::node::{Node, NodeId};
use edgeward_kube::units::{Micros, Moment};
use edgeward_kube::words;

pub use delta::RoomDelta;
use delta::is_same_node;
use full_clouds::Bounds;
use measured::Measured;
use node_entry::{NodeEntry, Nodes};
use pods::Pods;
use queues::Closed;

words! {
    /// The kinds of objects that are watched.
    pub enum Kind {
        /// Nodes.
        Nodes = "nodes",
        /// Pods.
        Pods = "pods",
        /// Namespaces, for their opt-in label.
        Namespaces = "namespaces",
        /// PersistentVolumeClaims.
        Claims = "persistentvolumeclaims",
        /// PersistentVolumes.
        Volumes = "persistentvolumes",
        /// StorageClasses.
        Classes = "storageclasses",
    }
}

impl Kind {
    /// The kinds that must be listed before any decision.
    pub const REQUIRED: [Self; 3] = [Self::Nodes, Self::Pods, Self::Namespaces];
    /// The kinds that tell where data is. They are watched if a cloud can have data.
    pub const OF_DATA: [Self; 3] = [Self::Claims, Self::Volumes, Self::Classes];
}

/// A node that carries the selectors of several sites, or a virtual node that carries the edge's. It belongs to the first
/// cloud of these sites, and never to the edge.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeFault {
    /// The name of the node.
    pub node: Arc<str>,
    /// The sites whose selectors it carries, in the order of the fleet.
    pub sites: Vec<String>,
}

impl fmt::Display for NodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, sites) = (&self.node, self.sites.join(" and "));
        let (kind, selectors, site) = match self.sites.len() {
            1 => ("virtual node", "selector", "no site"),
            _ => ("node", "selectors", "the first cloud of them"),
        };
        write!(f, "{kind} {node} carries the {selectors} of {sites}; ")?;
        write!(f, "it counts to {site}")
    }
}

/// Nodes and pods as the watches show them. The cost of a change is proportional to what it changes. A
/// [`publication`](Self::publish) costs a pointer for each node of a site in which something changed.
#[derive(Debug, Default)]
pub struct Cache {
    config: Arc<Config>,
    sites: Vec<SiteEntry>,
    nodes: Nodes,
    pods: Pods,
    /// The namespaces that are opted in.
    managed: HashSet<Arc<str>>,
    measured: Measured,
    lists: BTreeMap<Kind, List>,
    revision: u64,
}

/// How much is known about the objects of one kind.
#[derive(Debug, Clone, Copy, Default)]
struct List {
    /// Counts lists. An object that was not seen since the newest list began is gone when that list ends.
    began: u32,
    complete: bool,
    is_under_way: bool,
    as_of: Option<Moment>,
}

#[derive(Debug)]
struct SiteEntry {
    /// The site with what pods count there. [`Cache::publish`] brings the rest up to date.
    site: Site,
    /// The site's nodes by name, in the order in which they are published.
    members: BTreeMap<Arc<str>, NodeId>,
    /// Whether the site's nodes have changed since the last publication.
    is_outdated: bool,
    /// Whether placeholders run on the published nodes.
    has_placeholders: bool,
    closed: Closed,
    full: Bounds,
}

impl Cache {
    /// An empty cache with the sites of this configuration.
    pub fn new(config: Arc<Config>) -> Self {
        let mut cache = Self::default();
        cache.configure(config);
        cache
    }

    /// The configuration.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Applies a newer configuration. Cost: a pass over all pods; if its sites are different, also over all nodes.
    pub fn configure(&mut self, config: Arc<Config>) {
        let old = std::mem::replace(&mut self.config, Arc::clone(&config));
        if old.headroom_below.0 != config.headroom_below.0 {
            self.count_headroom();
        }
        if config.extender != old.extender {
            let unbound = self.pods.by_uid.iter().filter(|(_, pod)| pod.unbound.is_some());
            let charged = unbound.filter_map(|(uid, pod)| Some((Arc::clone(uid), pod.charged?)));
            let charged = charged.filter(|_| config.extender.enabled).collect();
            self.pods.unbound.charged = Arc::new(charged);
        }
        self.pods.need_recount = true;
        let mut both = self.sites.iter().zip(&config.sites);
        let are_same = both.all(|(entry, new)| entry.site.definition.is_same_apart_from_measurements(new));
        if !are_same || self.sites.len() != config.sites.len() {
            self.set_sites(&config.sites);
        }
    }

    /// Replaces the sites, and assigns each node and pod to them.
    fn set_sites(&mut self, definitions: &[Arc<SiteDefinition>]) {
        let mut old = std::mem::take(&mut self.sites);
        let entry = |new: &Arc<SiteDefinition>| {
            let is_it = |old: &SiteEntry| new.is_same_apart_from_measurements(&old.site.definition);
            let known = old.iter().position(is_it).map(|at| old.swap_remove(at));
            SiteEntry::new(new, known)
        };
        self.sites = definitions.iter().map(entry).collect();
        self.nodes.faults.clear();
        let ids: Vec<NodeId> = self.nodes.by_id.keys().copied().collect();
        for &id in &ids {
            let known = self.nodes.by_id.get(&id).filter(|entry| entry.known);
            let (site, fault) = known.map(|entry| self.site_of_node(&entry.node)).unwrap_or_default();
            self.nodes.faults.extend(fault);
            // The index of its old site now belongs to another site, or to none.
            self.nodes.by_id.entry(id).and_modify(|entry| entry.site = None);
            self.move_to(id, site);
        }
        self.pods.unbound.gained.extend(ids);
        let is_its = |name: &str| definitions.iter().any(|definition| definition.name == *name);
        self.measured.probed.retain(|name, _| is_its(name));
        let mut pods = std::mem::take(&mut self.pods.by_uid);
        for (uid, pod) in &mut pods {
            let key = pod.key(uid);
            if let Some(unbound) = &mut pod.unbound {
                unbound.site = self.site_of_placement(&unbound.placement);
                self.pods.unbound.due.insert(key);
            }
            self.count(pod);
        }
        self.pods.by_uid = pods;
    }

    /// Applies a node as it is now. Its charges come from its pods.
    pub fn apply_node(&mut self, node: Node) {
        let id = self.nodes.id(&node.name);
        let listed = self.list(Kind::Nodes).began;
        self.nodes.by_id.entry(id).and_modify(|entry| entry.listed = listed);
        self.change_node(id, node);
    }

    /// Sets the extended resources that DeviceClasses serve. Cost: a copy of every node.
    pub fn set_by_claim(&mut self, names: &BTreeSet<Box<str>>) {
        self.nodes.by_claim.clone_from(names);
        let known = self.nodes.by_id.iter().filter(|(_, entry)| entry.known);
        let nodes: Vec<_> = known.map(|(id, entry)| (*id, Node::clone(&entry.node))).collect();
        nodes.into_iter().for_each(|(id, node)| self.change_node(id, node));
    }

    fn change_node(&mut self, id: NodeId, mut node: Node) {
        node.allocatable.set_by_claim(&self.nodes.by_claim);
        let (site, fault) = self.site_of_node(&node);
        let Some(entry) = self.nodes.by_id.get_mut(&id) else {
            return;
        };
        if entry.known && is_same_node(&entry.node, &node) {
            // Placement does not depend on annotations and addresses.
            if entry.node.profiled != node.profiled {
                Arc::make_mut(&mut entry.node).profiled = node.profiled;
                self.touch(id);
            }
            return;
        }
        let old = Arc::clone(&entry.node);
        entry.known = true;
        entry.node = Arc::new(Node {
            id,
            name: Arc::clone(&old.name),
            charges: old.charges.clone(),
            ..node
        });
        let young_until = entry.node.state.young_until;
        self.nodes.young.extend(young_until.map(|until| (until, id)));
        self.nodes.faults.retain(|fault| fault.node != old.name);
        self.nodes.faults.extend(fault);
        self.move_to(id, site);
        self.touch(id);
        self.pods.unbound.gained.insert(id);
    }

    /// Removes a node that is gone. Its pods stay until they are gone themselves.
    pub fn delete_node(&mut self, name: &str) {
        let Some(&id) = self.nodes.ids.get(name) else { return };
        self.nodes.faults.retain(|fault| *fault.node != *name);
        self.move_to(id, None);
        if let Some(entry) = self.nodes.by_id.get_mut(&id) {
            entry.known = false;
        }
        self.pods.unbound.lost.insert(id);
        self.nodes.forget_unused(id);
    }

    /// Begins a list of all objects of this kind. Objects that it does not contain are gone when it ends.
    pub fn list_began(&mut self, kind: Kind) {
        let list = self.lists.entry(kind).or_default();
        list.began = list.began.wrapping_add(1);
        list.is_under_way = true;
    }

    /// Ends a list of all objects of this kind, and removes objects that it did not contain.
    pub fn list_ended(&mut self, kind: Kind) {
        let list = self.lists.entry(kind).or_default();
        list.complete = true;
        list.is_under_way = false;
        let began = list.began;
        match kind {
            Kind::Nodes => {
                let gone = self
                    .nodes
                    .by_id
                    .values()
                    .filter(|entry| entry.known && entry.listed != began);
                let gone: Vec<_> = gone.map(|entry| Arc::clone(&entry.node.name)).collect();
                gone.iter().for_each(|name| self.delete_node(name));
            }
            Kind::Pods => {
                let gone = self.pods.by_uid.iter().filter(|(_, entry)| entry.listed != began);
                let gone: Vec<_> = gone.map(|(uid, _)| Arc::clone(uid)).collect();
                gone.iter().for_each(|uid| self.delete_pod(uid));
            }
            // Namespaces are few and small, so an entry may outlive its namespace. `volumes` keeps the rest.
            _ => {}
        }
    }

    /// Whether all objects of this kind were listed once.
    pub fn is_listed(&self, kind: Kind) -> bool {
        self.list(kind).complete
    }

    /// Whether all objects of every required kind were listed once.
    pub fn is_complete(&self) -> bool {
        Kind::REQUIRED.into_iter().all(|kind| self.is_listed(kind))
    }

    /// Records that the watch of this kind is alive, because of an event or because the API server opened it again.
    pub fn record_event(&mut self, kind: Kind, at: Moment) {
        let list = self.lists.entry(kind).or_default();
        list.as_of = list.as_of.max(Some(at));
    }

    /// When the watch of this kind was last seen alive.
    pub fn last_event(&self, kind: Kind) -> Option<Moment> {
        self.list(kind).as_of
    }

    /// When the watch of the quietest of these kinds was last seen alive. `None` until all objects of each were listed once.
    pub fn listed_as_of(&self, kinds: [Kind; 3]) -> Option<Moment> {
        let as_of = kinds.map(|kind| self.last_event(kind).filter(|_| self.is_listed(kind)));
        as_of.into_iter().min().flatten()
    }

    /// Nodes whose labels do not assign them to one site.
    pub fn faults(&self) -> impl Iterator<Item = &NodeFault> {
        self.nodes.faults.iter()
    }

    /// The number of cached pods, including finished ones.
    pub fn pods(&self) -> usize {
        self.pods.by_uid.len()
    }

    /// Whether this namespace is opted in.
    pub fn is_managed(&self, namespace: &str) -> bool {
        self.managed.contains(namespace)
    }

    /// The next time at which something changes without an event.
    pub fn next_change(&self) -> Option<Moment> {
        let pods = self.pods.timers.first().map(|(at, _)| *at);
        let young = self.nodes.young.first().map(|(until, _)| *until);
        let sites = self.sites.iter();
        let sites = sites.flat_map(|entry| [entry.full.next_end(), entry.closed.lasting.next_end()]);
        let telemetry = self.measured.telemetry.next_expiry();
        let reports = self.measured.reports.values();
        let stale = reports.map(|(_, arrived)| arrived.after(FRESH + Micros(1))).min();
        [pods, young, telemetry, stale].into_iter().chain(sites).flatten().min()
    }

    /// The revision of the next [publication](Self::publish).
    pub fn next_revision(&self) -> u64 {
        self.revision + 1
    }

    /// Updates the pods that have no node yet, and returns a snapshot as of now with a new revision.
    pub fn publish(&mut self, now: Moment) -> Snapshot {
        self.end_timers(now);
        self.update_unbound(now);
        self.recount();
        self.measure(now);
        self.end_youth(now);
        self.revision += 1;
        for entry in &mut self.sites {
            if entry.site.kind() == SiteKind::Edge {
                let of_edge = |fault: &&NodeFault| fault.sites.iter().any(|site| site == entry.site.name());
                let foreign = self.nodes.faults.iter().filter(of_edge);
                entry.site.foreign = foreign.map(|fault| Arc::clone(&fault.node)).collect();
            }
            entry.publish_nodes(&self.nodes.by_id);
            entry.judge_away(&self.config, now);
            set(&mut entry.site.closed, entry.closed.as_of(now));
            set(&mut entry.site.full, entry.full.as_of(now));
        }
        let as_of = |kind| self.last_event(kind).unwrap_or(Moment(i64::MIN));
        let (seen, measured) = (as_of(Kind::Nodes).min(as_of(Kind::Pods)), &self.measured);
        Snapshot {
            revision: self.revision,
            kubernetes_as_of: measured.telemetry.kubernetes_as_of(seen, self.config.telemetry_ttl),
            has_placeholders: self.sites.iter().any(|entry| entry.has_placeholders),
            sites: self.sites.iter().map(|entry| entry.site.clone()).collect(),
            links: Arc::clone(measured.telemetry.links()),
            links_as_of: measured.telemetry.links_as_of(),
            charged_by_unbound: Arc::clone(&self.pods.unbound.charged),
            offloadings: measured.liqo.as_ref().map(|liqo| Arc::clone(&liqo.offloadings)),
            ..Snapshot::default()
        }
    }

    /// Ends the youth of nodes. From then on, anything that such a node lacks counts as lacking for good.
    fn end_youth(&mut self, now: Moment) {
        while let Some(&(until, id)) = self.nodes.young.first().filter(|(until, _)| *until <= now) {
            self.nodes.young.pop_first();
            let entry = self.nodes.by_id.get_mut(&id);
            if let Some(entry) = entry.filter(|entry| entry.node.state.young_until == Some(until)) {
                Arc::make_mut(&mut entry.node).state.young_until = None;
                self.touch(id);
            }
        }
    }

    fn list(&self, kind: Kind) -> List {
        self.lists.get(&kind).copied().unwrap_or_default()
    }

    /// The site of a node, and the fault in its labels. A cloud's selector assigns the node to that cloud. No virtual node
    /// belongs to the edge.
    fn site_of_node(&self, node: &Node) -> (Option<usize>, Option<NodeFault>) {
        let carries = |entry: &SiteEntry| node.labels.contain(entry.site.definition.selector());
        let matching: Vec<usize> = (0..self.sites.len()).filter(|&at| carries(&self.sites[at])).collect();
        let is_edge = |at: &&usize| self.sites[**at].site.kind() == SiteKind::Edge;
        let cloud = matching.iter().find(|at| !is_edge(at)).copied();
        let is_virtual = node.labels.contain([VIRTUAL_NODE]);
        let edge = matching.iter().find(is_edge).copied();
        let site = cloud.or(edge.filter(|_| !is_virtual));
        let is_fault = matching.len() > 1 || site.is_none() && edge.is_some();
        let fault = is_fault.then(|| NodeFault {
            node: Arc::clone(&node.name),
            sites: matching
                .iter()
                .map(|&at| self.sites[at].site.name().to_owned())
                .collect(),
        });
        (site, fault)
    }

    fn move_to(&mut self, id: NodeId, site: Option<usize>) {
        let Some(entry) = self.nodes.by_id.get_mut(&id) else {
            return;
        };
        if entry.site == site {
            return;
        }
        let name = Arc::clone(&entry.node.name);
        let left = std::mem::replace(&mut entry.site, site);
        if let Some(left) = left.and_then(|at| self.sites.get_mut(at)) {
            left.members.remove(&name);
            left.is_outdated = true;
        }
        if let Some(entered) = site.and_then(|at| self.sites.get_mut(at)) {
            entered.members.insert(name, id);
            entered.is_outdated = true;
        }
        self.pods.need_recount = true;
    }

    /// Marks the published form of the node as out of date.
    fn touch(&mut self, id: NodeId) {
        let site = self.nodes.by_id.get(&id).and_then(|entry| entry.site);
        if let Some(site) = site.and_then(|at| self.sites.get_mut(at)) {
            site.is_outdated = true;
        }
    }

    /// Counts anew which pods are placeholders. Cost: a pass over all nodes and pods.
    fn count_headroom(&mut self) {
        for entry in self.nodes.by_id.values_mut() {
            let node = Arc::make_mut(&mut entry.node);
            node.charges.terminating.clear();
            node.charges.placeholders.clear();
        }
        for (uid, pod) in &self.pods.by_uid {
            if pod.unbound.is_some() {
                self.pods.unbound.due.insert(pod.key(uid));
            }
            if let Some(entry) = pod.charged.and_then(|id| self.nodes.by_id.get_mut(&id)) {
                entry.change_parts(pod, self.config.headroom_below.0, 1);
            }
        }
        self.pods.unbound.gained.extend(self.nodes.by_id.keys());
        self.sites.iter_mut().for_each(|site| site.is_outdated = true);
    }
}

/// Replaces a part of a site if it is different. Otherwise snapshots go on sharing it.
fn set<T: PartialEq>(published: &mut Arc<T>, new: T) {
    if **published != new {
        *published = Arc::new(new);
    }
}

impl SiteEntry {
    /// A site without nodes and pods. Reports of pods that are gone still hold if the site was `known` before.
    fn new(definition: &Arc<SiteDefinition>, known: Option<SiteEntry>) -> Self {
        let (closed, full) = known.map(|known| (known.closed, known.full)).unwrap_or_default();
        Self {
            site: Site::new(Arc::clone(definition)),
            members: BTreeMap::new(),
            is_outdated: true,
            has_placeholders: false,
            closed: closed.without_pods(),
            full: full.without_witnesses(),
        }
    }

    fn judge_away(&mut self, config: &Config, now: Moment) {
        let site = &mut self.site;
        let has_link = site.link.is_some_and(|link| config.can_use(&link));
        let can_be_used = has_link && site.usable_nodes().next().is_some();
        let is_away = site.kind() == SiteKind::Cloud && !can_be_used;
        site.away_since = is_away.then(|| site.away_since.unwrap_or(now));
    }

    fn publish_nodes(&mut self, nodes: &HashMap<NodeId, NodeEntry>) {
        if std::mem::take(&mut self.is_outdated) {
            let members = self.members.values().filter_map(|id| nodes.get(id));
            self.site.nodes = Arc::new(members.map(|entry| Arc::clone(&entry.node)).collect());
            self.has_placeholders = self.site.nodes().any(|node| !node.charges.placeholders.is_empty());
        }
    }
}

#[cfg(test)]
mod tests;
