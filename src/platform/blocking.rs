//! Work that occupies a processor for long.

use std::time::Duration;

use super::clock::Clock;

/// Runs `work` on a thread for blocking work, so that the runtime's workers stay free. A panic in `work` continues in
/// the caller. Dropping the future does not stop the work; its result is then discarded.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The work never started: the runtime is shutting down.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Waits for `work`, then pauses for three times as long as it took. A loop around this uses at most a quarter of a
/// processor.
pub async fn at_leisure<T>(clock: Clock, work: impl Future<Output = T>) -> T {
    let began = clock.moment();
    let done = work.await;
    let took = Duration::from_micros(clock.moment().since(began).0);
    tokio::time::sleep(3 * took).await;
    done
}
