//! Readiness: named requirements that must be met before the first decision.

use std::sync::Arc;

use tokio::sync::watch;

use crate::admission::Phase;

/// Listed by `/readyz` while a server that was asked to stop still serves.
const DRAINING: &str = "draining";

/// Requirements that a server waits for before it decides. Clones share them. Without requirements it is ready.
///
/// A requirement is met once and for good. Data that goes stale later is handled by the decision, which falls back to
/// the edge. If replicas turned unready when their data ages, all of them would do so together.
#[derive(Debug, Clone, Default)]
pub struct Readiness(Arc<watch::Sender<Phase>>);

/// A requirement to be met; see [`Readiness::require`].
#[derive(Debug)]
#[must_use = "a requirement that is never met keeps the server from ever being ready"]
pub struct Requirement {
    name: &'static str,
    readiness: Readiness,
}

impl Readiness {
    /// Adds a requirement. `name` appears in `/readyz`, so use words that an operator knows, such as `fleet file`.
    pub fn require(&self, name: &'static str) -> Requirement {
        self.0.send_modify(|phase| phase.missing.push(name));
        Requirement {
            name,
            readiness: self.clone(),
        }
    }

    /// Unmet requirements in the order in which they were added, and `draining` after [`Readiness::drain`]. Empty
    /// means ready.
    pub fn missing(&self) -> Vec<&'static str> {
        let phase = self.0.borrow();
        let draining = phase.is_draining.then_some(DRAINING);
        phase.missing.iter().copied().chain(draining).collect()
    }

    /// Marks the server as not ready because it was asked to stop. Requests are still decided.
    pub fn drain(&self) {
        self.0.send_modify(|phase| phase.is_draining = true);
    }

    /// How the admission endpoint treats reviews, now and after every change.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.0.subscribe()
    }

    /// Waits until [`Readiness::phase`] is like this. Cancel-safe.
    pub fn reaches<F: FnMut(&Phase) -> bool>(&self, is_reached: F) -> impl Future<Output = ()> + use<F> {
        let mut phase = self.phase();
        async move {
            if phase.wait_for(is_reached).await.is_err() {
                std::future::pending().await
            }
        }
    }
}

impl Requirement {
    /// Marks the requirement as met. Further calls have no effect.
    pub fn met(&self) {
        let is_first = self.readiness.0.send_if_modified(|phase| {
            let before = phase.missing.len();
            phase.missing.retain(|missing| *missing != self.name);
            phase.missing.len() < before
        });
        if is_first {
            tracing::info!(requirement = self.name, "ready");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirement_is_missing_until_it_is_met() {
        let readiness = Readiness::default();
        assert!(readiness.missing().is_empty());
        let fleet = readiness.require("fleet file");
        let nodes = readiness.require("nodes");
        assert_eq!(readiness.missing(), ["fleet file", "nodes"]);
        fleet.met();
        assert_eq!(readiness.missing(), ["nodes"]);
        readiness.drain();
        assert_eq!(readiness.missing(), ["nodes", "draining"]);
        nodes.met();
        assert!(readiness.phase().borrow().missing.is_empty());
    }
}
