//! The pods of a load, as a watch reports them.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use edgeward_harness::prelude::*;
use edgeward_kube::units::Micros;
use futures::TryStreamExt as _;
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use tokio::task::JoinHandle;

/// The label of the load's pods. Its value is the number of the task, or [`SERVICE`].
pub(super) const TASK: &str = "edgeward.test/task";
pub(super) const SERVICE: &str = "none";

pub(super) struct Pods {
    pub(super) begun: Instant,
    seen: Arc<Mutex<HashMap<String, Seen>>>,
    watching: JoinHandle<Result<()>>,
}

#[derive(Clone)]
pub(super) struct Seen {
    pub(super) namespace: String,
    pub(super) task: Option<usize>,
    pub(super) created: Micros,
    pub(super) gated: bool,
    pub(super) unschedulable: bool,
    pub(super) bound: Option<(Micros, String)>,
    pub(super) running: Option<Micros>,
    pub(super) done: Option<Micros>,
}

impl Pods {
    pub(super) fn watch(fixture: &Fixture<'_>, client: Client) -> Result<Self> {
        let seen = Arc::<Mutex<HashMap<String, Seen>>>::default();
        let all = Arc::clone(&seen);
        fixture.runtime.block_on(async move {
            let pods = format!("/api/v1/pods?labelSelector={TASK}");
            let list: Value = client.request(Request::get(&pods).body(vec![])?).await?;
            let from = list["metadata"]["resourceVersion"].as_str().context("a version")?;
            // Longer than the test takes.
            let uri = format!("{pods}&watch=true&timeoutSeconds=3600&resourceVersion={from}");
            let events = client.request_events::<Value>(Request::get(uri).body(vec![])?).await?;
            let begun = Instant::now();
            let watching = tokio::spawn(async move {
                let mut events = pin!(events);
                while let Some(event) = events.try_next().await? {
                    match event {
                        WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                            let at = Micros(begun.elapsed().as_micros() as u64);
                            see(&mut lock(&all), &pod, at).context("a pod of the load")?;
                        }
                        WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
                        WatchEvent::Error(error) => bail!("{error:?}"),
                    }
                }
                bail!("the watch is over")
            });
            Ok(Self { begun, seen, watching })
        })
    }

    /// Returns the pods seen so far. Fails if the watch has ended.
    pub(super) fn so_far(&self) -> Result<Vec<Seen>> {
        ensure!(!self.watching.is_finished(), "the watch is over");
        Ok(lock(&self.seen).values().cloned().collect())
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records a version of a pod. Returns `None` if the version lacks a field.
fn see(all: &mut HashMap<String, Seen>, pod: &Value, at: Micros) -> Option<()> {
    let metadata = &pod["metadata"];
    let (uid, namespace) = (metadata["uid"].as_str()?, metadata["namespace"].as_str()?);
    let task = metadata["labels"][TASK].as_str()?;
    let seen = all.entry(uid.to_owned()).or_insert_with(|| Seen {
        namespace: namespace.to_owned(),
        task: task.parse().ok(),
        created: at,
        gated: false,
        unschedulable: false,
        bound: None,
        running: None,
        done: None,
    });
    seen.gated |= is_gated(pod);
    seen.unschedulable |= is_unschedulable(pod);
    if let (None, Some(node)) = (&seen.bound, pod["spec"]["nodeName"].as_str()) {
        seen.bound = Some((at, node.to_owned()));
    }
    match pod["status"]["phase"].as_str()? {
        "Running" => seen.running = seen.running.or(Some(at)),
        "Succeeded" => seen.done = seen.done.or(Some(at)),
        _ => {}
    }
    Some(())
}
