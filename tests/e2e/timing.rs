//! How long a test takes, where that is long.

use std::time::{Duration, Instant};

/// From here on it is printed.
const LONG: Duration = Duration::from_secs(10);

/// Runs it, and prints its time in the form that `cargo xtask test` collects.
pub(crate) fn timed<T>(name: &str, run: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let ended = run();
    let took = begun.elapsed();
    if took >= LONG {
        println!("time: {name} {:.1} s", took.as_secs_f64());
    }
    ended
}
