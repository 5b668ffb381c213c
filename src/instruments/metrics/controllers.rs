//! Metrics of the writers to the API server.

use edgeward_core::words;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Counters, register};

/// The metrics of the controllers.
#[derive(Debug)]
pub struct ControllerMetrics {
    leader: Gauge,
    events: Counters<2>,
}

words! {
    /// What became of an Event: the label `result`.
    pub enum EventResult {
        /// It is written.
        Written = "written",
        /// It was there: another replica wrote it, or this one before it was started again.
        Duplicate = "duplicate",
        /// The API server does not take it.
        Refused = "refused",
        /// It was not written: there were too many.
        Dropped = "dropped",
    }
}

impl ControllerMetrics {
    pub(super) fn new(to: &mut Registry) -> Self {
        Self {
            leader: register(to, "edgeward_leader", "1 while this replica holds the Lease, else 0"),
            events: register(to, "edgeward_events", "Kubernetes Events on pods"),
        }
    }

    /// Says whether this replica holds the Lease.
    pub fn leader(&self, is_held: bool) {
        self.leader.set(is_held.into());
    }

    /// Counts an Event of this reason.
    pub fn event(&self, reason: &'static str, result: EventResult) {
        let labels = [("reason", reason.into()), ("result", result.as_str().into())];
        self.events.get_or_create(&labels).inc();
    }
}
