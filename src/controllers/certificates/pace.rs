//! How fast writes may follow each other while somebody else wants the same object otherwise.

use std::time::Duration;

use edgeward_core::units::{Micros, Moment};

/// The shortest pause after a look.
pub(super) const PAUSE: Duration = Duration::from_millis(500);

/// How many writes may follow each other at that pace. A CA is followed with four.
const FREE: u32 = 5;

/// The writes that follow each other.
#[derive(Debug)]
pub(super) struct Pace {
    writes: u32,
    last: Option<Moment>,
    /// The longest pause. After twice as long without a write, what was before does not count.
    most: Duration,
}

/// What is to be done after a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) length: Duration,
    /// Whether this is the first that is longer than it would have to be.
    pub(super) is_contested: bool,
}

impl Pace {
    pub(super) fn new(most: Micros) -> Self {
        Self {
            writes: 0,
            last: None,
            most: Duration::from_micros(most.0),
        }
    }

    /// Something was written at this moment.
    pub(super) fn wrote(&mut self, now: Moment) -> Pause {
        let since = self.last.map(|last| Duration::from_micros(now.since(last).0));
        if since.is_none_or(|since| since > self.most * 2) {
            self.writes = 0;
        }
        self.writes = self.writes.saturating_add(1);
        self.last = Some(now);
        let doublings = self.writes.saturating_sub(FREE);
        let length = PAUSE.saturating_mul(2_u32.saturating_pow(doublings));
        Pause {
            length: length.min(self.most).max(PAUSE),
            is_contested: doublings == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_follow_each_other_become_slower_until_there_are_none_for_a_while() {
        let mut pace = Pace::new(Micros::from_secs(60));
        let mut now = Moment(0);
        let mut after = |seconds| {
            now = now.after(Micros::from_secs(seconds));
            let pause = pace.wrote(now);
            (pause.length.as_millis(), pause.is_contested)
        };
        let pauses: Vec<_> = (0..14).map(|_| after(60)).collect();
        let expected = [500, 500, 500, 500, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000];
        let expected = expected.into_iter().chain([60_000; 3]);
        let expected: Vec<_> = expected.enumerate().map(|(i, length)| (length, i == 5)).collect();
        assert_eq!(pauses, expected);
        assert_eq!(after(120), (60_000, false), "still the same war");
        assert_eq!(after(121), (500, false));
    }
}
