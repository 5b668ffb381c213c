//! What can become of a question.

use std::fmt;

/// What became of a question. Whatever is not `Ok` leaves the last value as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every series was used.
    Ok,
    /// No series.
    Empty,
    /// A value is NaN or infinite.
    NotANumber,
    /// A value is negative, or more than its unit can mean.
    OutOfRange,
    /// More than one series for one place.
    Ambiguous,
    /// A series names no site, or a site or class that there is not.
    Label,
    /// A scalar, a string or a range.
    NotAVector,
    /// A sample is older than a value may be.
    Stale,
    /// HTTP status 3xx or 4xx: most often PromQL that is not right, or rights that are missing.
    Rejected,
    /// HTTP status 5xx.
    ServerError,
    /// No answer in time.
    Timeout,
    /// No connection, or it ended early.
    Unreachable,
    /// Not what Prometheus answers.
    Malformed,
}

impl Outcome {
    /// The word for logs and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Empty => "empty",
            Self::NotANumber => "not_a_number",
            Self::OutOfRange => "out_of_range",
            Self::Ambiguous => "ambiguous",
            Self::Label => "label",
            Self::NotAVector => "not_a_vector",
            Self::Stale => "stale",
            Self::Rejected => "rejected",
            Self::ServerError => "server_error",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Malformed => "malformed",
        }
    }
}

/// An outcome that is not `Ok`, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) outcome: Outcome,
    pub(super) detail: String,
}

impl Failure {
    /// The detail is what the server says, and may be long.
    pub(super) fn new(outcome: Outcome, detail: impl fmt::Display) -> Self {
        const MOST: usize = 300;
        let mut detail = detail.to_string();
        if let Some((end, _)) = detail.char_indices().nth(MOST) {
            detail.truncate(end);
            detail.push('…');
        }
        Self { outcome, detail }
    }
}
