//! Held pods, and what becomes of them.

use edgeward_core::placement::verdict::Reason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Description, Kind, register};

pub(super) const HELD: Description = Description {
    name: "edgeward_held_pods",
    kind: Kind::Gauge,
    labels: &[],
    help: "Pods that carry our scheduling gate",
};
pub(super) const OLDEST: Description = Description {
    name: "edgeward_held_oldest_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &[],
    help: "Since when the pod is held that is held longest, not counting those that wait for gates of others, in seconds since the Unix epoch; 0 while none is",
};
pub(super) const CHANGES: Description = Description {
    name: "edgeward_held_pod_changes_total",
    kind: Kind::Counter,
    labels: &["reason", "result"],
    help: "Patches of held pods: releases, and new reasons to go on waiting",
};

/// What became of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The pod is changed.
    Changed,
    /// The pod had changed meanwhile, and is looked at again.
    Outdated,
    /// The API server refused it, or did not answer; it is tried again.
    Refused,
}

impl ReleaseOutcome {
    /// The value of the label `result`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Outdated => "outdated",
            Self::Refused => "refused",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ChangeLabels {
    reason: &'static str,
    result: &'static str,
}

/// The metrics of the waitlist.
#[derive(Debug)]
pub struct WaitlistMetrics {
    held: Gauge,
    oldest: Gauge,
    changes: Family<ChangeLabels, Counter>,
}

impl WaitlistMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            held: register(registry, &HELD, Gauge::default()),
            oldest: register(registry, &OLDEST, Gauge::default()),
            changes: register(registry, &CHANGES, Family::default()),
        };
        for reason in [Reason::ReleasedEdge, Reason::ReleasedCloud, Reason::ReleasedTimeout].map(Reason::as_str) {
            for result in [ReleaseOutcome::Changed, ReleaseOutcome::Refused].map(ReleaseOutcome::as_str) {
                drop(metrics.changes.get_or_create(&ChangeLabels { reason, result }));
            }
        }
        metrics
    }

    /// So many pods are held, the first of them since this second.
    pub fn held(&self, pods: usize, oldest: Option<i64>) {
        self.held.set(pods.try_into().unwrap_or(i64::MAX));
        self.oldest.set(oldest.unwrap_or(0));
    }

    /// A patch for this reason came to this.
    pub fn change(&self, reason: &'static str, outcome: ReleaseOutcome) {
        let result = outcome.as_str();
        self.changes.get_or_create(&ChangeLabels { reason, result }).inc();
    }
}
