//! Objects of custom resources, for as long as their definition is installed.
//!
//! An installation without the definitions asks once in a while whether they are there, and says nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use kube::runtime::watcher::{Config, Event};
use kube::{Client, Resource};

use crate::instruments::metrics::Metrics;
use crate::sources::raw::{Gvr, Raw};
use crate::sources::watcher;

/// How often it is asked whether a definition is installed.
pub(super) const PERIOD: Duration = Duration::from_secs(10);

/// How often it is tried to read what we may not.
pub(super) const FORBIDDEN_PERIOD: Duration = Duration::from_secs(60);

/// Namespace and name.
pub(super) type Key = (String, String);

/// What is known of the objects of a kind.
#[derive(Debug, PartialEq)]
pub(super) struct Seen<T> {
    pub(super) standing: Standing,
    /// None, unless they are listed. While they are listed again, as they were before.
    pub(super) objects: BTreeMap<Key, T>,
}

/// How much is known of a kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing yet.
    #[default]
    Pending,
    /// Its definition is not installed.
    NotInstalled,
    /// It is, and we may not read its objects.
    Forbidden,
    /// All its objects.
    Listed,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self::without_objects(Standing::default())
    }
}

impl<T> Seen<T> {
    pub(super) fn without_objects(standing: Standing) -> Self {
        Self {
            standing,
            objects: BTreeMap::new(),
        }
    }

    /// All objects; `None` where they are not known.
    pub(super) fn all(&self) -> Option<&BTreeMap<Key, T>> {
        let are_known = matches!(self.standing, Standing::Listed | Standing::NotInstalled);
        are_known.then_some(&self.objects)
    }
}

impl<T: PartialEq> Seen<T> {
    /// Something was told of an object, of which `read` takes what is to be known, beside what was known of it; an object of which
    /// it takes nothing stays as it was. A list that has not ended is in `listed`. Whether something else is known now.
    pub(super) fn apply<K: Resource>(
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

/// Whether it is a failure that we may not read objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rights {
    /// It is logged, counted and tried again at once; what was seen before stays.
    Needed,
    /// It is tried again once in a while.
    Optional,
}

/// Sees all objects of this kind for ever: `change` is called with what changes what was seen and tells whether it did.
/// Of an object, `read` takes what is to be known beside what was known before. A failure is logged, counted and tried again after a pause.
pub(super) async fn follow<T: PartialEq>(
    kind: Gvr,
    rights: Rights,
    client: &Client,
    metrics: &Metrics,
    read: impl Fn(&Raw, Option<&T>) -> Option<T>,
    change: impl Fn(&mut dyn FnMut(&mut Seen<T>) -> bool),
) {
    let mut last_error = String::new();
    loop {
        let mut pause = PERIOD;
        match watch(kind, rights, client, metrics, &read, &change).await {
            Ok(standing) => {
                last_error.clear();
                change(&mut |seen| seen.becomes(Seen::without_objects(standing)));
                if standing == Standing::Forbidden {
                    pause = FORBIDDEN_PERIOD;
                }
            }
            Err(error) => {
                let words = "cannot tell whether the custom resource is installed";
                watcher::count_and_log_as(words, kind.plural, error, &mut last_error, metrics);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Whether the kind is served. Asks for the API groups first, as everybody who is known to the API server may.
pub(crate) async fn is_installed(kind: Gvr, client: &Client) -> kube::Result<bool> {
    let served = client.list_api_groups().await?.groups;
    if !served.iter().any(|group| group.name == kind.group) {
        return Ok(false);
    }
    match client.list_api_group_resources(&Raw::api_version(&kind)).await {
        Ok(list) => Ok(list.resources.iter().any(|resource| resource.name == kind.plural)),
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(false),
        Err(error) => Err(error),
    }
}

/// The API server does not know the kind.
const NOT_FOUND: u16 = 404;
/// The API server does not let us read it.
pub(super) const FORBIDDEN: u16 = 403;

/// Watches the objects until they cannot be; how they stand then.
///
/// # Errors
/// It is not known whether the kind is served.
async fn watch<T: PartialEq>(
    kind: Gvr,
    rights: Rights,
    client: &Client,
    metrics: &Metrics,
    read: impl Fn(&Raw, Option<&T>) -> Option<T>,
    change: impl Fn(&mut dyn FnMut(&mut Seen<T>) -> bool),
) -> kube::Result<Standing> {
    if !is_installed(kind, client).await? {
        return Ok(Standing::NotInstalled);
    }
    let mut events = watcher::events(kind.all(client), Config::default());
    let mut listed = BTreeMap::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                let mut event = Some(event);
                change(&mut |seen| event.take().is_some_and(|event| seen.apply(event, &mut listed, &read)));
            }
            Err(error) => match watcher::code(&error) {
                Some(FORBIDDEN) if rights == Rights::Optional => return Ok(Standing::Forbidden),
                Some(NOT_FOUND) => break,
                _ => watcher::count_and_log(kind.plural, error, &mut String::new(), metrics),
            },
        }
    }
    Ok(Standing::NotInstalled)
}

fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&meta.namespace), text(&meta.name))
}
