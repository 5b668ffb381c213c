//! What becomes of the questions that a Prometheus server is asked.

use edgeward_core::config::Input;

use crate::instruments::metrics::declaration::{Counters, Decimals, metrics};

metrics! {
    /// The Prometheus queries' part of the process's metrics.
    pub struct PrometheusMetrics {
        queries: Counters<2> = "edgeward_prometheus_queries_total" ["query", "result"]
            "Queries to the Prometheus server, by their name in the configuration, or `profile`, and what became of them";
        sample: Decimals<1> = "edgeward_prometheus_sample_timestamp_seconds" ["query"]
            "When the value last taken from the Prometheus server was true, in seconds since the Unix epoch";
    }
}

impl PrometheusMetrics {
    /// This was asked; `result` is what became of it.
    pub fn asked(&self, query: &'static str, result: &'static str) {
        self.queries.of([query.into(), result.into()]).inc();
    }

    /// Another server is asked from now on, other questions, or none.
    pub fn forget(&self) {
        self.sample.clear();
    }

    /// A value of this was taken; it was true at this moment, in seconds since the Unix epoch.
    pub fn sample(&self, input: Input, unix_seconds: f64) {
        self.sample.of([input.as_str().into()]).set(unix_seconds);
    }
}
