//! What is in one Secret.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::instruments::metrics::Metrics;
use crate::sources::watcher;
use crate::tls::{Contents, stored};

/// Tells what is in the Secret whenever it is another, for ever; nothing before it exists for the first time, and that there is
/// nothing in it once it is gone. An API server that does not answer leaves what was told last. A failure is logged, counted
/// and tried again after a pause.
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
            let has_changed = match known {
                Some(known) => **known != now,
                None => !now.is_empty(),
            };
            if has_changed {
                *known = Some(Arc::new(now));
            }
            has_changed
        });
    }
}
