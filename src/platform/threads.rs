//! Threads for one kind of task.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// Threads with a runtime of their own. When it is dropped, they end, and their tasks with them.
#[derive(Debug)]
pub struct Threads {
    handle: Handle,
    /// Taken when it is dropped.
    runtime: Option<Runtime>,
}

impl Threads {
    /// Starts `count` threads of this name.
    ///
    /// # Errors
    /// The system gives none.
    pub fn start(name: &str, count: usize) -> io::Result<Self> {
        let mut threads = Builder::new_multi_thread();
        let runtime = threads.worker_threads(count).thread_name(name).enable_all().build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }

    /// Where their tasks are spawned.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A task of another runtime may not wait for the end of this one.
            runtime.shutdown_background();
        }
    }
}
