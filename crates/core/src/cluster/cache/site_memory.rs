//! Nodes of clouds that are gone: a cloud that lost them is a candidate that is away, not one that never was.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::cache::node_entry::NodeEntry;
use crate::cluster::cache::{Cache, Kind};
use crate::config::Config;
use crate::model::node::{Node, NodeId};
use crate::model::remembered_node::RememberedNode;
use crate::model::site::SiteKind;
use crate::resources::Amounts;
use crate::units::{Micros, Moment};

/// The most nodes that are remembered as gone; of more, those that are gone longest are forgotten.
const MOST: usize = 256;

/// What is remembered of nodes that are not there.
#[derive(Debug, Default)]
pub(super) struct SiteMemory {
    /// For how long.
    keep: Micros,
    nodes: BTreeMap<Arc<str>, RememberedNode>,
    /// Whether what is published is out of date.
    changed: bool,
}

impl SiteMemory {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            keep: config.site_memory,
            ..Self::default()
        }
    }

    pub(super) fn configure(&mut self, config: &Config) {
        self.keep = config.site_memory;
    }

    /// A node of a site is there. It is another as long as it has less than it had: its labels and what it has come piece by
    /// piece when it is back.
    pub(super) fn seen(&mut self, node: &Node) {
        if self.nodes.get(&node.name).is_some_and(|gone| covers(node, &gone.node)) {
            self.nodes.remove(&node.name);
            self.changed = true;
        }
    }

    /// When the next one is forgotten because its time is over.
    pub(super) fn next_end(&self) -> Option<Moment> {
        let gone = self.nodes.values().filter_map(|node| node.gone_since);
        gone.min().map(|since| since.after(self.keep))
    }

    fn insert(&mut self, node: RememberedNode) {
        self.nodes.insert(Arc::clone(&node.node.name), node);
        self.changed = true;
        self.bound();
    }

    /// Forgets those that are gone longest, if there are too many. Those that are not known to be gone are about to be listed.
    fn bound(&mut self) {
        let gone = self
            .nodes
            .iter()
            .filter_map(|(name, node)| Some((node.gone_since?, Arc::clone(name))));
        let mut gone: Vec<_> = gone.collect();
        gone.sort_unstable();
        for (_, name) in &gone[..gone.len().saturating_sub(MOST)] {
            self.nodes.remove(name);
        }
    }
}

/// Whether the node could hold whatever it could hold before.
fn covers(node: &Node, before: &Node) -> bool {
    node.slots >= before.slots && before.allocatable.fits(&node.allocatable, &Amounts::default())
}

impl Cache {
    /// Nodes that were there when they were last seen, perhaps by another process. What of them is not listed, or with less than
    /// it had, is gone.
    pub fn remember(&mut self, nodes: &[RememberedNode]) {
        for node in nodes {
            let known = self.names.get(&node.node.name).and_then(|id| self.nodes.get(id));
            let is_there = |entry: &NodeEntry| entry.known && covers(&entry.node, &node.node);
            if !known.is_some_and(is_there) {
                self.memory.insert(node.clone());
            }
        }
    }

    /// Whether the node is there, in a cloud.
    fn is_in_a_cloud(&self, entry: &NodeEntry) -> bool {
        let is_cloud = |at: usize| self.sites[at].site.kind() == SiteKind::Cloud;
        entry.known && entry.site.is_some_and(is_cloud)
    }

    /// What is to be remembered by whoever comes after: the shapes of the nodes of all clouds, and of those that are gone.
    pub(super) fn known_shapes(&self) -> Vec<RememberedNode> {
        let there = self.nodes.values().filter(|entry| self.is_in_a_cloud(entry));
        let there = there.map(|entry| RememberedNode {
            node: Arc::new(entry.node.shape()),
            gone_since: None,
        });
        there.chain(self.memory.nodes.values().cloned()).collect()
    }

    /// This node is about to be deleted. One that was not back with all that it had is remembered as it was before.
    pub(super) fn remember_deleted(&mut self, id: NodeId) {
        let Some(entry) = self.nodes.get(&id).filter(|entry| self.is_in_a_cloud(entry)) else {
            return;
        };
        let before = self.memory.nodes.get(&entry.node.name);
        if before.is_none_or(|before| covers(&entry.node, &before.node)) {
            let node = Arc::new(entry.node.shape());
            let gone_since = Some(self.seen_gone());
            self.memory.insert(RememberedNode { node, gone_since });
        }
    }

    /// All nodes are listed: those that were there once and are not among them are gone.
    pub(super) fn remember_missing(&mut self) {
        let now = self.seen_gone();
        for node in self.memory.nodes.values_mut() {
            node.gone_since.get_or_insert(now);
        }
        self.memory.bound();
    }

    /// When what was last heard of nodes was heard.
    fn seen_gone(&self) -> Moment {
        self.last_event(Kind::Nodes).unwrap_or(Moment(i64::MIN))
    }

    /// Brings what is remembered into the sites, and forgets what is gone for too long.
    pub(super) fn publish_memory(&mut self, now: Moment) {
        let keep = self.memory.keep;
        let before = self.memory.nodes.len();
        let lasts = |node: &RememberedNode| node.gone_since.is_none_or(|since| now < since.after(keep));
        self.memory.nodes.retain(|_, node| lasts(node));
        let is_less = self.memory.nodes.len() < before;
        if !std::mem::take(&mut self.memory.changed) && !is_less {
            return;
        }
        let mut by_site = vec![vec![]; self.sites.len()];
        for node in self.memory.nodes.values() {
            if let (Some(at), _) = self.claimants(&node.node) {
                by_site[at].push(node.clone());
            }
        }
        for (entry, remembered) in self.sites.iter_mut().zip(by_site) {
            if entry.site.kind() == SiteKind::Cloud && *entry.site.remembered != remembered {
                entry.site.remembered = Arc::new(remembered);
                self.delta.other = true;
            }
        }
    }
}

#[cfg(test)]
mod tests;
