//! The only reader of the system clocks. Everything else takes time as an argument.

use std::time::Duration;

use edgeward_kube::units::{Moment, Now};
use jiff::Timestamp;
use tokio::time::Instant;

/// The clocks of the process. The monotonic clock measures ages, dwell times and durations. The wall clock is for
/// timestamps in output and for comparisons with certificates.
///
/// The monotonic clock is tokio's: a test that pauses tokio's time pauses it too. The wall clock is not paused.
///
/// Copies share the origin, so times read through different copies are comparable. Reading either clock takes tens of
/// nanoseconds and never blocks.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Starts a clock whose monotonic zero is now. A process starts one and passes copies on.
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Microseconds since [`Clock::start`]. Never decreases; does not advance while the machine is suspended.
    pub fn moment(&self) -> Moment {
        Moment(i64::try_from(self.origin.elapsed().as_micros()).unwrap_or(i64::MAX))
    }

    /// Waits until `at`; with `None`, waits forever. Cancel-safe.
    pub async fn reach(&self, at: Option<Moment>) {
        match at {
            Some(at) => tokio::time::sleep(Duration::from_micros(at.since(self.moment()).0)).await,
            None => std::future::pending().await,
        }
    }

    /// The current time of both clocks.
    pub fn now(&self) -> Now {
        Now {
            moment: self.moment(),
            wall: self.wall(),
        }
    }

    /// The wall clock in UTC. It may jump in either direction.
    pub fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}
