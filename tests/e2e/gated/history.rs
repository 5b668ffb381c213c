//! Every version of a test's pods, in the order in which the API server stored them.

use std::sync::{Mutex, PoisonError};

use edgeward_harness::clients;
use edgeward_harness::prelude::*;
use futures::TryStreamExt as _;
use http::Request;
use kube::core::WatchEvent;
use tokio::task::JoinHandle;

/// A watch of the pods in a test's namespace. etcd orders all writes, and a watch delivers every one.
pub(crate) struct History<'s, 'run> {
    fixture: &'s Fixture<'run>,
    path: String,
    versions: Arc<Mutex<Vec<Value>>>,
    watch: JoinHandle<Result<()>>,
}

impl<'s, 'run> History<'s, 'run> {
    pub(crate) fn begin(fixture: &'s Fixture<'run>) -> Result<Self> {
        let path = format!("/api/v1/namespaces/{}/pods", fixture.namespace);
        let versions = Arc::<Mutex<Vec<Value>>>::default();
        let watch = fixture.runtime.block_on(async {
            let client = clients::client(fixture).await?;
            let list: Value = client.request(Request::get(&path).body(vec![])?).await?;
            let from = list["metadata"]["resourceVersion"].as_str().context("a version")?;
            // Longer than any test takes.
            let uri = format!("{path}?watch=true&timeoutSeconds=3600&resourceVersion={from}");
            let events = client.request_events::<Value>(Request::get(uri).body(vec![])?).await?;
            let versions = Arc::clone(&versions);
            anyhow::Ok(tokio::spawn(async move {
                let mut events = std::pin::pin!(events);
                while let Some(event) = events.try_next().await? {
                    match event {
                        WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod) => {
                            versions.lock().unwrap_or_else(PoisonError::into_inner).push(pod);
                        }
                        other => anyhow::bail!("{other:?}"),
                    }
                }
                anyhow::bail!("the watch is over")
            }))
        })?;
        Ok(Self {
            fixture,
            path,
            versions,
            watch,
        })
    }

    pub(crate) fn so_far(&self) -> Vec<Value> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn whole(&self) -> Result<Vec<Value>> {
        let raw = self.fixture.kubectl.run(&["get", "--raw", &self.path], "")?.stdout;
        let pods: Value = serde_json::from_str(&raw)?;
        let newest = pods["items"].as_array().into_iter().flatten().map(version).max();
        eventually("the watch has seen all there is", BOUND, || {
            ensure!(!self.watch.is_finished(), "the watch is over");
            let versions = self.so_far();
            let seen = versions.iter().map(version).max();
            ensure!(seen >= newest, "{seen:?} of {newest:?}");
            Ok(versions)
        })
    }
}

impl Drop for History<'_, '_> {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

fn version(pod: &Value) -> u64 {
    let version = pod["metadata"]["resourceVersion"].as_str();
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}
