//! What becomes of the spans of traced requests.

use edgeward_core::words;

use crate::instruments::metrics::declaration::{Counters, metrics};

metrics! {
    /// The metrics of traces.
    pub struct SpanMetrics {
        spans: Counters<1> = "edgeward_spans_total" ["result"]
            "Spans of traced requests, by what became of them (dropped: too many waited; lost: the collector did not take them)";
    }
}

words! {
    /// What became of a span: the label `result`.
    pub enum SpanResult {
        /// The collector has it.
        Exported = "exported",
        /// Too many waited for the collector.
        Dropped = "dropped",
        /// The collector did not take it.
        Lost = "lost",
    }
}

impl SpanMetrics {
    pub(super) fn start_at_zero(&self) {
        SpanResult::ALL.into_iter().for_each(|result| self.count(result, 0));
    }

    /// So many spans came to this.
    pub fn count(&self, result: SpanResult, spans: u64) {
        self.spans.of([result.as_str().into()]).inc_by(spans);
    }
}
