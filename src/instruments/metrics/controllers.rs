//! What the writers to the API server do.

use edgeward_core::words;
use prometheus_client::metrics::gauge::Gauge;

use crate::instruments::metrics::declaration::{Counters, metrics};

metrics! {
    /// The metrics of the controllers.
    pub struct ControllerMetrics {
        leader: Gauge = "edgeward_leader" []
            "1 while this replica holds the Lease for certain, else 0";
        events: Counters<2> = "edgeward_events_total" ["reason", "result"]
            "Kubernetes Events on pods, by reason and what became of them";
    }
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
    /// Whether this replica holds the Lease.
    pub fn leader(&self, is_held: bool) {
        self.leader.set(is_held.into());
    }

    /// An Event of this reason came to this.
    pub fn event(&self, reason: &'static str, result: EventResult) {
        self.events.of([reason.into(), result.as_str().into()]).inc();
    }
}
