//! What is done about pods that slipped past us, and about controllers whose pods fail over and over.

use crate::units::Micros;

/// What is done about pods that kube-scheduler finds no node for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backstop {
    /// Whether those that would go elsewhere now are deleted, so that their owner creates them again.
    pub recreate: bool,
}

/// When the pods of a controller are left as they are, because they fail over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopGuard {
    /// How many of its pods may be created in a minute in the place of ones that failed.
    pub failures_per_minute: usize,
    /// For how long its pods are left as they are, when there were more; zero: not at all.
    pub pause: Micros,
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self {
            failures_per_minute: 10,
            pause: Micros::from_secs(300),
        }
    }
}
