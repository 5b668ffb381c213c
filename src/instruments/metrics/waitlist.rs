//! Held pods, and what becomes of them.

use edgeward_core::placement::verdict::Reason;
use edgeward_core::words;
use prometheus_client::metrics::gauge::Gauge;

use crate::instruments::metrics::count;
use crate::instruments::metrics::declaration::{Counters, metrics};

metrics! {
    /// The metrics of the waitlist.
    pub struct WaitlistMetrics {
        held: Gauge = "edgeward_held_pods" []
            "Pods that carry our scheduling gate";
        oldest: Gauge = "edgeward_held_oldest_timestamp_seconds" []
            "Since when the pod is held that is held longest, not counting those that wait for gates of others or for a site, in seconds since the Unix epoch; 0 while none is";
        unread: Gauge = "edgeward_held_oversized_pods" []
            "Held pods whose constraints are more than is kept of a pod: they have no place in the release plan, and are decided when they may be held no longer";
        changes: Counters<2> = "edgeward_held_pod_changes_total" ["reason", "result"]
            "Patches of held pods: releases, and new reasons to go on waiting; `unread` where the pod could not be read, or had changed";
    }
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
    pub(super) fn start_at_zero(&self) {
        for reason in [Reason::ReleasedEdge, Reason::ReleasedCloud, Reason::ReleasedTimeout] {
            for result in [ReleaseOutcome::Changed, ReleaseOutcome::Refused] {
                self.changes.of([reason.as_str().into(), result.as_str().into()]);
            }
        }
    }

    /// So many pods are held, so many of them without a place in the plan, and the first of them since this second.
    pub fn held(&self, pods: usize, unread: usize, oldest: Option<i64>) {
        self.held.set(count(pods));
        self.unread.set(count(unread));
        self.oldest.set(oldest.unwrap_or(0));
    }

    /// A patch for this reason came to this.
    pub fn change(&self, reason: &'static str, outcome: ReleaseOutcome) {
        self.changes.of([reason.into(), outcome.as_str().into()]).inc();
    }
}
