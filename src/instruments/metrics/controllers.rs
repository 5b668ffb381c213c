//! What the writers to the API server do.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Description, Kind, register};

pub(super) const LEADER: Description = Description {
    name: "edgeward_leader",
    kind: Kind::Gauge,
    labels: &[],
    help: "1 while this replica holds the Lease for certain, else 0",
};
pub(super) const EVENTS: Description = Description {
    name: "edgeward_events_total",
    kind: Kind::Counter,
    labels: &["reason", "result"],
    help: "Kubernetes Events on pods, by reason and what became of them",
};

/// What became of an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventResult {
    /// It is written.
    Written,
    /// It was there: another replica wrote it, or this one before it was started again.
    Duplicate,
    /// The API server does not take it.
    Refused,
    /// It was not written: there were too many.
    Dropped,
}

impl EventResult {
    /// The value of the label `result`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Duplicate => "duplicate",
            Self::Refused => "refused",
            Self::Dropped => "dropped",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    reason: &'static str,
    result: &'static str,
}

/// The metrics of the controllers.
#[derive(Debug)]
pub struct ControllerMetrics {
    leader: Gauge,
    events: Family<EventLabels, Counter>,
}

impl ControllerMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            leader: register(registry, &LEADER, Gauge::default()),
            events: register(registry, &EVENTS, Family::default()),
        }
    }

    /// Whether this replica holds the Lease.
    pub fn leader(&self, is_held: bool) {
        self.leader.set(is_held.into());
    }

    /// An Event of this reason came to this.
    pub fn event(&self, reason: &'static str, result: EventResult) {
        let result = result.as_str();
        self.events.get_or_create(&EventLabels { reason, result }).inc();
    }
}
