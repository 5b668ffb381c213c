//! SloPolicies, watched and published as one value.

use std::sync::Arc;

use arc_swap::ArcSwap;
use edgeward_core::placement::policy::{Policies, Policy, Seen};
use kube::{Client, Resource as _};
use serde_json::Value;
use tokio::sync::watch;

use crate::api::SloPolicy;
use crate::instruments::metrics::Metrics;
use crate::sources::objects;
use crate::sources::raw::Raw;

/// Publishes the policies of the cluster, while the custom resource is installed; none otherwise.
#[derive(Debug, Default)]
pub struct SloPolicies {
    current: Arc<ArcSwap<Policies>>,
    versions: watch::Sender<Arc<Policies>>,
}

impl SloPolicies {
    /// The policies in use, always the newest.
    pub fn current(&self) -> Arc<ArcSwap<Policies>> {
        Arc::clone(&self.current)
    }

    /// The same for those who wait.
    pub fn versions(&self) -> watch::Receiver<Arc<Policies>> {
        self.versions.subscribe()
    }

    /// Follows them, for ever. Calls `listed` once all were listed, or are known not to exist.
    pub async fn follow(self, client: Client, metrics: Arc<Metrics>, listed: impl FnOnce()) {
        let mut listed = Some(listed);
        objects::follow("slopolicies", client, &metrics, read, |seen| {
            let seen = seen.into_iter().flat_map(|seen| seen.values().cloned());
            let policies = Arc::new(Policies::of(seen));
            if policies != *self.current.load() {
                self.current.store(Arc::clone(&policies));
                tracing::info!(in_force = policies.len(), "policies changed");
                self.versions.send_replace(policies);
            }
            if let Some(listed) = listed.take() {
                listed();
            }
        })
        .await;
    }
}

/// An SloPolicy as it was read. One with faults is logged.
pub(crate) fn read(object: &Raw<SloPolicy>) -> Option<Arc<Seen>> {
    let meta = object.meta();
    let (namespace, name) = (meta.namespace.clone()?, meta.name.clone()?);
    // The API server sends JSON.
    let value: Value = serde_json::from_str(object.json()).ok()?;
    let policy = Policy::read(&value);
    if let Err(faults) = &policy {
        tracing::warn!(namespace, name, error = %faults, "an SloPolicy is not in force");
    }
    Some(Arc::new(Seen {
        namespace,
        name,
        generation: value["metadata"]["generation"].as_i64(),
        policy,
    }))
}
