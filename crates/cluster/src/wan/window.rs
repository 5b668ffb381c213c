//! The last outcomes of one endpoint, with their loss and RTT.

use std::collections::VecDeque;

use crate::wan::RUN;
use edgeward_kube::units::{Micros, Permille};

/// The most outcomes in a window.
pub const WINDOW: usize = 100;

/// The number of outcomes from which loss is judged. With fewer, a single loss looks like a bad link.
pub const JUDGED_FROM: usize = 50;

/// The last [`WINDOW`] outcomes of one endpoint, oldest first; `None` is a lost probe.
#[derive(Debug, Clone, Default)]
pub struct Window {
    outcomes: VecDeque<Option<Micros>>,
}

impl Window {
    /// Adds an outcome. A full window drops its oldest one.
    pub fn push(&mut self, outcome: Option<Micros>) {
        if self.outcomes.len() == WINDOW {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(outcome);
    }

    /// Drops all but the newest `count` outcomes.
    pub fn keep(&mut self, count: usize) {
        self.outcomes.drain(..self.outcomes.len().saturating_sub(count));
    }

    /// The number of outcomes.
    pub fn probes(&self) -> usize {
        self.outcomes.len()
    }

    /// The number of lost probes.
    pub fn lost(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.is_none()).count()
    }

    /// Lost probes in a thousand, rounded down; `None` if the window is empty.
    pub fn loss(&self) -> Option<Permille> {
        let permille = (self.lost() * 1_000).checked_div(self.outcomes.len())?;
        u32::try_from(permille).ok().map(Permille)
    }

    /// The RTT for decisions: the mean of the last [`RUN`] answered probes.
    pub fn rtt(&self) -> Option<Micros> {
        mean(self.answered().rev().take(RUN))
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
    fn window_without_answers_has_no_rtt() {
        let empty = Window::default();
        assert_eq!((empty.loss(), empty.rtt()), (None, None));
        let lost = window([None; 3]);
        assert_eq!((lost.loss(), lost.rtt()), (Some(Permille(1_000)), None));
    }

    #[test]
    fn rtt_is_mean_of_last_five_answers() {
        let answers = [900, 10, 20, 30, 40].map(Some);
        assert_eq!(window(answers).rtt(), Some(Micros(200)));
        assert_eq!(
            window(answers.into_iter().chain([None, Some(50), None])).rtt(),
            Some(Micros(30))
        );
        assert_eq!(window([Some(7), None, Some(8)]).rtt(), Some(Micros(7)));
    }

    proptest! {
        #[test]
        fn window_counts_only_the_last_hundred_probes(outcomes in proptest::collection::vec(proptest::option::of(0..1_000_000_u64), 0..300)) {
            let all = window(outcomes.clone());
            let last: Vec<Option<u64>> = outcomes[outcomes.len().saturating_sub(WINDOW)..].to_vec();
            prop_assert_eq!(all.probes(), last.len());
            let lost = last.iter().filter(|outcome| outcome.is_none()).count();
            prop_assert_eq!(all.loss().map(|loss| loss.0 as usize), (lost * 1_000).checked_div(last.len()));
            let answered: Vec<u64> = last.iter().copied().flatten().collect();
            prop_assert_eq!(all.rtt().is_some(), !answered.is_empty());
            if let Some(rtt) = all.rtt() {
                let (least, most) = (answered.iter().min().unwrap(), answered.iter().max().unwrap());
                prop_assert!((*least..=*most).contains(&rtt.0));
            }
        }
    }
}
