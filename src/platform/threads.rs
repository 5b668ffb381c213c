//! Dedicated threads for one kind of task.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};

/// Threads with their own runtime. Dropping it ends the threads and their tasks.
#[derive(Debug)]
pub struct Threads {
    /// For spawning tasks on these threads.
    pub handle: Handle,
    /// Taken on drop.
    runtime: Option<Runtime>,
}

impl Threads {
    /// Starts `count` threads with this name.
    ///
    /// # Errors
    /// The system cannot create the threads.
    pub fn start(name: &str, count: usize) -> io::Result<Self> {
        let mut threads = Builder::new_multi_thread();
        let runtime = threads.worker_threads(count).thread_name(name).enable_all().build()?;
        Ok(Self {
            handle: runtime.handle().clone(),
            runtime: Some(runtime),
        })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A task of another runtime must not block until this one ends.
            runtime.shutdown_background();
        }
    }
}
