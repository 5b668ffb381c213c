//! Statuses of our custom resources, written by one replica.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;

use crate::api::{SloPolicy, SloPolicyStatus};
use crate::policy::{Policies, Seen, Standing};

/// The shortest time between two looks at what is to be written.
const PAUSE: Duration = Duration::from_secs(1);

/// After how long it is tried again to write what could not be written.
const RETRY: Duration = Duration::from_secs(15);

/// Writes the status of each policy when it is another, for ever, while `holder` says that this replica is the one who
/// writes. Who becomes that writes all of them: what is the same already changes nothing.
pub async fn of_policies(
    mut policies: watch::Receiver<Arc<Policies>>,
    client: Client,
    mut holder: watch::Receiver<bool>,
) {
    let mut written = HashMap::new();
    loop {
        let mut is_complete = true;
        if *holder.borrow_and_update() {
            let now = Arc::clone(&policies.borrow_and_update());
            let mut statuses: HashMap<_, _> = now
                .standings()
                .map(|(seen, standing)| (key(seen), status(seen, standing)))
                .collect();
            written.retain(|key, _| statuses.contains_key(key));
            statuses.retain(|key, status| written.get(key) != Some(status));
            for ((namespace, name), status) in statuses {
                match write::<SloPolicy>(&client, &namespace, &name, &status).await {
                    true => drop(written.insert((namespace, name), status)),
                    false => is_complete = false,
                }
            }
        } else {
            written.clear();
        }
        tokio::time::sleep(PAUSE).await;
        tokio::select! {
            () = tokio::time::sleep(RETRY), if !is_complete => {}
            changed = policies.changed() => if changed.is_err() { return },
            changed = holder.changed() => if changed.is_err() { return },
        }
    }
}

fn key(seen: &Seen) -> (String, String) {
    (seen.namespace.clone(), seen.name.clone())
}

fn status(seen: &Seen, standing: Option<Standing>) -> SloPolicyStatus {
    let faults = seen
        .policy
        .as_ref()
        .err()
        .map(|faults| faults.0.iter().map(ToString::to_string).collect());
    let (overridden_by, overrides) = standing
        .map(|standing| (standing.overridden_by, standing.overrides))
        .unwrap_or_default();
    SloPolicyStatus {
        observed_generation: seen.generation,
        faults: faults.unwrap_or_default(),
        overridden_by,
        overrides,
    }
}

/// Whether it was written, or never can be. What the API server refuses is logged.
async fn write<K>(client: &Client, namespace: &str, name: &str, status: &impl Serialize) -> bool
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Merge(json!({ "status": status }));
    match api.patch_status(name, &PatchParams::default(), &patch).await {
        Ok(_) => true,
        // Deleted meanwhile.
        Err(Error::Api(status)) if status.code == 404 => true,
        Err(error) => {
            tracing::warn!(%error, namespace, name, "a status is not written");
            false
        }
    }
}
