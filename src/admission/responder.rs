//! Who answers a review.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::instruments::traces::Attributes;
use crate::platform::clock::Clock;

/// The right to answer one review, which is had once: a review and its deadline may come to an end in the same
/// moment, and only what was answered is counted and logged.
#[derive(Debug)]
pub struct Responder {
    clock: Clock,
    since_us: u64,
    claimed: AtomicBool,
    /// What was decided; `None` if nobody wants to know.
    recorded: Option<OnceLock<Attributes>>,
}

impl Responder {
    /// For a review whose body is complete now.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            since_us: clock.monotonic_us(),
            claimed: AtomicBool::new(false),
            recorded: None,
        }
    }

    /// The same for a request that is traced: what is decided is to be recorded.
    #[must_use]
    pub(crate) fn traced(self) -> Self {
        Self {
            recorded: Some(OnceLock::new()),
            ..self
        }
    }

    /// Says what was decided to whoever wants to know.
    pub fn record(&self, decided: impl FnOnce() -> Attributes) {
        if let Some(recorded) = &self.recorded {
            recorded.get_or_init(decided);
        }
    }

    /// What was recorded.
    pub(crate) fn recorded(&self) -> Option<&Attributes> {
        self.recorded.as_ref()?.get()
    }

    /// True for the first who asks, who then answers.
    pub fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    /// The time since the body was complete.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.clock.monotonic_us().saturating_sub(self.since_us))
    }
}
