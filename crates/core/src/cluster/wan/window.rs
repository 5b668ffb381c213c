//! The last outcomes of one endpoint, and the numbers in them.

use std::collections::VecDeque;

use crate::cluster::wan::RUN;
use crate::units::{Micros, Moment, Permille};

/// Outcomes that a window holds at most.
pub const WINDOW: usize = 100;

/// Outcomes from which loss is judged. Fewer make a single loss look like a bad link.
pub const JUDGED_FROM: usize = 50;

/// The last [`WINDOW`] outcomes of one endpoint, oldest first; `None` is a lost probe.
#[derive(Debug, Clone, Default)]
pub struct Window {
    outcomes: VecDeque<Option<Micros>>,
}

impl Window {
    /// Appends an outcome; the oldest leaves a full window.
    pub fn push(&mut self, outcome: Option<Micros>) {
        if self.outcomes.len() == WINDOW {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(outcome);
    }

    /// Forgets all but the newest `count`.
    pub fn keep(&mut self, count: usize) {
        self.outcomes.drain(..self.outcomes.len().saturating_sub(count));
    }

    /// How many outcomes it holds.
    #[must_use]
    pub fn probes(&self) -> usize {
        self.outcomes.len()
    }

    /// How many of them are lost.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.is_none()).count()
    }

    /// Lost ones in a thousand, rounded down; `None` while empty.
    #[must_use]
    pub fn loss(&self) -> Option<Permille> {
        let permille = (self.lost() * 1_000).checked_div(self.outcomes.len())?;
        u32::try_from(permille).ok().map(Permille)
    }

    /// The RTT that a decision reads: the mean of the last [`RUN`] answered probes.
    #[must_use]
    pub fn rtt(&self) -> Option<Micros> {
        mean(self.answered().rev().take(RUN))
    }

    /// What the answered probes say; `None` where none was answered. Cost: sorts at most [`WINDOW`] numbers.
    #[must_use]
    pub fn round_trips(&self) -> Option<RoundTrips> {
        let answered: Vec<Micros> = self.answered().collect();
        let steps = answered.windows(2).map(|pair| Micros(pair[0].0.abs_diff(pair[1].0)));
        let jitter = mean(steps).unwrap_or_default();
        let mut sorted = answered;
        sorted.sort_unstable();
        let rank = |percent: usize| {
            sorted
                .get((sorted.len() * percent).div_ceil(100).checked_sub(1)?)
                .copied()
        };
        Some(RoundTrips {
            decision: self.rtt()?,
            mean: mean(sorted.iter().copied())?,
            p50: rank(50)?,
            p95: rank(95)?,
            jitter,
        })
    }

    fn answered(&self) -> impl DoubleEndedIterator<Item = Micros> {
        self.outcomes.iter().copied().flatten()
    }
}

fn mean(times: impl Iterator<Item = Micros>) -> Option<Micros> {
    let (sum, count) = times.fold((0_u128, 0_u128), |(sum, count), time| {
        (sum + u128::from(time.0), count + 1)
    });
    u64::try_from(sum.checked_div(count)?).ok().map(Micros)
}

/// What the answered probes of a window say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrips {
    /// Mean of the last [`RUN`]: what a decision reads.
    pub decision: Micros,
    /// Mean.
    pub mean: Micros,
    /// Median, nearest rank.
    pub p50: Micros,
    /// 95th percentile, nearest rank.
    pub p95: Micros,
    /// Mean absolute difference of consecutive ones, 0 for a single one. RFC 3550, 6.4.1, smooths the same difference
    /// with a gain of 1/16 instead.
    pub jitter: Micros,
}

/// The numbers of one endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Outcomes in the window.
    pub probes: usize,
    /// Loss in the window; `None` before the first outcome.
    pub loss: Option<Permille>,
    /// Round trips in the window. Where it holds none, those of the last window that did; `None` before the first
    /// answer.
    pub round_trips: Option<RoundTrips>,
    /// When the last answer came.
    pub last_answer: Option<Moment>,
    /// When the last probe was answered or lost.
    pub last_outcome: Option<Moment>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn window(outcomes: impl IntoIterator<Item = Option<u64>>) -> Window {
        let mut window = Window::default();
        outcomes
            .into_iter()
            .for_each(|outcome| window.push(outcome.map(Micros)));
        window
    }

    #[test]
    fn an_empty_window_says_nothing() {
        let empty = Window::default();
        assert_eq!((empty.loss(), empty.rtt(), empty.round_trips()), (None, None, None));
        let lost = window([None; 3]);
        assert_eq!(
            (lost.loss(), lost.rtt(), lost.round_trips()),
            (Some(Permille(1_000)), None, None)
        );
    }

    #[test]
    fn the_rtt_is_the_mean_of_the_last_five_answers() {
        let answers = [900, 10, 20, 30, 40].map(Some);
        assert_eq!(window(answers).rtt(), Some(Micros(200)));
        assert_eq!(
            window(answers.into_iter().chain([None, Some(50), None])).rtt(),
            Some(Micros(30))
        );
        assert_eq!(window([Some(7), None, Some(8)]).rtt(), Some(Micros(7)));
    }

    #[test]
    fn statistics_of_known_numbers() {
        let one_to_hundred = window((1..=100).map(Some)).round_trips().unwrap();
        assert_eq!(
            one_to_hundred,
            RoundTrips {
                decision: Micros(98),
                mean: Micros(50),
                p50: Micros(50),
                p95: Micros(95),
                jitter: Micros(1),
            }
        );
        let few = window([Some(10), None, Some(30), Some(20)]);
        let round_trips = few.round_trips().unwrap();
        assert_eq!((round_trips.p50, round_trips.p95), (Micros(20), Micros(30)));
        assert_eq!(round_trips.jitter, Micros(15));
        assert_eq!(few.loss(), Some(Permille(250)));
        assert_eq!(window([Some(5)]).round_trips().unwrap().jitter, Micros(0));
    }

    proptest! {
        #[test]
        fn only_the_last_hundred_count(outcomes in proptest::collection::vec(proptest::option::of(0..1_000_000_u64), 0..300)) {
            let all = window(outcomes.clone());
            let last: Vec<Option<u64>> = outcomes[outcomes.len().saturating_sub(WINDOW)..].to_vec();
            prop_assert_eq!(all.probes(), last.len());
            let lost = last.iter().filter(|outcome| outcome.is_none()).count();
            prop_assert_eq!(all.loss().map(|loss| loss.0 as usize), (lost * 1_000).checked_div(last.len()));
            let answered: Vec<u64> = last.iter().copied().flatten().collect();
            prop_assert_eq!(all.round_trips().is_some(), !answered.is_empty());
            if let Some(found) = all.round_trips() {
                prop_assert!(found.p50 <= found.p95);
                let (least, most) = (answered.iter().min().unwrap(), answered.iter().max().unwrap());
                for number in [found.decision, found.mean, found.p50, found.p95] {
                    prop_assert!((*least..=*most).contains(&number.0));
                }
            }
        }
    }
}
