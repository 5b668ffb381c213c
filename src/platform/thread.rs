//! Tasks that have a thread to themselves.

use std::io;
use std::sync::mpsc;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// A thread with a runtime of its own, whose tasks wake one another without a call of the system. Dropped, it ends, and its tasks
/// with it.
#[derive(Debug)]
pub struct Thread {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
}

impl Thread {
    /// Starts one of this name.
    ///
    /// # Errors
    /// The system gives none.
    pub fn start(name: &str) -> io::Result<Self> {
        let (begin, begun) = mpsc::channel();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Made here, for a runtime must not be dropped by a task of another.
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(begin.send(Err(error))),
            };
            let _ = begin.send(Ok(runtime.handle().clone()));
            // It fails when the sender is dropped, which is the word to stop.
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        })?;
        Ok(Self {
            runtime: begun.recv().map_err(io::Error::other)??,
            _stop: stop,
        })
    }

    /// Where its tasks are spawned.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }
}
