//! Objects of our custom resources, for as long as their definition is installed.
//!
//! An installation without the definitions asks once in a while whether they are there, and says nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::WatchParams;
use kube::runtime::watcher::{Error, Event};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::instruments::metrics::Metrics;
use crate::sources::raw::Raw;
use crate::sources::watcher::{self, Key, Known};

/// How often it is asked whether a definition is installed.
const PERIOD: Duration = Duration::from_secs(10);

/// Calls `on_change` with all objects of the kind `K`, by its plural, each as `read` has it, whenever they are others, and with the
/// key of the one that is, or `None` where any may be; with no objects while the definition is not installed, for the first
/// time when that is known. For ever; a failure is logged, counted and tried again after a pause.
pub(super) async fn follow<K, T: PartialEq>(
    kind: &'static str,
    client: Client,
    metrics: &Metrics,
    read: impl Fn(&Raw<K>) -> Option<T>,
    mut on_change: impl FnMut(Option<&BTreeMap<Key, T>>, Option<&Key>),
) where
    K: Resource<DynamicType = ()> + 'static,
    Raw<K>: DeserializeOwned,
{
    let mut last_error = String::new();
    loop {
        match is_installed::<K>(&client).await {
            Ok(true) => {
                last_error.clear();
                tracing::info!(kind, "the custom resource is installed");
                watch(kind, &client, metrics, &read, &mut on_change).await;
                tracing::info!(kind, "the custom resource is not installed any more");
                on_change(None, None);
            }
            Ok(false) => {
                last_error.clear();
                on_change(None, None);
            }
            Err(error) => {
                metrics.view.failure(kind);
                let error = format!("{:#}", anyhow::Error::from(error));
                if error != last_error {
                    tracing::warn!(kind, error, "cannot tell whether the custom resource is installed");
                    last_error = error;
                }
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Everybody who is known to the API server may ask this.
pub(crate) async fn is_installed<K: Resource<DynamicType = ()>>(client: &Client) -> kube::Result<bool> {
    match client.list_api_group_resources(&K::api_version(&())).await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == K::plural(&()))),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(error),
    }
}

/// Until the definition is not installed any more.
async fn watch<K, T: PartialEq>(
    kind: &'static str,
    client: &Client,
    metrics: &Metrics,
    read: impl Fn(&Raw<K>) -> Option<T>,
    on_change: &mut impl FnMut(Option<&BTreeMap<Key, T>>, Option<&Key>),
) where
    K: Resource<DynamicType = ()> + 'static,
    Raw<K>: DeserializeOwned,
{
    let all = Api::<Raw<K>>::all(client.clone());
    let mut events = watcher::events(all, WatchParams::default());
    let mut known = Known::nothing();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                let one = match &event {
                    Event::Apply(object) | Event::Delete(object) => Some(watcher::key(object)),
                    Event::Init | Event::InitApply(_) | Event::InitDone => None,
                };
                if known.apply(event, &read) {
                    on_change(Some(known.objects()), one.as_ref());
                }
            }
            Err(error) if is_not_found(&error) => return,
            Err(error) => watcher::count_and_log(kind, error, metrics),
        }
    }
}

/// Whether the API server does not know the kind.
fn is_not_found(error: &Error) -> bool {
    let (Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
