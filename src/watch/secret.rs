//! Watches the contents of one Secret.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::instruments::metrics::Metrics;
use crate::tls::{Contents, stored};
use crate::watch::watcher;

/// Sends the contents of the Secret whenever they change. Never returns. Sends nothing before the Secret first
/// exists, and empty contents once it is gone. If the API server does not answer, the last contents stay. A failure
/// is logged, counted and retried after a pause.
pub async fn follow(
    client: Client,
    namespace: String,
    name: String,
    contents: watch::Sender<Option<Arc<Contents>>>,
    metrics: Arc<Metrics>,
) {
    let mut secrets = watcher::object(Api::<Secret>::namespaced(client, &namespace), &name);
    while let Some(secret) = secrets.next().await {
        let now = match secret {
            Ok(Some(secret)) => stored::contents(secret),
            Ok(None) => Contents::new(),
            Err(error) => {
                metrics.watch_failures.at(["secrets"]).inc();
                tracing::warn!(%error, namespace, name, "the Secret cannot be watched; what was seen last stays");
                continue;
            }
        };
        contents.send_if_modified(|known| {
            let has_changed = known.as_ref().map_or(!now.is_empty(), |known| **known != now);
            if has_changed {
                *known = Some(Arc::new(now));
            }
            has_changed
        });
    }
}
