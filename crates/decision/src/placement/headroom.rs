//! Headroom: room that placeholder pods keep free for other pods ("Headroom" in docs/guide/decide.md). kube-scheduler evicts
//! placeholders for a pod of higher priority that fits nowhere else.

use crate::config::Config;
use crate::model::snapshot::Snapshot;
use crate::model::workload::Workload;
use edgeward_kube::node::{Node, Placeholder, Share};
use edgeward_kube::units::Micros;

/// Selects the placeholders that make room for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headroom {
    /// Selects placeholders with a lower `spec.priority` than this.
    below: i32,
    /// Selects placeholders whose termination grace period is at most this.
    grace: Micros,
}

impl Headroom {
    /// Selects the placeholders that make room for this pod; `None` if none can. They must be gone within the time that the
    /// pod may wait for terminating pods.
    pub fn of(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config) -> Option<Self> {
        if !snapshot.has_placeholders {
            return None;
        }
        let class = workload.intent.as_ref()?.slo.class;
        let below = config.headroom_below.0;
        (workload.may_preempt && workload.priority >= below).then(|| Self {
            below,
            grace: config.gating.wait_for_terminating[class],
        })
    }

    /// Whether this placeholder makes room for the pod.
    pub fn covers(self, placeholder: Placeholder) -> bool {
        placeholder.priority < self.below && placeholder.grace <= self.grace
    }

    /// The share of `node` that the selected placeholders take; `None` if there are none, which costs nothing to find out.
    pub fn on(self, node: &Node) -> Option<Share> {
        let mut covered = node.placeholders.iter().filter(|(kind, _)| self.covers(*kind));
        let (_, first) = covered.next()?;
        Some(covered.fold(first.clone(), |mut sum, (_, share)| {
            sum.add(share);
            sum
        }))
    }
}
