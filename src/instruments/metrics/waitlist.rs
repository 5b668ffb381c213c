//! Metrics of gated pods.

use edgeward_core::placement::verdict::Reason;
use edgeward_core::words;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Counters, count, register};

/// The metrics of gated pods.
#[derive(Debug)]
pub struct WaitlistMetrics {
    held: Gauge,
    oldest: Gauge,
    changes: Counters<2>,
}

/// The label `reason` where a pod was not read, so that nothing was decided about it.
pub const UNREAD: &str = "unread";

words! {
    /// What became of a patch: the label `result`.
    pub enum ReleaseOutcome {
        /// The pod is changed.
        Changed = "changed",
        /// The pod had changed meanwhile, and is looked at again.
        Outdated = "outdated",
        /// The API server refused it, or did not answer; it is tried again.
        Refused = "refused",
    }
}

impl WaitlistMetrics {
    pub(super) fn new(to: &mut Registry) -> Self {
        let oldest = "edgeward_held_oldest_timestamp_seconds";
        let metrics = Self {
            held: register(to, "edgeward_held_pods", "Pods that carry our scheduling gate"),
            oldest: register(to, oldest, "Since when the oldest of them is held, in Unix seconds"),
            changes: register(to, "edgeward_held_pod_changes", "Patches of held pods"),
        };
        for reason in [
            Reason::EdgeFeasibleSloMet,
            Reason::CloudEdgeNoCapacity,
            Reason::ReleasedTimeout,
        ] {
            for result in [ReleaseOutcome::Changed, ReleaseOutcome::Refused] {
                metrics.changes(reason.as_str(), result);
            }
        }
        metrics
    }

    /// Shows how many pods are held, and since when the first is held.
    pub fn held(&self, pods: usize, oldest: Option<i64>) {
        self.held.set(count(pods));
        self.oldest.set(oldest.unwrap_or(0));
    }

    /// Counts a patch for this reason.
    pub fn change(&self, reason: &'static str, outcome: ReleaseOutcome) {
        self.changes(reason, outcome).inc();
    }

    fn changes(&self, reason: &'static str, outcome: ReleaseOutcome) -> Counter {
        let labels = [("reason", reason.into()), ("result", outcome.as_str().into())];
        self.changes.get_or_create_owned(&labels)
    }
}
