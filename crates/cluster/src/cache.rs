//! The cache of nodes and pods, as kube-scheduler has one: free room by node, queues of waiting pods, and closed sites.
//!
//! It is a plain struct that takes in decoded watch events and publishes [`Snapshot`]s. `docs/design/room.md` says what a
//! pod charges. `unbound` decides that for a pod that has no node yet.

mod contribution;
mod delta;
mod entry;
mod full_clouds;
mod measured;
mod node_entry;
mod pods;
mod queues;
mod request_sum;
mod terminations;
mod unbound;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use edgeward_decision::config::{Config, SitePolicy};
use edgeward_decision::model::link::LinkState;
use edgeward_decision::model::liqo::VIRTUAL_NODE;
use edgeward_decision::model::priority_caps::PriorityCaps;
use edgeward_decision::model::site::{SiteDefinition, SiteKind};
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_kube::node::{Node, NodeId};
use edgeward_kube::units::Moment;
use edgeward_kube::words;

pub use contribution::Contribution;
pub use delta::RoomDelta;
use entry::PodEntry;
use full_clouds::FullClouds;
use measured::Measured;
use node_entry::NodeEntry;
use queues::Queues;
use terminations::Terminations;
use unbound::UnboundPods;

words! {
    /// The kinds of objects that are watched.
    pub enum Kind {
        /// Nodes.
        Nodes = "nodes",
        /// Pods.
        Pods = "pods",
        /// Namespaces, for their opt-in label.
        Namespaces = "namespaces",
    }
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
    sites: Vec<SiteEntry>,
    nodes: HashMap<NodeId, NodeEntry>,
    names: HashMap<Arc<str>, NodeId>,
    next_node: u32,
    pods: HashMap<Arc<str>, Box<PodEntry>>,
    managed: HashSet<Arc<str>>,
    queues: Queues,
    full_clouds: FullClouds,
    measured: Measured,
    unbound_pods: UnboundPods,
    /// Texts that many pods share, such as namespaces and the uids of controllers.
    names_seen: HashSet<Arc<str>>,
    lists: BTreeMap<Kind, List>,
    faults: BTreeSet<NodeFault>,
    /// The nodes that count as young, and until when.
    young: BTreeSet<(Moment, NodeId)>,
    priority_caps: PriorityCaps,
    /// The extended resources that DeviceClasses serve.
    by_claim: BTreeSet<Box<str>>,
    /// Placeholders have a lower `spec.priority` than this.
    headroom_below: i32,
    terminations: Terminations,
    delta: RoomDelta,
    /// Nodes that were touched since the delta was last taken, as they were then.
    before: BTreeMap<NodeId, Arc<Node>>,
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
    /// The site as last published. [`Cache::publish`] brings its nodes up to date.
    site: Site,
    /// The site's nodes by name, in the order in which they are published.
    members: BTreeMap<Arc<str>, NodeId>,
    /// Whether any of the site's published nodes has placeholders.
    has_placeholders: bool,
    /// Whether the site's nodes have changed since the last publication.
    is_outdated: bool,
}

impl Cache {
    /// An empty cache with the sites of this configuration.
    pub fn new(config: &Config) -> Self {
        let mut cache = Self::default();
        cache.configure(config);
        cache
    }

    /// Applies a newer configuration. Cost: a pass over all nodes and pods if its sites are different.
    pub fn configure(&mut self, config: &Config) {
        self.measured.configure(config);
        self.priority_caps = config.priority_caps.clone();
        self.set_headroom_below(config.headroom_below.0);
        self.queues.counts_pods = config.site_policy == SitePolicy::Spread;
        self.queues.outdated = true;
        self.delta.sites = true;
        let mut both = self.sites.iter().zip(&config.sites);
        let are_same = both.all(|(entry, new)| entry.site.definition.is_same_apart_from_wan(new));
        if !are_same || self.sites.len() != config.sites.len() {
            self.set_sites(&config.sites);
        }
    }

    /// Replaces the sites, and assigns each node and pod to them.
    fn set_sites(&mut self, definitions: &[Arc<SiteDefinition>]) {
        let mut pods = std::mem::take(&mut self.pods);
        pods.iter().for_each(|(uid, pod)| self.uncount(uid, pod));
        // Reports of pods that are gone still hold at a site that stays the same.
        let place = |old: &SiteEntry| {
            definitions
                .iter()
                .position(|new| new.is_same_apart_from_wan(&old.site.definition))
        };
        let places: Vec<_> = self.sites.iter().map(place).collect();
        self.queues.closed.move_sites(&places);
        self.full_clouds.move_sites(&places);
        self.sites = definitions.iter().map(SiteEntry::new).collect();
        self.faults.clear();
        let ids: Vec<NodeId> = self.nodes.keys().copied().collect();
        for &id in &ids {
            let known = self.nodes.get(&id).filter(|entry| entry.known);
            let (site, fault) = known.map(|entry| self.site_of_node(&entry.node)).unwrap_or_default();
            self.faults.extend(fault);
            // The index of its old site now belongs to another site, or to none.
            self.nodes.entry(id).and_modify(|entry| entry.site = None);
            self.move_to(id, site);
        }
        self.unbound_pods.gained.extend(&ids);
        self.delta.gained.extend(ids);
        let is_its = |name: &str| definitions.iter().any(|definition| definition.name == *name);
        self.measured.probed.retain(|name, _| is_its(name));
        for (uid, pod) in &mut pods {
            if let Some(unbound) = &mut pod.unbound {
                unbound.site = self.site_of_placement(&unbound.placement);
                self.unbound_pods.due.insert(pod.key(uid));
            }
            self.count(uid, pod);
        }
        self.pods = pods;
    }

    /// Applies a node as it is now. Its charges come from its pods.
    pub fn apply_node(&mut self, node: Node) {
        let id = self.node_id(&node.name);
        let listed = self.list(Kind::Nodes).began;
        self.nodes.entry(id).and_modify(|entry| entry.listed = listed);
        self.change_node(id, node);
    }

    /// Sets the extended resources that DeviceClasses serve. Cost: a copy of every node.
    pub fn set_by_claim(&mut self, names: &BTreeSet<Box<str>>) {
        self.by_claim.clone_from(names);
        let known = self.nodes.iter().filter(|(_, entry)| entry.known);
        let nodes: Vec<_> = known.map(|(id, entry)| (*id, Node::clone(&entry.node))).collect();
        nodes.into_iter().for_each(|(id, node)| self.change_node(id, node));
    }

    fn change_node(&mut self, id: NodeId, mut node: Node) {
        node.allocatable.set_by_claim(&self.by_claim);
        let (site, fault) = self.site_of_node(&node);
        let Some(entry) = self.nodes.get_mut(&id) else { return };
        let is_same = |old: &Node| {
            old.labels == node.labels
                && old.taints == node.taints
                && old.allocatable == node.allocatable
                && (old.slots, old.cordoned, old.ready) == (node.slots, node.cordoned, node.ready)
        };
        if entry.known && is_same(&entry.node) {
            // Placement does not depend on annotations and addresses.
            if (&entry.node.annotations, &entry.node.addresses) != (&node.annotations, &node.addresses) {
                let known = Arc::make_mut(&mut entry.node);
                known.annotations = node.annotations;
                known.addresses = node.addresses;
                self.touch(id);
            }
            return;
        }
        self.young.extend(node.young_until.map(|until| (until, id)));
        let old = Arc::clone(&entry.node);
        entry.known = true;
        entry.node = Arc::new(Node {
            id,
            name: Arc::clone(&old.name),
            used: old.used.clone(),
            pods: old.pods,
            terminating: old.terminating.clone(),
            placeholders: old.placeholders.clone(),
            by_priority: old.by_priority.clone(),
            ..node
        });
        self.faults.retain(|fault| fault.node != old.name);
        self.faults.extend(fault);
        self.move_to(id, site);
        self.touch(id);
        self.unbound_pods.gained.insert(id);
        self.delta.gained.insert(id);
        self.delta.sites = true;
    }

    /// Removes a node that is gone. Its pods stay until they are gone themselves.
    pub fn delete_node(&mut self, name: &str) {
        let Some(&id) = self.names.get(name) else { return };
        self.faults.retain(|fault| *fault.node != *name);
        self.move_to(id, None);
        if let Some(entry) = self.nodes.get_mut(&id) {
            entry.known = false;
        }
        self.unbound_pods.lost.insert(id);
        self.delta.lost.insert(id);
        self.delta.gained.remove(&id);
        self.delta.sites = true;
        self.forget_unused(id);
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
                let gone = self.nodes.values().filter(|entry| entry.known && entry.listed != began);
                let gone: Vec<_> = gone.map(|entry| Arc::clone(&entry.node.name)).collect();
                gone.iter().for_each(|name| self.delete_node(name));
            }
            Kind::Pods => {
                let gone = self.pods.iter().filter(|(_, entry)| entry.listed != began);
                let gone: Vec<_> = gone.map(|(uid, _)| Arc::clone(uid)).collect();
                gone.iter().for_each(|uid| self.delete_pod(uid));
            }
            // Namespaces are few and small, so an entry may outlive its namespace.
            Kind::Namespaces => {}
        }
    }

    /// Whether all objects of this kind were listed once.
    pub fn is_listed(&self, kind: Kind) -> bool {
        self.list(kind).complete
    }

    /// Whether all objects of every kind were listed once.
    pub fn is_complete(&self) -> bool {
        Kind::ALL.into_iter().all(|kind| self.is_listed(kind))
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

    /// Nodes whose labels do not assign them to one site.
    pub fn faults(&self) -> impl Iterator<Item = &NodeFault> {
        self.faults.iter()
    }

    /// The number of cached pods, including finished ones.
    pub fn pods(&self) -> usize {
        self.pods.len()
    }

    /// Whether this namespace is opted in.
    pub fn is_managed(&self, namespace: &str) -> bool {
        self.managed.contains(namespace)
    }

    /// The next time at which something changes without an event.
    pub fn next_change(&self) -> Option<Moment> {
        let all = [
            self.unbound_pods.next_change(),
            self.young.first().map(|(until, _)| *until),
            self.full_clouds.next_change(),
            self.queues.closed.next_change(),
        ];
        all.into_iter().flatten().min()
    }

    /// The revision of the next [publication](Self::publish).
    pub fn next_revision(&self) -> u64 {
        self.revision + 1
    }

    /// Updates the pods that have no node yet, and returns a snapshot as of now with a new revision.
    pub fn publish(&mut self, now: Moment) -> Snapshot {
        self.update_unbound(now);
        self.recount();
        self.publish_full_clouds(now);
        self.measure(now);
        self.end_youth(now);
        self.revision += 1;
        self.queues.closed.expire(now);
        let queues = self.queues.by_site(self.sites.len());
        let mut changed = vec![];
        for (at, (entry, queues)) in self.sites.iter_mut().zip(queues).enumerate() {
            if entry.site.kind() == SiteKind::Edge {
                let of_edge = |fault: &&NodeFault| fault.sites.iter().any(|site| site == entry.site.name());
                let foreign = self.faults.iter().filter(of_edge).map(|fault| Arc::clone(&fault.node));
                entry.site.foreign = foreign.collect();
            }
            entry.publish_nodes(&self.nodes);
            entry.judge_away(now);
            entry.site.queues = queues;
            if let Some(closed) = self.queues.closed.take_changed(at) {
                let is_opened = |(namespace, uid, _): (&str, &str, &u64)| closed.get(namespace, uid).is_none();
                let has_gained = entry.site.closed.iter().any(is_opened);
                changed.push((at, has_gained, !has_gained));
                entry.site.closed = Arc::new(closed);
            }
            if let Some(pods) = self.queues.stay.take_changed(at) {
                entry.site.pods_of = Arc::new(pods);
            }
            if let Some(pods) = self.queues.labelled.take_changed(at) {
                entry.site.labelled = Arc::new(pods);
                self.delta.pods = true;
            }
        }
        changed
            .into_iter()
            .for_each(|(at, gained, lost)| self.site_changed(at, gained, lost));
        let as_of = |kind| self.last_event(kind).unwrap_or(Moment(i64::MIN));
        let (seen, measured) = (as_of(Kind::Nodes).min(as_of(Kind::Pods)), &self.measured);
        Snapshot {
            revision: self.revision,
            kubernetes_as_of: measured.telemetry.kubernetes_as_of(seen, measured.telemetry_ttl),
            sites: self.sites.iter().map(|entry| entry.site.clone()).collect(),
            has_placeholders: self.sites.iter().any(|entry| entry.has_placeholders),
            offloadings: measured.liqo.as_ref().map(|liqo| Arc::clone(&liqo.offloadings)),
            ..Snapshot::default()
        }
    }

    /// Ends the youth of nodes. From then on, anything that such a node lacks counts as lacking for good.
    fn end_youth(&mut self, now: Moment) {
        while let Some(&(until, id)) = self.young.first().filter(|(until, _)| *until <= now) {
            self.young.pop_first();
            if let Some(entry) = self
                .nodes
                .get_mut(&id)
                .filter(|entry| entry.node.young_until == Some(until))
            {
                Arc::make_mut(&mut entry.node).young_until = None;
                self.touch(id);
                self.delta.sites = true;
            }
        }
    }

    fn list(&self, kind: Kind) -> List {
        self.lists.get(&kind).copied().unwrap_or_default()
    }

    /// The id of the node with this name, which may not have been seen yet.
    fn node_id(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.names.get(name) {
            return *id;
        }
        let (id, name) = (NodeId(self.next_node), Arc::<str>::from(name));
        self.next_node += 1;
        let node = Node {
            id,
            name: Arc::clone(&name),
            ..Node::default()
        };
        let entry = NodeEntry {
            node: Arc::new(node),
            ..NodeEntry::default()
        };
        self.nodes.insert(id, entry);
        self.names.insert(name, id);
        id
    }

    /// Drops a node that is gone if no pod names it any more.
    fn forget_unused(&mut self, id: NodeId) {
        let unused = |entry: &NodeEntry| !entry.known && entry.used.pods() == 0;
        if self.nodes.get(&id).is_some_and(unused)
            && let Some(entry) = self.nodes.remove(&id)
        {
            self.names.remove(&entry.node.name);
        }
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
        let Some(entry) = self.nodes.get_mut(&id) else { return };
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
        self.queues.outdated = true;
    }

    /// Marks the published form of the node as out of date.
    fn touch(&mut self, id: NodeId) {
        let site = self.nodes.get(&id).and_then(|entry| entry.site);
        if let Some(site) = site.and_then(|at| self.sites.get_mut(at)) {
            site.is_outdated = true;
        }
    }

    /// Sets the priority below which pods without an SLO are placeholders. Cost: a pass over all pods if it changed.
    fn set_headroom_below(&mut self, headroom_below: i32) {
        if std::mem::replace(&mut self.headroom_below, headroom_below) == headroom_below {
            return;
        }
        for (&id, entry) in &mut self.nodes {
            self.before.entry(id).or_insert_with(|| Arc::clone(&entry.node));
            entry.terminating.clear();
            entry.placeholders.clear();
        }
        for (uid, pod) in &self.pods {
            if pod.unbound.is_some() {
                self.unbound_pods.due.insert(pod.key(uid));
            }
            if let Some(entry) = pod.charged.and_then(|id| self.nodes.get_mut(&id)) {
                entry.change_parts(pod, headroom_below, 1);
            }
        }
        self.nodes.values_mut().for_each(NodeEntry::refresh);
        self.unbound_pods.gained.extend(self.nodes.keys());
        self.sites.iter_mut().for_each(|site| site.is_outdated = true);
    }

    /// The shared copy of a text that many pods have.
    fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.names_seen.get(text) {
            return Arc::clone(shared);
        }
        // Once in a while, drop texts that no pod shares any more.
        if self.names_seen.len() == self.names_seen.capacity() {
            self.names_seen.retain(|text| Arc::strong_count(text) > 1);
        }
        let shared = Arc::<str>::from(text);
        self.names_seen.insert(Arc::clone(&shared));
        shared
    }
}

impl SiteEntry {
    fn new(definition: &Arc<SiteDefinition>) -> Self {
        Self {
            site: Site::new(Arc::clone(definition)),
            members: BTreeMap::new(),
            has_placeholders: false,
            is_outdated: true,
        }
    }

    fn judge_away(&mut self, now: Moment) {
        let site = &mut self.site;
        let is_healthy = site.link.is_some_and(|link| link.state == LinkState::Healthy);
        let can_be_used = is_healthy && site.usable_nodes().next().is_some();
        let is_away = site.kind() == SiteKind::Cloud && !can_be_used;
        site.away_since = is_away.then(|| site.away_since.unwrap_or(now));
    }

    fn publish_nodes(&mut self, nodes: &HashMap<NodeId, NodeEntry>) {
        if std::mem::take(&mut self.is_outdated) {
            let members = self.members.values().filter_map(|id| nodes.get(id));
            self.site.nodes = Arc::new(members.map(|entry| Arc::clone(&entry.node)).collect());
            self.has_placeholders = self.site.nodes().any(|node| !node.placeholders.is_empty());
        }
    }
}

#[cfg(test)]
mod tests;
