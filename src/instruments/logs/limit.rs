//! Rate limit of log lines that clients can cause.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use edgeward_kube::units::Micros;

use crate::platform::clock::Clock;
use crate::platform::token_bucket::TokenBucket;

/// How many lines of a kind are written at once, and the interval for each further line.
const BURST: u64 = 10;
const INTERVAL: Micros = Micros::from_secs(1);

/// Limits log lines that clients can cause at will. Each kind may log ten lines at once, then one per second. The next
/// line states how many were held back.
#[derive(Debug)]
pub struct LogLimit {
    clock: Clock,
    /// For each kind, its token bucket and the number of lines held back.
    kinds: Mutex<BTreeMap<&'static str, (TokenBucket, u64)>>,
}

impl LogLimit {
    /// Starts without any lines written.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            kinds: Mutex::default(),
        }
    }

    /// Returns how many lines of this kind were held back since the last one; `None` if this line is held back too.
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
    async fn log_limit_passes_ten_lines_then_one_a_second_with_count() {
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
