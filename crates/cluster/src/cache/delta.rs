//! Changes that matter to waiting pods, such as new room.

use std::collections::BTreeSet;

use crate::cache::Cache;
use edgeward_kube::node::NodeId;

/// Changes since the last call that matter to waiting pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoomDelta {
    /// Nodes that gained room, or where something that keeps pods away changed.
    pub gained: BTreeSet<NodeId>,
    /// Nodes that lost room.
    pub lost: BTreeSet<NodeId>,
    /// Whether other sites may be possible for a pod: a node, a setting, a namespace or Liqo changed.
    pub sites: bool,
    /// Whether pods came to a site or left it.
    pub pods: bool,
}

impl Cache {
    /// Takes the changes since the last call. All changes of a node count as one. Cost: a few comparisons for each node
    /// that was touched.
    pub fn take_delta(&mut self) -> RoomDelta {
        let mut delta = std::mem::take(&mut self.delta);
        for (id, before) in std::mem::take(&mut self.before) {
            match self.nodes.get(&id) {
                None => drop(delta.lost.insert(id)),
                // Pods are not placed on a node without a site.
                Some(entry) if entry.site.is_none() => {}
                Some(entry) => {
                    let now = &entry.node;
                    // Placeholders that replace other pods are headroom. Other pods that replace placeholders are not.
                    let is_headroom_other = before.placeholders != now.placeholders;
                    // A waiting pod may be waiting for pods that terminate.
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

    /// Records a change that matters on all nodes of this site: for the better, for the worse, or both.
    pub(super) fn site_changed(&mut self, site: usize, has_gained: bool, has_lost: bool) {
        let members = || self.sites[site].members.values();
        self.delta.gained.extend(members().filter(|_| has_gained));
        self.delta.lost.extend(members().filter(|_| has_lost));
    }
}
