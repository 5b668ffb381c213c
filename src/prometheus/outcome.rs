//! Results of a query.

use std::fmt;

use edgeward_kube::words;

words! {
    /// Result of a query. Any outcome except `Ok` leaves the last value unchanged.
    pub enum Outcome {
        /// Every series was used.
        Ok = "ok",
        /// The answer has no series.
        Empty = "empty",
        /// A value is NaN or infinite.
        NotANumber = "not_a_number",
        /// A value is negative, or exceeds the range of its unit.
        OutOfRange = "out_of_range",
        /// There is more than one series for one place.
        Ambiguous = "ambiguous",
        /// A series names no site, or an unknown site or class.
        Label = "label",
        /// The result is a scalar or a range.
        NotAVector = "not_a_vector",
        /// A sample is older than the staleness limit.
        Stale = "stale",
        /// HTTP status 3xx or 4xx. The usual causes are faulty PromQL and missing rights.
        Rejected = "rejected",
        /// HTTP status 5xx.
        ServerError = "server_error",
        /// There was no answer in time.
        Timeout = "timeout",
        /// There was no connection, or it ended early.
        Unreachable = "unreachable",
        /// The answer has too many bytes.
        TooLarge = "too_large",
        /// The answer does not have Prometheus's format.
        Malformed = "malformed",
    }
}

/// An outcome except `Ok`, with details.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Kind of the failure.
    pub outcome: Outcome,
    /// Server message or finding; long text is cut off.
    pub detail: String,
}

impl Failure {
    /// Creates a failure. The detail may come from the server, so it is shortened to 300 characters.
    pub(crate) fn new(outcome: Outcome, detail: impl fmt::Display) -> Self {
        const MOST: usize = 300;
        let mut detail = detail.to_string();
        if let Some((end, _)) = detail.char_indices().nth(MOST) {
            detail.truncate(end);
            detail.push('…');
        }
        Self { outcome, detail }
    }
}
