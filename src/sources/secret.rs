//! What is in one Secret.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::instruments::metrics::Metrics;
use crate::sources::watch::events;

/// By key.
type Contents = BTreeMap<String, Vec<u8>>;

/// Publishes what is in the Secret whenever it is another, for ever; nothing before it exists for the first time, and that there is
/// nothing in it once it is gone. An API server that does not answer leaves what was published last. A failure is logged, counted
/// and tried again after a pause.
pub async fn follow(
    client: Client,
    namespace: &str,
    name: &str,
    contents: watch::Sender<Option<Arc<Contents>>>,
    metrics: &Metrics,
) {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let mut events = pin!(events(api, Config::default().fields(&format!("metadata.name={name}"))));
    let publish = |now: Contents| {
        contents.send_if_modified(|known| {
            let has_changed = match known {
                Some(known) => **known != now,
                None => !now.is_empty(),
            };
            if has_changed {
                *known = Some(Arc::new(now));
            }
            has_changed
        })
    };
    let mut exists = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => exists = false,
            Ok(Event::InitApply(secret) | Event::Apply(secret)) => {
                exists = true;
                let data = secret.data.unwrap_or_default().into_iter();
                publish(data.map(|(key, value)| (key, value.0)).collect());
            }
            Ok(Event::InitDone) if exists => {}
            Ok(Event::InitDone | Event::Delete(_)) => drop(publish(Contents::new())),
            Err(error) => {
                metrics.view().failure("secrets");
                tracing::warn!(%error, namespace, name, "the Secret cannot be watched; what was seen last stays");
            }
        }
    }
}
