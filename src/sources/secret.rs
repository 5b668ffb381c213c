//! What is in one Secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::sync::watch;

use crate::instruments::metrics::Metrics;
use crate::sources::watch::{begin_anew, is_gone, open_seconds, pauses};

/// By key.
type Contents = BTreeMap<String, Vec<u8>>;

/// Tells what is in the Secret whenever it is another, for ever; nothing before it exists for the first time, and that there is
/// nothing in it once it is gone. An API server that does not answer leaves what was told last. A failure is logged, counted
/// and tried again after a pause.
pub async fn follow(
    client: Client,
    namespace: &str,
    name: &str,
    told: watch::Sender<Option<Arc<Contents>>>,
    metrics: &Metrics,
) {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let only = watcher::Config::default()
        .timeout(open_seconds())
        .fields(&format!("metadata.name={name}"));
    let watch = || watcher(api.clone(), only.clone()).backoff(pauses()).boxed();
    let tell = |contents: Contents| {
        told.send_if_modified(|known| {
            let is_news = match known {
                Some(known) => **known != contents,
                None => !contents.is_empty(),
            };
            if is_news {
                *known = Some(Arc::new(contents));
            }
            is_news
        })
    };
    let mut events = watch();
    let mut exists = false;
    loop {
        match events.try_next().await {
            Ok(Some(Event::Init)) => exists = false,
            Ok(Some(Event::InitApply(secret) | Event::Apply(secret))) => {
                exists = true;
                let data = secret.data.unwrap_or_default().into_iter();
                tell(data.map(|(key, value)| (key, value.0)).collect());
            }
            Ok(Some(Event::InitDone)) if exists => {}
            Ok(Some(Event::InitDone | Event::Delete(_))) => drop(tell(Contents::new())),
            Ok(None) => {}
            Err(error) => {
                metrics.view().failure("secrets");
                if is_gone(&error) {
                    begin_anew().await;
                    events = watch();
                }
                tracing::warn!(%error, namespace, name, "the Secret cannot be watched; what was seen last stays");
            }
        }
    }
}
