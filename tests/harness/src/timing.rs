//! How long a test took, which libtest-mimic does not tell.

use std::fmt;
use std::time::{Duration, Instant};

/// Shorter ones are not worth a line.
const LONG: Duration = Duration::from_secs(10);

/// Runs the test of this name, and tells on stdout when it took long.
pub fn timed<T>(name: &str, run: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let ended = run();
    let took = started.elapsed();
    if took >= LONG {
        println!("time: {name} {:.1} s", took.as_secs_f64());
    }
    ended
}

/// The machine was too busy to tell whether edgeward does what it should: no failure, and no success.
#[derive(Debug)]
pub struct TooBusy(pub String);

impl fmt::Display for TooBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TooBusy {}
