//! How often a line is written that others can cause.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use edgeward_core::units::Micros;

use crate::platform::clock::Clock;
use crate::platform::token_bucket::TokenBucket;

/// How many lines of a kind are written at once, and after which time one more.
const BURST: u64 = 10;
const INTERVAL: Micros = Micros::from_secs(1);

/// Bounds lines that others can cause at will, of each kind for itself: ten at once, then one a second. The next one says
/// how many were held back.
#[derive(Debug)]
pub struct LogLimit {
    clock: Clock,
    /// Of each kind, when lines are due, and how many were held back.
    kinds: Mutex<BTreeMap<&'static str, (TokenBucket, u64)>>,
}

impl LogLimit {
    /// None was written yet.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            kinds: Mutex::default(),
        }
    }

    /// How many lines of this kind were held back since the last one; `None` if this one is held back too.
    pub fn due(&self, kind: &'static str) -> Option<u64> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || (TokenBucket::new(BURST, INTERVAL), 0);
        let (bucket, held_back) = kinds.entry(kind).or_insert_with(new);
        if bucket.take(self.clock.moment()) {
            return Some(std::mem::take(held_back));
        }
        *held_back += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ten_lines_come_at_once_then_one_a_second_with_a_count() {
        let limit = LogLimit::new(Clock::start());
        let due = |lines: usize| (0..lines).filter_map(|_| limit.due("flood")).collect::<Vec<_>>();
        assert_eq!(due(100), [0; 10]);
        assert_eq!(limit.due("other"), Some(0));
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(due(1).is_empty());
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(due(3), [91]);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(due(11), [2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
