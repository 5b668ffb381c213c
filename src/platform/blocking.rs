//! Work that takes the processor for long.

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
