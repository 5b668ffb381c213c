//! Waiting for a condition, never for a while.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::process::Ended;

/// Long enough for two busy cores; nothing waits this long when all is well.
pub(crate) const BOUND: Duration = Duration::from_secs(45);

/// Repeats `observe` until it succeeds; its error is the observation. After `bound` the last one is reported, and at
/// once when a process has ended that was waited for.
pub(crate) fn eventually<T>(what: &str, bound: Duration, mut observe: impl FnMut() -> Result<T>) -> Result<T> {
    const PAUSE: Duration = Duration::from_millis(100);
    let deadline = Instant::now() + bound;
    loop {
        let observed = observe();
        let hopeless = observed.as_ref().is_err_and(|error| error.is::<Ended>());
        if observed.is_ok() || hopeless || Instant::now() >= deadline {
            return observed.with_context(|| format!("not within {bound:?}: {what}; last seen"));
        }
        thread::sleep(PAUSE);
    }
}
