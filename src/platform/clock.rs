//! The only reader of the system clocks. Everything else takes time as an argument.

use std::time::Duration;

use edgeward_core::units::{Moment, Now};
use jiff::Timestamp;
use tokio::time::Instant;

/// The process's clocks: a monotonic one for ages, dwell times and durations, and the wall clock for what is
/// written down or compared with a certificate.
///
/// The monotonic clock is tokio's: a test that pauses tokio's time pauses it as well. The wall clock goes on.
///
/// A copy is a copy of the origin, so times read through different copies compare. Reading either costs tens of
/// nanoseconds and never blocks.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose monotonic zero is now. A process makes one and hands out copies.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Microseconds since [`Clock::start`]. Never goes back; does not advance while the machine is suspended.
    pub fn monotonic_us(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// The moment it is, as the core counts it.
    pub fn moment(&self) -> Moment {
        Moment(i64::try_from(self.monotonic_us()).unwrap_or(i64::MAX))
    }

    /// Waits until this moment; for ever without one. Cancel-safe.
    pub async fn reach(&self, at: Option<Moment>) {
        match at {
            Some(at) => tokio::time::sleep(Duration::from_micros(at.since(self.moment()).0)).await,
            None => std::future::pending().await,
        }
    }

    /// What time it is, by both clocks.
    pub fn now(&self) -> Now {
        Now {
            moment: self.moment(),
            wall: self.wall(),
        }
    }

    /// The wall clock, UTC. May jump in either direction.
    pub fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}
