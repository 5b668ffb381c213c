//! Work that takes the processor for long.

use std::time::Duration;

use super::clock::Clock;

/// Does this on a thread for blocking work, so that the runtime's workers go on meanwhile. A panic goes on here. Whoever
/// stops waiting does not end the work; its result is dropped.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // It never began: the runtime ends.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Waits for this work, and then three times as long as it took, but at least for this pause: who does it again and again takes a
/// quarter of a processor at most.
pub async fn at_leisure<T>(clock: Clock, pause: Duration, work: impl Future<Output = T>) -> T {
    let began = clock.moment();
    let done = work.await;
    let took = Duration::from_micros(clock.moment().since(began).0);
    tokio::time::sleep(pause.max(3 * took)).await;
    done
}
