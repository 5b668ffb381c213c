//! What the replica that led last has kept of the clouds' nodes, read once at the start.

use std::time::Duration;

use edgeward_core::model::remembered_node::RememberedNode;
use edgeward_core::units::Now;
use edgeward_core::wire::remembered_nodes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, Error};

use crate::api::SITE_MEMORY_KEY;
use crate::platform::clock::Clock;

/// Between attempts, while the API server does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// How often a refusal is tried again: at an installation, rights may come after the program.
const REFUSALS: u32 = 10;

/// What the ConfigMap of this name has, read at this time; nothing where there is none.
///
/// # Errors
/// It cannot be read.
pub(crate) async fn get(maps: &Api<ConfigMap>, name: &str, clock: Clock) -> kube::Result<Vec<RememberedNode>> {
    let map = maps.get_opt(name).await?;
    let now = clock.now();
    Ok(map.map(|map| read(&map, now)).unwrap_or_default())
}

/// The same, for as long as the API server does not answer; one that does not allow it has nothing to tell.
pub(super) async fn follow(client: Client, namespace: &str, name: &str, clock: Clock) -> Vec<RememberedNode> {
    let maps = Api::namespaced(client, namespace);
    let mut fails = false;
    let mut refusals = 0;
    loop {
        match get(&maps, name, clock).await {
            Ok(nodes) => return nodes,
            Err(Error::Api(status)) if matches!(status.code, 401 | 403) && refusals < REFUSALS => {
                refusals += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(Error::Api(status)) if (400..500).contains(&status.code) && status.code != 429 => {
                let error = status.message;
                tracing::warn!(
                    namespace,
                    name,
                    error,
                    "what is remembered of clouds that are gone cannot be read; a pod that only they could hold goes to the edge"
                );
                return vec![];
            }
            Err(error) => {
                if !std::mem::replace(&mut fails, true) {
                    tracing::warn!(%error, namespace, name, "what is remembered of clouds cannot be read yet");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// What it has. What cannot be read is logged, and is nothing.
fn read(map: &ConfigMap, now: Now) -> Vec<RememberedNode> {
    let text = map.data.as_ref().and_then(|data| data.get(SITE_MEMORY_KEY));
    let Some(text) = text else { return vec![] };
    let read = serde_json::from_str(text).map_err(|error| error.to_string());
    let read = read.and_then(|document| remembered_nodes::read(&document, now).map_err(|faults| faults.to_string()));
    read.unwrap_or_else(|error| {
        tracing::warn!(
            error,
            "what is remembered of clouds is not as we write it, and is ignored"
        );
        vec![]
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_ours_is_nothing() {
        let now = Clock::start().now();
        let map =
            |text: &str| -> ConfigMap { serde_json::from_value(json!({"data": {SITE_MEMORY_KEY: text}})).unwrap() };
        let node = r#"{"nodes": [{"name": "v1", "labels": {"a": "b"}, "allocatable": {"pods": 1}}]}"#;
        assert_eq!(read(&map(node), now).len(), 1);
        for other in ["", "[]", r#"{"nodes": [{}]}"#] {
            assert!(read(&map(other), now).is_empty(), "{other}");
        }
        assert!(read(&ConfigMap::default(), now).is_empty());
    }
}
