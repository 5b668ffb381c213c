//! The delta for pods that wait: where there may be room that there was not.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::cache::Cache;
use crate::model::node::NodeId;

/// What changed for pods that wait, since it was last asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoomDelta {
    /// Nodes that have room for more: they gained some, or something that keeps pods away from them changed.
    pub gained: BTreeSet<NodeId>,
    /// Nodes that have less room.
    pub lost: BTreeSet<NodeId>,
    /// Whether other sites may be possible for a pod: a node came, changed or went, or a setting, a namespace or Liqo changed.
    pub sites: bool,
    /// Whether pods came to a site or left it.
    pub pods: bool,
}

impl Cache {
    /// What changed for pods that wait, since this was last asked: of nodes, what became of all changes together. Cost: a few
    /// comparisons for each node that was touched.
    pub fn take_delta(&mut self) -> RoomDelta {
        let mut delta = std::mem::take(&mut self.delta);
        for (id, before) in std::mem::take(&mut self.before) {
            match self.nodes.get(&id) {
                None => drop(delta.lost.insert(id)),
                // Nobody is sent there.
                Some(entry) if entry.site.is_none() => {}
                Some(entry) => {
                    let now = &entry.node;
                    // In the place of others they are headroom; others in their place are not.
                    let is_headroom_other = before.placeholders != now.placeholders;
                    // Whoever waits may wait for those that are leaving.
                    let are_others_leaving = before.terminating != now.terminating;
                    if before.has_less_than(now) || are_others_leaving || is_headroom_other {
                        delta.gained.insert(id);
                    }
                    if now.has_less_than(&before) || is_headroom_other {
                        delta.lost.insert(id);
                    }
                }
            }
        }
        delta
    }

    /// The room of the node is about to change.
    pub(super) fn save_before(&mut self, id: NodeId) {
        if let Some(entry) = self.nodes.get(&id) {
            self.before.entry(id).or_insert_with(|| Arc::clone(&entry.node));
        }
    }

    /// Something changed that concerns all nodes of this site: it may help, or makes it worse, or both.
    pub(super) fn site_changed(&mut self, site: usize, has_gained: bool, has_lost: bool) {
        let members = || self.sites[site].members.values();
        self.delta.gained.extend(members().filter(|_| has_gained));
        self.delta.lost.extend(members().filter(|_| has_lost));
    }
}
