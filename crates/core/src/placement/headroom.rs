//! Headroom: room that placeholders keep for others ("Headroom" in docs/guide/decide.md). kube-scheduler evicts them for
//! a pod of higher priority that fits nowhere else.

use crate::config::Config;
use crate::model::node::{Node, Placeholder, Share};
use crate::model::snapshot::Snapshot;
use crate::model::workload::Workload;
use crate::units::Micros;

/// Which placeholders make room for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headroom {
    /// Those of a lower `spec.priority`...
    below: i32,
    /// ...whose grace is not longer.
    grace: Micros,
}

impl Headroom {
    /// Those that make room for this pod, if any do: they are gone within the time for which it may wait for terminating pods.
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

    /// Whether this is one of them.
    pub fn covers(self, placeholder: Placeholder) -> bool {
        placeholder.priority < self.below && placeholder.grace <= self.grace
    }

    /// What they take from `node`; `None` where there are none. Cost: nothing there.
    pub fn on(self, node: &Node) -> Option<Share> {
        let mut covered = node.placeholders.iter().filter(|(kind, _)| self.covers(*kind));
        let (_, first) = covered.next()?;
        Some(covered.fold(first.clone(), |mut sum, (_, share)| {
            sum.add(share);
            sum
        }))
    }
}
