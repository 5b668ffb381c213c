//! Records state changes of a link and their times.

use std::sync::{Mutex, MutexGuard, PoisonError};

use edgeward_decision::model::link::LinkState;
use edgeward_harness::prelude::*;

/// Dwell time: how long a link stays healthy or degraded at least.
pub(crate) const DWELL: Duration = Duration::from_secs(30);

/// Every state and the time when it was first seen. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct History(Arc<Mutex<Vec<(LinkState, Instant)>>>);

impl History {
    pub(crate) fn record(&self, state: LinkState) {
        let mut states = self.states();
        if states.last().is_none_or(|(last, _)| *last != state) {
            states.push((state, Instant::now()));
        }
    }

    pub(crate) fn until(&self, state: LinkState, bound: Duration) -> Result<()> {
        eventually(&format!("{state:?}"), bound, || {
            let last = self.states().last().map(|(last, _)| *last);
            ensure!(last == Some(state), "{last:?}, after {:?}", self.lasted());
            Ok(())
        })
    }

    /// Fails unless these were the states, and each but the last held for at least the dwell time.
    pub(crate) fn expect(&self, expected: &[LinkState]) -> Result<()> {
        // The task that records states is not the prober's, so it may see a change late.
        const LATENESS: Duration = Duration::from_secs(2);
        self.expect_that(expected, |time| time >= DWELL - LATENESS)
    }

    /// Fails unless these were the states, and all but the last were shorter than the dwell time.
    pub(crate) fn expect_at_once(&self, expected: &[LinkState]) -> Result<()> {
        self.expect_that(expected, |time| time < DWELL)
    }

    fn expect_that(&self, expected: &[LinkState], lasted: impl Fn(Duration) -> bool) -> Result<()> {
        let states = self.lasted();
        ensure!(states.iter().map(|(state, _)| state).eq(expected), "{states:?}");
        // The first state began before the recording.
        let holds = states.iter().skip(1).all(|(_, time)| time.is_none_or(&lasted));
        ensure!(holds, "{states:?}");
        Ok(())
    }

    /// Every state so far with its duration; the last one has none yet.
    fn lasted(&self) -> Vec<(LinkState, Option<Duration>)> {
        let states = self.states();
        let ends = states.iter().skip(1).map(|(_, at)| Some(*at)).chain([None]);
        let ended =
            |((state, begun), end): (&(LinkState, Instant), Option<Instant>)| (*state, end.map(|end| end - *begun));
        states.iter().zip(ends).map(ended).collect()
    }

    fn states(&self) -> MutexGuard<'_, Vec<(LinkState, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
