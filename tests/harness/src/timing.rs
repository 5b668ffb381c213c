//! Prints how long a test took, which libtest-mimic does not do.

use std::fmt;
use std::time::{Duration, Instant};

/// Shorter tests are not printed.
const LONG: Duration = Duration::from_secs(10);

/// Runs the test of this name and prints its duration if it was long.
pub fn timed<T>(name: &str, run: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let ended = run();
    let took = started.elapsed();
    if took >= LONG {
        println!("time: {name} {:.1} s", took.as_secs_f64());
    }
    ended
}

/// An inconclusive result: the machine was too busy to tell whether edgeward works.
#[derive(Debug)]
pub struct TooBusy(pub String);

impl fmt::Display for TooBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TooBusy {}
