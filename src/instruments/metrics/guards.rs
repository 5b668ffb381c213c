//! What becomes of pods after they were created.

use crate::instruments::metrics::count;
use crate::instruments::metrics::declaration::{Gauges, metrics};

metrics! {
    /// The metrics of the backstop.
    pub struct GuardMetrics {
        found: Gauges<1> = "edgeward_backstop_pods" ["finding"]
            "Pods that the backstop finds: Unschedulable for 30 s though another site would take them (misplaced, or undecided where they carry no decision), and bound without a decision (bound)";
    }
}

/// How many pods the backstop finds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    /// Decided, stuck, and welcome at another site.
    pub misplaced: usize,
    /// The same without a decision.
    pub undecided: usize,
    /// Bound without a decision.
    pub bound: usize,
}

impl GuardMetrics {
    pub(super) fn start_at_zero(&self) {
        self.found(Found::default());
    }

    /// So many pods are found now.
    pub fn found(&self, found: Found) {
        let values = [
            ("misplaced", found.misplaced),
            ("undecided", found.undecided),
            ("bound", found.bound),
        ];
        for (finding, pods) in values {
            self.found.of([finding.into()]).set(count(pods));
        }
    }
}
