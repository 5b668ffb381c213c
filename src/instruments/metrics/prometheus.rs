//! What becomes of the questions that a Prometheus server is asked.

use std::sync::atomic::AtomicU64;

use edgeward_core::config::Input;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Description, Kind, register};

pub(super) const QUERIES: Description = Description {
    name: "edgeward_prometheus_queries_total",
    kind: Kind::Counter,
    labels: &["query", "result"],
    help: "Queries to the Prometheus server, by their name in the configuration and what became of them",
};
pub(super) const SAMPLE: Description = Description {
    name: "edgeward_prometheus_sample_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["query"],
    help: "When the value last taken from the Prometheus server was true, in seconds since the Unix epoch",
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    query: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueryLabel {
    query: &'static str,
}

/// The Prometheus queries' part of the process's metrics.
#[derive(Debug)]
pub struct PrometheusMetrics {
    queries: Family<ResultLabels, Counter>,
    sample: Family<QueryLabel, Gauge<f64, AtomicU64>>,
}

impl PrometheusMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            queries: register(registry, &QUERIES, Family::default()),
            sample: register(registry, &SAMPLE, Family::default()),
        }
    }

    /// This was asked for; `result` is what became of it.
    pub fn asked(&self, input: Input, result: &'static str) {
        let query = input.as_str();
        self.queries.get_or_create(&ResultLabels { query, result }).inc();
    }

    /// Another server is asked from now on, other questions, or none.
    pub fn forget(&self) {
        self.sample.clear();
    }

    /// A value of this was taken; it was true at this moment, in seconds since the Unix epoch.
    pub fn sample(&self, input: Input, unix_seconds: f64) {
        let query = input.as_str();
        self.sample.get_or_create(&QueryLabel { query }).set(unix_seconds);
    }
}
