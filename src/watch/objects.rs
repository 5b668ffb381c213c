//! Watches objects of custom resources while their CRD is installed.
//!
//! Without the CRD, this asks for it from time to time and reports nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use edgeward_cluster::engine::Change;
use futures::StreamExt as _;
use kube::runtime::watcher::{Config, Event};
use kube::{Client, Resource};
use tokio::sync::watch;

use crate::instruments::metrics::Metrics;
use crate::watch::raw::{Gvr, Raw};
use crate::watch::{Cluster, watcher};

/// How often to ask whether a CRD is installed.
pub(crate) const PERIOD: Duration = Duration::from_secs(10);

/// How often to retry a read that is forbidden.
pub(crate) const FORBIDDEN_PERIOD: Duration = Duration::from_secs(60);

/// Namespace and name.
pub(crate) type Key = (String, String);

/// Known objects of a kind.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen<T> {
    pub(crate) standing: Standing,
    /// Empty unless the objects are listed. During a new list, the objects of the previous one.
    pub(crate) objects: BTreeMap<Key, T>,
}

/// How much is known of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nothing is known yet.
    #[default]
    Pending,
    /// The CRD is not installed.
    NotInstalled,
    /// The CRD is installed, but we may not read its objects.
    Forbidden,
    /// All objects are known.
    Listed,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self::without_objects(Standing::default())
    }
}

impl<T> Seen<T> {
    pub(crate) fn without_objects(standing: Standing) -> Self {
        Self {
            standing,
            objects: BTreeMap::new(),
        }
    }

    /// All objects; `None` if they are not known.
    pub(crate) fn all(&self) -> Option<&BTreeMap<Key, T>> {
        let are_known = matches!(self.standing, Standing::Listed | Standing::NotInstalled);
        are_known.then_some(&self.objects)
    }
}

impl<T: PartialEq> Seen<T> {
    /// Applies an event. `read` extracts the known part of an object, given its previously known part. If `read`
    /// returns nothing, the object stays as it was. `listed` holds a list that has not ended. Returns whether the
    /// known objects changed.
    pub(crate) fn apply<K: Resource>(
        &mut self,
        event: Event<K>,
        listed: &mut BTreeMap<Key, T>,
        read: impl Fn(&K, Option<&T>) -> Option<T>,
    ) -> bool {
        match event {
            Event::Init => listed.clear(),
            Event::InitApply(object) => {
                let key = key(&object);
                let object = read(&object, self.objects.get(&key));
                listed.extend(object.map(|object| (key, object)));
            }
            Event::InitDone => {
                return self.becomes(Self {
                    standing: Standing::Listed,
                    objects: std::mem::take(listed),
                });
            }
            Event::Apply(object) => {
                let key = key(&object);
                let before = self.objects.get(&key);
                let now = read(&object, before).filter(|now| before != Some(now));
                let is_other = now.is_some();
                self.objects.extend(now.map(|now| (key, now)));
                return is_other;
            }
            Event::Delete(object) => return self.objects.remove(&key(&object)).is_some(),
        }
        false
    }

    fn becomes(&mut self, now: Self) -> bool {
        let is_other = *self != now;
        *self = now;
        is_other
    }
}

/// Whether missing rights to read the objects are a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rights {
    /// A failure: it is logged, counted and retried at once. Earlier objects stay known.
    Needed,
    /// Not a failure: reading is retried from time to time.
    Optional,
}

/// Follows all objects of this kind. Never returns. Keeps the known objects in this `part` of `all`. `read` extracts the
/// known part of an object, given its previously known part. A failure is logged, counted and retried after a pause.
pub(crate) async fn follow<T: PartialEq, A>(
    kind: Gvr,
    rights: Rights,
    client: &Client,
    metrics: &Metrics,
    read: impl Fn(&Raw, Option<&T>) -> Option<T>,
    all: &watch::Sender<A>,
    part: impl Fn(&mut A) -> &mut Seen<T>,
) {
    let mut last_error = String::new();
    loop {
        let standing = match is_installed(kind, client).await {
            Ok(true) => {
                let mut listed = BTreeMap::new();
                let apply = |event| {
                    all.send_if_modified(|all| part(all).apply(event, &mut listed, &read));
                };
                watch_until_impossible(kind, rights, client, metrics, apply).await
            }
            Ok(false) => Standing::NotInstalled,
            Err(error) => {
                watcher::count_and_log(kind.plural, error, &mut last_error, metrics);
                tokio::time::sleep(PERIOD).await;
                continue;
            }
        };
        last_error.clear();
        all.send_if_modified(|all| part(all).becomes(Seen::without_objects(standing)));
        let is_forbidden = standing == Standing::Forbidden;
        tokio::time::sleep(if is_forbidden { FORBIDDEN_PERIOD } else { PERIOD }).await;
    }
}

impl Cluster {
    /// Follows the objects of a kind that may not be installed or readable, and sends the `change` that their known parts make.
    /// Never returns. Calls `known` after each answer.
    pub(super) async fn follow_optional<T: PartialEq>(
        self,
        kind: Gvr,
        metrics: &Metrics,
        read: impl Fn(&Raw) -> Option<T>,
        change: impl Fn(&Seen<T>) -> Option<Change>,
        known: impl Fn(),
    ) {
        let (seen, mut objects) = watch::channel(Seen::default());
        let read = |object: &Raw, _: Option<&_>| read(object);
        let followed = follow(kind, Rights::Optional, &self.client, metrics, read, &seen, |seen| seen);
        let told = async {
            while objects.changed().await.is_ok() {
                let change = change(&objects.borrow_and_update());
                if let Some(change) = change {
                    self.changes.send(change).await;
                }
                known();
            }
        };
        tokio::join!(followed, told);
    }
}

/// Whether the API server serves the kind. Every authenticated user may ask this.
pub(crate) async fn is_installed(kind: Gvr, client: &Client) -> kube::Result<bool> {
    match client.list_api_group_resources(&Raw::api_version(&kind)).await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == kind.plural)),
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(false),
        Err(error) => Err(error),
    }
}

/// Status code if the API server does not know the kind.
const NOT_FOUND: u16 = 404;
/// Status code if we may not read the kind.
pub(crate) const FORBIDDEN: u16 = 403;

/// Watches the objects until this is impossible, and returns the standing at that time.
async fn watch_until_impossible(
    kind: Gvr,
    rights: Rights,
    client: &Client,
    metrics: &Metrics,
    mut apply: impl FnMut(Event<Raw>),
) -> Standing {
    let mut events = watcher::events(kind.all(client), Config::default());
    let mut last_error = String::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                watcher::recovered(&event, &mut last_error);
                apply(event);
            }
            Err(error) => match watcher::code(&error) {
                Some(FORBIDDEN) if rights == Rights::Optional => return Standing::Forbidden,
                Some(NOT_FOUND) => break,
                _ => watcher::count_and_log(kind.plural, error, &mut last_error, metrics),
            },
        }
    }
    Standing::NotInstalled
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&meta.namespace), text(&meta.name))
}
