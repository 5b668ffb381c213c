//! What becomes of pods after they were created.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Description, Kind, register};

pub(super) const FOUND: Description = Description {
    name: "edgeward_backstop_pods",
    kind: Kind::Gauge,
    labels: &["finding"],
    help: "Pods that the backstop finds: Unschedulable for 30 s though another site would take them (misplaced, or undecided where they carry no decision), and bound without a decision (bound)",
};
pub(super) const RECREATIONS: Description = Description {
    name: "edgeward_backstop_recreations_total",
    kind: Kind::Counter,
    labels: &["result"],
    help: "Deletions of pods so that their owner creates them anew, by what became of them",
};
pub(super) const PAUSES: Description = Description {
    name: "edgeward_loop_guard_pauses_total",
    kind: Kind::Counter,
    labels: &[],
    help: "How often a controller's pods began to be left as they are because they fail over and over",
};
pub(super) const PAUSED: Description = Description {
    name: "edgeward_loop_guard_paused_controllers",
    kind: Kind::Gauge,
    labels: &[],
    help: "Controllers whose pods are left as they are at the moment because they fail over and over",
};

/// What became of the deletion of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecreationOutcome {
    /// The pod is deleted.
    Deleted,
    /// The pod had changed meanwhile, or was gone, and is looked at again.
    Outdated,
    /// The API server refused it, or did not answer.
    Refused,
}

impl RecreationOutcome {
    /// Everything that can become of it.
    pub const ALL: [Self; 3] = [Self::Deleted, Self::Outdated, Self::Refused];

    /// The value of the label `result`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Outdated => "outdated",
            Self::Refused => "refused",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FindingLabel {
    finding: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
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

/// The metrics of backstop and loop guard.
#[derive(Debug)]
pub struct AftermathMetrics {
    found: Family<FindingLabel, Gauge<u64, AtomicU64>>,
    recreations: Family<ResultLabel, Counter>,
    pauses: Counter,
    paused: Gauge<u64, AtomicU64>,
}

impl AftermathMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            found: register(registry, &FOUND, Family::default()),
            recreations: register(registry, &RECREATIONS, Family::default()),
            pauses: register(registry, &PAUSES, Counter::default()),
            paused: register(registry, &PAUSED, Gauge::default()),
        };
        metrics.found(Found::default());
        for outcome in RecreationOutcome::ALL {
            drop(metrics.recreations.get_or_create(&ResultLabel {
                result: outcome.as_str(),
            }));
        }
        metrics
    }

    /// So many pods are found now.
    pub fn found(&self, found: Found) {
        let values = [
            ("misplaced", found.misplaced),
            ("undecided", found.undecided),
            ("bound", found.bound),
        ];
        for (finding, pods) in values {
            self.found.get_or_create(&FindingLabel { finding }).set(pods as u64);
        }
    }

    /// The deletion of a pod came to this.
    pub fn recreation(&self, outcome: RecreationOutcome) {
        let result = outcome.as_str();
        self.recreations.get_or_create(&ResultLabel { result }).inc();
    }

    /// Another controller's pods are left as they are from now on.
    pub fn paused(&self) {
        self.pauses.inc();
    }

    /// Those of so many controllers are.
    pub(super) fn paused_controllers(&self, controllers: usize) {
        self.paused.set(controllers as u64);
    }
}
