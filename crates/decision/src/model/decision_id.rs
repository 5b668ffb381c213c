//! Ids of decisions.

use std::fmt;

use uuid::Uuid;

/// Identifies one decision, on its pod and in edgeward. A random UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub u128);

impl DecisionId {
    /// Parses the exact form that [`Display`](fmt::Display) writes. Returns `None` for any other text.
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
