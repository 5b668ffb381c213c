//! What the live view holds, and how old it is.

use edgeward_core::cluster::cache;
use prometheus_client::metrics::gauge::Gauge;

use crate::instruments::metrics::count;
use crate::instruments::metrics::declaration::{Counters, Gauges, metrics};

metrics! {
    /// The live view's part of the process's metrics.
    pub struct ViewMetrics {
        cached_pods: Gauge = "edgeward_cached_pods" []
            "Pods of the whole cluster that are cached, finished ones included";
        node_faults: Gauge = "edgeward_node_faults" []
            "Nodes that carry the selectors of several sites";
        last_event: Gauges<1> = "edgeward_watch_heard_timestamp_seconds" ["kind"]
            "When the watch of this kind last had an event, a bookmark or a connection, in seconds since the Unix epoch";
        lists: Counters<1> = "edgeward_watch_lists_total" ["kind"]
            "Lists of everything of a kind that were begun: the first, and one after each loss of a watch's place";
        failures: Counters<1> = "edgeward_watch_failures_total" ["kind"]
            "Failures of a watch or list, each tried again after a pause";
        replicas: Gauge = "edgeward_replicas" []
            "Replicas of us that decide, as counted last or configured (0: none was found, and one is assumed)";
    }
}

impl ViewMetrics {
    /// The cache holds so many pods, and knows of so many nodes with the selectors of several sites.
    pub fn cache(&self, pods: usize, node_faults: usize) {
        self.cached_pods.set(count(pods));
        self.node_faults.set(count(node_faults));
    }

    /// The watch of this kind had its last event at this moment.
    pub fn last_event(&self, kind: cache::Kind, unix_seconds: i64) {
        self.last_event.of([kind.as_str().into()]).set(unix_seconds);
    }

    /// A list of everything of this kind began.
    pub fn list(&self, kind: &'static str) {
        self.lists.of([kind.into()]).inc();
    }

    /// A watch or list of this kind failed.
    pub fn failure(&self, kind: &'static str) {
        self.failures.of([kind.into()]).inc();
    }

    /// So many replicas of us decide.
    pub fn replicas(&self, ready: u32) {
        self.replicas.set(ready.into());
    }
}
