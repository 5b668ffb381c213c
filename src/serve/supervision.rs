//! Supervises background tasks and reports when one ends.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use anyhow::anyhow;
use futures::FutureExt as _;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::platform::threads::Threads;

/// A task that runs as long as the server. If it ends, fails or panics before it is stopped, the process ends with an
/// error that names it. When the server stops a task, the task is cancelled at an await point, which is not an error.
pub struct Task {
    name: &'static str,
    is_graceful: bool,
    /// Thread to run on; `None` for the current runtime.
    thread: Option<Arc<Threads>>,
    future: Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>,
}

impl Task {
    /// A task that may fail. `name` identifies it in the report of its end, such as `fleet file`.
    pub fn new(name: &'static str, future: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> Self {
        Self {
            name,
            is_graceful: false,
            thread: None,
            future: Box::pin(future),
        }
    }

    /// A task that cannot fail.
    pub fn endless(name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self::new(name, future.map(Ok))
    }

    /// A task that notices by itself that the server drains, finishes its work, and ends. The server waits for it no
    /// longer than for requests in flight.
    pub fn graceful(name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> Self {
        Self {
            is_graceful: true,
            ..Self::endless(name, future)
        }
    }

    /// Runs the task on this thread and keeps the thread alive as long as the task.
    pub(super) fn on(self, thread: &Arc<Threads>) -> Self {
        Self {
            thread: Some(Arc::clone(thread)),
            ..self
        }
    }
}

/// The running tasks. Dropping this stops them.
#[derive(Debug, Default)]
pub(super) struct Supervisor {
    tasks: JoinSet<Ended>,
    /// How many of the running tasks are graceful.
    pub(super) graceful: usize,
}

/// A task that ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) name: &'static str,
    /// Whether the task ends by itself when the server drains.
    pub(super) is_graceful: bool,
    pub(super) result: anyhow::Result<()>,
}

impl Supervisor {
    pub(super) fn spawn(&mut self, task: Task) {
        self.graceful += usize::from(task.is_graceful);
        let thread = task.thread.as_ref();
        let runtime = thread.map_or_else(Handle::current, |thread| thread.handle.clone());
        let ended = async move {
            let result = AssertUnwindSafe(task.future).catch_unwind().await;
            drop(task.thread);
            Ended {
                name: task.name,
                is_graceful: task.is_graceful,
                result: result.unwrap_or_else(|panic| Err(anyhow!("panicked: {}", panic_message(&*panic)))),
            }
        };
        self.tasks.spawn_on(ended, &runtime);
    }

    /// Waits for the next task that ends, and returns its name and result. Never returns when no task is left.
    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Ended {
        while let Some(joined) = self.tasks.join_next().await {
            // Nothing else cancels a task.
            if let Ok(ended) = joined {
                self.graceful -= usize::from(ended.is_graceful);
                return ended;
            }
        }
        std::future::pending().await
    }

    /// Cancels every task and waits until none runs.
    pub(super) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn end_of(future: impl Future<Output = anyhow::Result<()>> + Send + 'static) -> (&'static str, String) {
        let mut supervisor = Supervisor::default();
        supervisor.spawn(Task::new("idle", std::future::pending()));
        supervisor.spawn(Task::new("watched", future));
        let ended = supervisor.next().await;
        assert_eq!(supervisor.tasks.len(), 1);
        supervisor.stop().await;
        let how = ended
            .result
            .map_or_else(|error| format!("{error:#}"), |()| "ended".to_owned());
        (ended.name, how)
    }

    #[tokio::test]
    async fn supervised_thread_runs_until_its_last_task_ends() {
        let thread = Arc::new(Threads::start("view", 1).unwrap());
        let (sender, dropped) = tokio::sync::oneshot::channel::<()>();
        thread.handle.spawn(async {
            let _dropped = sender;
            std::future::pending::<()>().await;
        });
        let mut supervisor = Supervisor::default();
        let (end, ends) = tokio::sync::oneshot::channel();
        let task = async { Err(anyhow!("{} by {:?}", ends.await?, std::thread::current().name())) };
        supervisor.spawn(Task::new("one", task).on(&thread));
        drop(thread);
        end.send("ended").unwrap();
        let ended = supervisor.next().await.result.unwrap_err();
        assert_eq!(ended.to_string(), r#"ended by Some("view")"#);
        let dropped = tokio::time::timeout(Duration::from_secs(30), dropped).await;
        assert!(dropped.unwrap().is_err());
    }

    #[tokio::test]
    async fn every_task_end_is_reported_with_task_name() {
        assert_eq!(end_of(async { Ok(()) }).await, ("watched", "ended".to_owned()));
        assert_eq!(
            end_of(async { Err(anyhow!("no disk")) }).await,
            ("watched", "no disk".to_owned())
        );
        assert_eq!(
            end_of(async { panic!("a bug") }).await,
            ("watched", "panicked: a bug".to_owned())
        );
    }
}
