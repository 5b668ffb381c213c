//! Pods that are created all the time, one after the other, each with a handshake of its own between the API server and
//! edgeward.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::clients::client;
use crate::patience::{BOUND, eventually};
use crate::relay::Relay;
use crate::scene::Scene;
use crate::workloads;

/// Creations while this lives. They are dry runs: admission is the same, and they leave no pods.
pub(crate) struct Creations {
    tally: Arc<Mutex<Tally>>,
    task: JoinHandle<()>,
}

/// What came of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) created: usize,
    /// Of those created, how many have no decision.
    pub(crate) undecided: usize,
    /// Not created.
    pub(crate) failed: usize,
    /// Why the last of these failed.
    error: Option<String>,
}

impl Creations {
    /// Begins, and returns when the first is decided. The API server's way to edgeward is the relay.
    pub(crate) fn begin(scene: &Scene<'_>, relay: &Relay) -> Result<Self> {
        let client = scene.runtime.block_on(client(scene))?;
        let path = format!("/api/v1/namespaces/{}/pods?dryRun=All", scene.namespace);
        let pod = workloads::pod("created", workloads::batch()).to_string();
        eventually("the API server calls the webhook", BOUND, || {
            let decided = scene.runtime.block_on(is_decided(&client, &path, &pod))?;
            ensure!(decided, "it does not");
            Ok(())
        })?;
        let tally = Arc::<Mutex<Tally>>::default();
        let (way, counted) = (relay.way(), Arc::clone(&tally));
        let task = scene.runtime.spawn(async move {
            loop {
                // Nothing is on its way between two creations.
                way.cut().await;
                let decided = is_decided(&client, &path, &pod).await;
                let mut tally = counted.lock().unwrap_or_else(PoisonError::into_inner);
                match decided {
                    Ok(decided) => {
                        tally.created += 1;
                        tally.undecided += usize::from(!decided);
                    }
                    Err(error) => {
                        tally.failed += 1;
                        tally.error = Some(format!("{error:#}"));
                    }
                }
            }
        });
        Ok(Self { tally, task })
    }

    /// Takes a step, waits until ten more pods have been created after it, and tells what came of all since it began.
    pub(crate) fn during<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<(T, Tally)> {
        const MORE: usize = 10;
        let before = self.tally();
        let done = step()?;
        let enough = self.tally().created + MORE;
        eventually("pods are created", BOUND, || {
            let tally = self.tally();
            ensure!(tally.created >= enough, "{tally}");
            Ok(())
        })?;
        let after = self.tally();
        let since = Tally {
            created: after.created - before.created,
            undecided: after.undecided - before.undecided,
            failed: after.failed - before.failed,
            error: after.error,
        };
        Ok((done, since))
    }

    fn tally(&self) -> Tally {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Creations {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tally {
    /// Every pod was created, with a decision.
    pub(crate) fn is_perfect(&self) -> Result<()> {
        ensure!(self.undecided + self.failed == 0, "{self}");
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            created,
            undecided,
            failed,
            error,
        } = self;
        write!(
            f,
            "{created} pods created, {undecided} of them undecided, {failed} failed"
        )?;
        error.iter().try_for_each(|error| write!(f, " ({error})"))
    }
}

async fn is_decided(client: &Client, path: &str, pod: &str) -> Result<bool> {
    let request = Request::post(path).header("content-type", "application/json");
    let pod = client.request::<Value>(request.body(pod.as_bytes().to_vec())?).await;
    let pod = pod.context("a pod was not created")?;
    Ok(pod["metadata"]["annotations"]["scheduling.example.io/reason"].is_string())
}
