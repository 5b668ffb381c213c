//! Placeholders: pods of low priority that kube-scheduler evicts for others ("Headroom" in section 4 of docs/decision.md).

use crate::cluster::cache::Cache;
use crate::cluster::cache::entry::PodEntry;
use crate::cluster::cache::node_entry::NodeEntry;
use crate::cluster::cache::request_sum::RequestSum;
use crate::model::node::NodeId;
use crate::resources::Amounts;

impl Cache {
    /// Pods below this priority that state no SLO are placeholders from now on. Cost: a pass over all pods, if it changed.
    pub(super) fn set_headroom_below(&mut self, headroom_below: i32) {
        if std::mem::replace(&mut self.headroom_below, headroom_below) == headroom_below {
            return;
        }
        for entry in self.nodes.values_mut() {
            entry.terminating.clear();
            entry.placeholders.clear();
            entry.assumed.clear();
            entry.assumed_sum = RequestSum::default();
            entry.assumed_placeholders = RequestSum::default();
            entry.step = Amounts::default();
        }
        for (uid, pod) in &self.pods {
            if pod.unbound.is_some() {
                self.unbound_pods.schedule_check(pod.key(uid));
            }
            if let Some(entry) = pod.charged.and_then(|id| self.nodes.get_mut(&id)) {
                entry.charge_parts(pod, headroom_below);
                if pod.is_assumed() {
                    entry.assume(pod.key(uid), pod, headroom_below);
                }
            }
        }
        let ids: Vec<_> = self.nodes.keys().copied().collect();
        for id in ids {
            self.save_before(id);
            self.nodes.entry(id).and_modify(NodeEntry::recount);
            self.note_placeholders(id);
            self.touch(id);
        }
    }

    /// What is on the node has changed.
    pub(super) fn note_placeholders(&mut self, id: NodeId) {
        match self.nodes.get(&id) {
            Some(entry) if !entry.placeholders.is_empty() => drop(self.nodes_of_placeholders.insert(id)),
            _ => drop(self.nodes_of_placeholders.remove(&id)),
        }
    }

    /// What placeholders take from the node; of those that are only assumed there, such as `are_counted`.
    pub(super) fn placeholders(&self, entry: &NodeEntry, are_counted: impl Fn(&PodEntry) -> bool) -> RequestSum {
        let mut sum = RequestSum::default();
        entry.placeholders.values().for_each(|part| sum.merge(part));
        if sum.pods() > 0 {
            let assumed = entry
                .assumed
                .iter()
                .filter_map(|key| self.pods.get(&key.uid).map(Box::as_ref));
            let is_left_out = |pod: &&PodEntry| pod.placeholder(self.headroom_below).is_some() && !are_counted(pod);
            assumed.filter(is_left_out).for_each(|pod| sum.take(&pod.request));
        }
        sum
    }

    /// These placeholders, if kube-scheduler evicts them for the pod.
    pub(super) fn evicted_by<'p>(&self, pod: &PodEntry, placeholders: &'p RequestSum) -> Option<&'p RequestSum> {
        let evicts = placeholders.pods() > 0 && pod.evicts_placeholders(self.headroom_below);
        evicts.then_some(placeholders)
    }
}
