//! What can become of a question.

use std::fmt;

use edgeward_core::words;

words! {
    /// What became of a question. Whatever is not `Ok` leaves the last value as it is.
    pub enum Outcome {
        /// Every series was used.
        Ok = "ok",
        /// No series.
        Empty = "empty",
        /// A value is NaN or infinite.
        NotANumber = "not_a_number",
        /// A value is negative, or more than its unit can mean.
        OutOfRange = "out_of_range",
        /// More than one series for one place.
        Ambiguous = "ambiguous",
        /// A series names no site, or a site or class that there is not.
        Label = "label",
        /// A scalar, a string or a range.
        NotAVector = "not_a_vector",
        /// A sample is older than a value may be.
        Stale = "stale",
        /// HTTP status 3xx or 4xx: most often PromQL that is not right, or rights that are missing.
        Rejected = "rejected",
        /// HTTP status 5xx.
        ServerError = "server_error",
        /// No answer in time.
        Timeout = "timeout",
        /// No connection, or it ended early.
        Unreachable = "unreachable",
        /// More bytes or series than are read.
        TooLarge = "too_large",
        /// Not what Prometheus answers.
        Malformed = "malformed",
    }
}

/// An outcome that is not `Ok`, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it is.
    pub outcome: Outcome,
    /// What was said or found, cut off where it is long.
    pub detail: String,
}

impl Failure {
    /// The detail is what the server says, and may be long.
    pub(in crate::sources) fn new(outcome: Outcome, detail: impl fmt::Display) -> Self {
        const MOST: usize = 300;
        let mut detail = detail.to_string();
        if let Some((end, _)) = detail.char_indices().nth(MOST) {
            detail.truncate(end);
            detail.push('…');
        }
        Self { outcome, detail }
    }
}
