//! Background controllers. They are the only code of a serving replica that writes to the API server.

pub mod backstop;
pub mod certificates;
pub mod events;
pub mod executor;
pub mod gate;
pub mod lease;
pub mod moves;
pub mod neighbourhoods;
pub mod ocm;
pub mod peers;
mod pod_patch;
pub mod report;
pub mod status;

use std::fmt::Debug;
use std::sync::Arc;

use arc_swap::ArcSwap;
use edgeward_cluster::engine::SharedState;
use edgeward_decision::config::Config;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;

/// Merges this status into the object's, which is created if it is missing. For kinds that only edgeward writes.
async fn write_status<K>(api: &Api<K>, object: &K, status: &impl Serialize) -> kube::Result<()>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let name = object.meta().name.as_deref().unwrap_or_default();
    let patch = Patch::Merge(json!({ "status": status }));
    match api.patch_status(name, &PatchParams::default(), &patch).await {
        Err(Error::Api(failure)) if failure.code == 404 => {
            api.create(&PostParams::default(), object).await?;
            api.patch_status(name, &PatchParams::default(), &patch).await.map(drop)
        }
        patched => patched.map(drop),
    }
}

/// What the controllers of a replica share.
#[derive(Clone)]
pub struct Context {
    /// Client of the watched cluster.
    pub client: Client,
    /// Current configuration.
    pub config: Arc<ArcSwap<Config>>,
    /// Snapshot and ledger of the engine.
    pub shared: Arc<SharedState>,
    /// Accepts Events to be written.
    pub events: events::Events,
    /// Whether this replica holds the Lease.
    pub leadership: lease::Leadership,
    /// The process's clock.
    pub clock: Clock,
    /// The process's metrics.
    pub metrics: Arc<Metrics>,
}
