//! The name of a decision.

use std::fmt;

/// Names one decision, on its pod and here: a random UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub u128);

impl DecisionId {
    /// Reads what [`Display`](fmt::Display) writes, and nothing else.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.split('-').collect();
        let id = Self(u128::from_str_radix(&digits, 16).ok()?);
        (id.to_string() == text).then_some(id)
    }
}

/// The form of a UUID: 32 lower-case digits in groups of 8, 4, 4, 4 and 12.
impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (high, low) = ((self.0 >> 64) as u64, self.0 as u64);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }
}
