//! The name of a decision.

use std::fmt;

use uuid::Uuid;

/// Names one decision, on its pod and here: a random UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub u128);

impl DecisionId {
    /// Reads what [`Display`](fmt::Display) writes, and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let id = Self(Uuid::try_parse(text).ok()?.as_u128());
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Uuid::from_u128(self.0).fmt(f)
    }
}
