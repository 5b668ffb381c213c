//! Waits for conditions, never for a fixed time.

use std::thread;

use crate::prelude::*;
use crate::process::Ended;

/// Long enough on a busy machine. A passing test never waits this long.
pub const BOUND: Duration = Duration::from_secs(120);

pub const TIMEOUT: &str = "--timeout=120s";

/// Repeats `observe` until it succeeds. After `bound`, returns its last error. Returns at once if a process that it waits for
/// has ended.
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
