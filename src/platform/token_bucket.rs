//! A rate limit.

use edgeward_kube::units::{Micros, Moment};

/// A token bucket: allows `capacity` events at once, and one more per interval.
#[derive(Debug)]
pub struct TokenBucket {
    interval: Micros,
    capacity: u64,
    /// When the bucket is full again.
    full_at: Moment,
}

impl TokenBucket {
    /// Starts with a full bucket.
    pub fn new(capacity: u64, interval: Micros) -> Self {
        Self {
            interval,
            capacity,
            full_at: Moment(i64::MIN),
        }
    }

    /// Whether no token is missing.
    pub fn is_full(&self, now: Moment) -> bool {
        self.full_at <= now
    }

    /// Takes a token. Returns whether there was one.
    pub fn take(&mut self, now: Moment) -> bool {
        let full_at = self.full_at.max(now).after(self.interval);
        let is_there = full_at.since(now) <= self.interval.times(self.capacity);
        if is_there {
            self.full_at = full_at;
        }
        is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_bucket_passes_a_burst_then_one_per_period() {
        let mut bucket = TokenBucket::new(3, Micros::from_secs(1));
        let at = |ms| Moment(0).after(Micros::from_millis(ms));
        let taken = |bucket: &mut TokenBucket, ms| (0..10).filter(|_| bucket.take(at(ms))).count();
        assert_eq!(taken(&mut bucket, 0), 3);
        assert_eq!(taken(&mut bucket, 999), 0);
        assert_eq!(taken(&mut bucket, 1_000), 1);
        assert_eq!(taken(&mut bucket, 3_500), 2);
        assert_eq!(taken(&mut bucket, 60_000), 3);
    }
}
