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
pub(super) const PERIOD: Duration = Duration::from_secs(10);

/// How often it is tried to read what we may not.
pub(super) const FORBIDDEN_PERIOD: Duration = Duration::from_secs(60);

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
                watch(kind, &client, metrics, &read, &mut on_change, is_not_found).await;
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

/// What is known of the objects of a kind.
pub(super) enum Seen<'o, T> {
    /// Their definition is not installed.
    NotInstalled,
    /// It is, and we may not read them.
    Forbidden,
    /// All of them, and the key of the one that is another, or `None` where any may be.
    Objects(&'o BTreeMap<Key, T>, Option<&'o Key>),
}

/// The same for objects that we need not be allowed to read: that is no failure, and is asked again once in a while.
/// What `read` has of an object takes the place of what it had before.
pub(super) async fn follow_if_allowed<K, T: PartialEq>(
    kind: &'static str,
    client: Client,
    metrics: &Metrics,
    read: impl Fn(&Raw<K>) -> T,
    mut on_change: impl FnMut(Seen<'_, T>),
) where
    K: Resource<DynamicType = ()> + 'static,
    Raw<K>: DeserializeOwned,
{
    let read = |object: &Raw<K>| Some(read(object));
    loop {
        match is_installed::<K>(&client).await {
            Ok(true) => {
                let mut seen = |objects: Option<&BTreeMap<Key, T>>, one: Option<&Key>| {
                    on_change(objects.map_or(Seen::NotInstalled, |objects| Seen::Objects(objects, one)));
                };
                let ends = |error: &Error| is_not_found(error) || is_forbidden(error);
                let last = watch(kind, &client, metrics, &read, &mut seen, ends).await;
                if last.as_ref().is_some_and(is_forbidden) {
                    on_change(Seen::Forbidden);
                    tokio::time::sleep(FORBIDDEN_PERIOD).await;
                    continue;
                }
                on_change(Seen::NotInstalled);
            }
            Ok(false) => on_change(Seen::NotInstalled),
            Err(error) => {
                metrics.view.failure(kind);
                tracing::debug!(kind, %error, "cannot tell whether the custom resource is installed");
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

/// Until there is an error that `ends` it, which is returned.
async fn watch<K, T: PartialEq>(
    kind: &'static str,
    client: &Client,
    metrics: &Metrics,
    read: impl Fn(&Raw<K>) -> Option<T>,
    on_change: &mut impl FnMut(Option<&BTreeMap<Key, T>>, Option<&Key>),
    ends: impl Fn(&Error) -> bool,
) -> Option<Error>
where
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
            Err(error) if ends(&error) => return Some(error),
            Err(error) => watcher::count_and_log(kind, error, metrics),
        }
    }
    None
}

/// Whether the API server does not know the kind.
fn is_not_found(error: &Error) -> bool {
    code(error) == Some(404)
}

/// Whether it does not let us read it.
pub(super) fn is_forbidden(error: &Error) -> bool {
    code(error) == Some(403)
}

fn code(error: &Error) -> Option<u16> {
    let (Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error)) = error else {
        return None;
    };
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}
