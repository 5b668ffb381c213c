//! Readiness: named requirements that must be met before the first decision.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::admission::Phase;

/// Listed by `/readyz` while a server that was asked to stop still serves.
const DRAINING: &str = "draining";

/// Requirements that a server waits for before it decides. Clones share them.
///
/// A requirement is met once and for good. Data that goes stale later is handled by the decision, which falls back to
/// the edge. If replicas turned unready when their data ages, all of them would do so together.
#[derive(Debug, Clone)]
pub struct Readiness(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    missing: Mutex<Vec<&'static str>>,
    phase: watch::Sender<Phase>,
}

/// A requirement to be met; see [`Readiness::require`].
#[derive(Debug)]
#[must_use = "a requirement that is never met keeps the server from ever being ready"]
pub struct Requirement {
    name: &'static str,
    readiness: Readiness,
}

/// Starts without requirements, which means ready.
impl Default for Readiness {
    fn default() -> Self {
        Self(Arc::new(Shared {
            missing: Mutex::default(),
            phase: watch::Sender::new(Phase::Serving),
        }))
    }
}

impl Readiness {
    /// Adds a requirement. `name` appears in `/readyz`, so use words that an operator knows, such as `fleet file`.
    pub fn require(&self, name: &'static str) -> Requirement {
        self.change(|missing| missing.push(name));
        Requirement {
            name,
            readiness: self.clone(),
        }
    }

    /// Unmet requirements in the order in which they were added, and `draining` after [`Readiness::drain`]. Empty
    /// means ready.
    pub fn missing(&self) -> Vec<&'static str> {
        let mut missing = self.lock().clone();
        if *self.0.phase.borrow() == Phase::Draining {
            missing.push(DRAINING);
        }
        missing
    }

    /// Marks the server as not ready because it was asked to stop. Requests are still decided.
    pub fn drain(&self) {
        self.0.phase.send_replace(Phase::Draining);
    }

    /// How the admission endpoint treats reviews, now and after every change. Draining takes precedence, so that a
    /// server that never became ready closes its connections as well.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.0.phase.subscribe()
    }

    /// Waits until all requirements except this one are met. Cancel-safe.
    pub fn all_but(&self, name: &'static str) -> impl Future<Output = ()> + use<> {
        let (readiness, mut changed) = (self.clone(), self.phase());
        async move {
            while readiness.missing().iter().any(|missing| *missing != name) {
                if changed.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<&'static str>)) {
        let mut missing = self.lock();
        change(&mut missing);
        self.0.phase.send_modify(|phase| match phase {
            Phase::Draining => {}
            _ if missing.is_empty() => *phase = Phase::Serving,
            _ => *phase = Phase::NotReady,
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.0.missing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Requirement {
    /// Marks the requirement as met.
    pub fn met(self) {
        self.readiness.change(|missing| {
            if let Some(index) = missing.iter().position(|name| *name == self.name) {
                missing.remove(index);
            }
        });
        tracing::info!(requirement = self.name, "ready");
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn what_is_missing_has_a_name_until_it_is_met() {
        let readiness = Readiness::default();
        let phase = readiness.phase();
        assert_eq!((readiness.missing(), *phase.borrow()), (vec![], Phase::Serving));
        let fleet = readiness.require("fleet file");
        let nodes = readiness.require("nodes");
        assert_eq!(
            (readiness.missing(), *phase.borrow()),
            (vec!["fleet file", "nodes"], Phase::NotReady)
        );
        fleet.met();
        assert_eq!((readiness.missing(), *phase.borrow()), (vec!["nodes"], Phase::NotReady));
        nodes.met();
        assert_eq!((readiness.missing(), *phase.borrow()), (vec![], Phase::Serving));
        readiness.drain();
        assert_eq!(
            (readiness.missing(), *phase.borrow()),
            (vec!["draining"], Phase::Draining)
        );
    }

    #[tokio::test]
    async fn all_but_one_may_be_waited_for() {
        let readiness = Readiness::default();
        let (view, certificate) = (readiness.require("view"), readiness.require("certificate"));
        let mut waiting = std::pin::pin!(readiness.all_but("certificate"));
        assert!(waiting.as_mut().now_or_never().is_none());
        view.met();
        waiting.await;
        assert_eq!(*readiness.phase().borrow(), Phase::NotReady);
        certificate.met();
    }
}
