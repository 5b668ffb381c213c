//! What becomes of pods after they were created.

use edgeward_core::words;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::instruments::metrics::count;
use crate::instruments::metrics::declaration::{Counters, Gauges, metrics};

metrics! {
    /// The metrics of backstop and loop guard.
    pub struct GuardMetrics {
        found: Gauges<1> = "edgeward_backstop_pods" ["finding"]
            "Pods that the backstop finds: Unschedulable for 30 s though another site would take them (misplaced, or undecided where they carry no decision), and bound without a decision (bound)";
        recreations: Counters<1> = "edgeward_backstop_recreations_total" ["result"]
            "Deletions of pods so that their owner creates them again, by what became of them";
        pauses: Counter = "edgeward_loop_guard_pauses_total" []
            "How often a controller's pods began to be left as they are because they fail over and over";
        paused: Gauge = "edgeward_loop_guard_paused_controllers" []
            "Controllers whose pods are left as they are at the moment because they fail over and over";
    }
}

words! {
    /// What became of the deletion of a pod: the label `result`.
    pub enum RecreationOutcome {
        /// The pod is deleted.
        Deleted = "deleted",
        /// The pod had changed meanwhile, or was gone, and is looked at again.
        Outdated = "outdated",
        /// The API server refused it, or did not answer.
        Refused = "refused",
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
        for outcome in RecreationOutcome::ALL {
            self.recreations.of([outcome.as_str().into()]);
        }
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

    /// The deletion of a pod came to this.
    pub fn recreation(&self, outcome: RecreationOutcome) {
        self.recreations.of([outcome.as_str().into()]).inc();
    }

    /// Another controller's pods are left as they are from now on.
    pub fn paused(&self) {
        self.pauses.inc();
    }

    /// Those of so many controllers are.
    pub(super) fn paused_controllers(&self, controllers: usize) {
        self.paused.set(count(controllers));
    }
}
