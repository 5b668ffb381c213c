//! What is done about pods that slipped past us, and about controllers whose pods fail over and over.

use super::{duration, set};
use crate::document::Field;
use crate::units::Micros;

/// What is done about pods that kube-scheduler finds no node for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backstop {
    /// Whether those that would go elsewhere now are deleted, so that their owner creates them anew.
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

pub(super) fn read_backstop(field: &Field<'_>) -> Backstop {
    let mut backstop = Backstop::default();
    if let Some([recreate]) = field.object(["recreate"]) {
        set(&mut backstop.recreate, recreate.boolean());
    }
    backstop
}

pub(super) fn read_loop_guard(field: &Field<'_>) -> LoopGuard {
    let mut guard = LoopGuard::default();
    if let Some([failures, pause]) = field.object(["failuresPerMinute", "pause"]) {
        let count = failures.integer(1..=1000).and_then(|count| usize::try_from(count).ok());
        set(&mut guard.failures_per_minute, count);
        set(&mut guard.pause, duration(&pause, ["0s", "24h"]));
    }
    guard
}
