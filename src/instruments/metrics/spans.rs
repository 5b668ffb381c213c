//! What becomes of the spans of traced requests.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Description, Kind, ResultLabel, register};

pub(super) const SPANS: Description = Description {
    name: "edgeward_spans_total",
    kind: Kind::Counter,
    labels: &["result"],
    help: "Spans of traced requests, by what became of them (dropped: too many waited; lost: the collector did not take them)",
};

/// What became of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanResult {
    /// The collector has it.
    Exported,
    /// Too many waited for the collector.
    Dropped,
    /// The collector did not take it.
    Lost,
}

impl SpanResult {
    /// Everything that can become of it.
    const ALL: [Self; 3] = [Self::Exported, Self::Dropped, Self::Lost];

    /// The value of the label `result`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exported => "exported",
            Self::Dropped => "dropped",
            Self::Lost => "lost",
        }
    }
}

/// The metrics of traces.
#[derive(Debug)]
pub struct SpanMetrics(Family<ResultLabel, Counter>);

impl SpanMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self(register(registry, &SPANS, Family::default()));
        for result in SpanResult::ALL {
            metrics.count(result, 0);
        }
        metrics
    }

    /// So many spans came to this.
    pub fn count(&self, result: SpanResult, spans: u64) {
        let result = result.as_str();
        self.0.get_or_create(&ResultLabel { result }).inc_by(spans);
    }
}
