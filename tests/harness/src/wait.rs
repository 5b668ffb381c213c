//! Waiting for a condition, never for a while.

use std::thread;

use crate::prelude::*;
use crate::process::Ended;

/// Long enough for cores that others use, too; nothing waits this long when all is well.
pub const BOUND: Duration = Duration::from_secs(120);

pub const TIMEOUT: &str = "--timeout=120s";

/// Repeats `observe` until it succeeds; its error is the observation. After `bound` the last one is reported, and at
/// once when a process has ended that was waited for.
pub fn eventually<T>(what: &str, bound: Duration, mut observe: impl FnMut() -> Result<T>) -> Result<T> {
    const PAUSE: Duration = Duration::from_millis(100);
    let deadline = Instant::now() + bound;
    loop {
        match observe() {
            Err(error) if error.is::<Ended>() => return Err(error.context(what.to_owned())),
            Err(error) if Instant::now() >= deadline => {
                return Err(error.context(format!("not within {bound:?}: {what}; last seen")));
            }
            Err(_) => thread::sleep(PAUSE),
            Ok(observed) => return Ok(observed),
        }
    }
}
