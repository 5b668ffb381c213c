//! Placeholders: pods of low priority that kube-scheduler evicts for others ("Headroom" in section 4 of docs/decision.md).

use crate::cluster::cache::Cache;
use crate::cluster::cache::node_entry::NodeEntry;
use crate::model::node::NodeId;

impl Cache {
    /// Pods below this priority that state no SLO are placeholders from now on. Cost: a pass over all pods, if it changed.
    pub(super) fn set_headroom_below(&mut self, headroom_below: i32) {
        if std::mem::replace(&mut self.headroom_below, headroom_below) == headroom_below {
            return;
        }
        for entry in self.nodes.values_mut() {
            entry.terminating.clear();
            entry.placeholders.clear();
        }
        for (uid, pod) in &self.pods {
            if pod.unbound.is_some() {
                self.unbound_pods.schedule_check(pod.key(uid));
            }
            if let Some(entry) = pod.charged.and_then(|id| self.nodes.get_mut(&id)) {
                entry.change_parts(pod, headroom_below, 1);
            }
        }
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        for id in ids {
            self.save_before(id);
            self.nodes.entry(id).and_modify(NodeEntry::refresh);
            self.note_placeholders(id);
            self.touch(id);
            self.unbound_pods.node_gained(id);
        }
    }

    /// What is on the node has changed.
    pub(super) fn note_placeholders(&mut self, id: NodeId) {
        match self.nodes.get(&id) {
            Some(entry) if !entry.placeholders.is_empty() => drop(self.nodes_of_placeholders.insert(id)),
            _ => drop(self.nodes_of_placeholders.remove(&id)),
        }
    }
}
