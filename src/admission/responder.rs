//! Who answers a review.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::platform::clock::Clock;

/// The right to answer one review, which is had once: a review and its deadline may come to an end in the same
/// moment, and only what was answered is counted and logged.
#[derive(Debug)]
pub struct Responder {
    clock: Clock,
    since_us: u64,
    claimed: AtomicBool,
}

impl Responder {
    /// For a review whose body is complete now.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            since_us: clock.monotonic_us(),
            claimed: AtomicBool::new(false),
        }
    }

    /// True for the first who asks, who then answers.
    pub fn claim(&self) -> bool {
        !self.claimed.swap(true, Ordering::AcqRel)
    }

    /// The time since the body was complete.
    pub fn elapsed(&self) -> Duration {
        Duration::from_micros(self.clock.monotonic_us().saturating_sub(self.since_us))
    }
}
