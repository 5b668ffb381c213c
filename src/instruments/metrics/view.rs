//! Metrics of the live view: what it holds, and how old it is.

use edgeward_core::cluster::cache;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Counters, Gauges, count, register};

/// The metrics of the live view.
#[derive(Debug)]
pub struct ViewMetrics {
    cached_pods: Gauge,
    last_event: Gauges<1>,
    lists: Counters<1>,
    failures: Counters<1>,
}

impl ViewMetrics {
    pub(super) fn new(to: &mut Registry) -> Self {
        let heard = "edgeward_watch_heard_timestamp_seconds";
        Self {
            cached_pods: register(to, "edgeward_cached_pods", "Pods that are cached"),
            last_event: register(to, heard, "When the watch last had an event, in Unix seconds"),
            lists: register(
                to,
                "edgeward_watch_lists",
                "Lists of everything of a kind that were begun",
            ),
            failures: register(to, "edgeward_watch_failures", "Failures of a watch or list"),
        }
    }

    /// Shows how many pods the cache holds.
    pub fn cached_pods(&self, pods: usize) {
        self.cached_pods.set(count(pods));
    }

    /// Shows when the watch of this kind had its last event.
    pub fn last_event(&self, kind: cache::Kind, unix_seconds: i64) {
        let labels = [("kind", kind.as_str().into())];
        self.last_event.get_or_create(&labels).set(unix_seconds);
    }

    /// Counts a list of everything of this kind that began.
    pub fn list(&self, kind: &'static str) {
        self.lists.get_or_create(&[("kind", kind.into())]).inc();
    }

    /// Counts a failure of a watch or list of this kind.
    pub fn failure(&self, kind: &'static str) {
        self.failures.get_or_create(&[("kind", kind.into())]).inc();
    }
}
