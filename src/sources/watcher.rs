//! Watches of the API server, which go on for ever.
//!
//! Each is opened for 20 to 30 seconds: that it could be opened again is how a quiet cluster is told from a dead connection.
//! Of what is listed and watched one object at a time is in memory.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use kube::api::{ListParams, TypeMeta, WatchEvent, WatchParams};
use kube::core::watch::{Bookmark, BookmarkMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::{Error, Event, ExponentialBackoff};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::instruments::metrics::Metrics;
use crate::sources::list::{self, Part};

/// The seconds for which a watch is opened; each picks one, so that those of several kinds and replicas do not end together.
const OPEN_SECONDS: RangeInclusive<u32> = 20..=30;

/// After how long without an event a watch is given up: it should have ended.
const SILENCE: Duration = Duration::from_secs(35);

/// The first and the longest pause after a failure.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];

/// The annotation of the bookmark that ends a list which is sent as a stream.
const LIST_END: &str = "k8s.io/initial-events-end";

/// The status where a resource version is too old to be watched from.
const GONE: u16 = 410;

/// What there is and what becomes of it, for ever. A failure is one of the events, and is tried again after a pause. Where the
/// parameters ask for initial events, lists are sent as a stream, else in pages.
pub(super) fn events<K>(api: Api<K>, params: WatchParams) -> impl Stream<Item = Result<Event<K>, Error>> + Send + Unpin
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let watcher = Watcher {
        api,
        params: params.timeout(open_seconds()),
        version: None,
        received: None,
    };
    let events = stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await;
        Some((event, watcher))
    });
    Box::pin(events.backoff(pauses()))
}

/// What is received: an object, or the end of a list.
type Received<K> = BoxStream<'static, kube::Result<WatchEvent<K>>>;

/// A watch, as far as it has come.
struct Watcher<K> {
    api: Api<K>,
    params: WatchParams,
    /// From where it goes on; `None` until everything is listed.
    version: Option<String>,
    /// `None` where it is to be opened again.
    received: Option<Received<K>>,
}

impl<K> Watcher<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    /// Can be called again after an error: then it goes on where it can.
    async fn next(&mut self) -> Result<Event<K>, Error> {
        loop {
            let Some(received) = &mut self.received else {
                self.received = Some(self.open().await?);
                match self.version {
                    None => return Ok(Event::Init),
                    Some(_) => continue,
                }
            };
            let Ok(Some(event)) = tokio::time::timeout(SILENCE, received.next()).await else {
                self.received = None;
                continue;
            };
            let is_listed = self.version.is_some();
            match event.map_err(Error::WatchFailed)? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) if is_listed => {
                    self.come_to(object.meta().resource_version.clone())?;
                    return Ok(Event::Apply(object));
                }
                WatchEvent::Added(object) | WatchEvent::Modified(object) => return Ok(Event::InitApply(object)),
                WatchEvent::Deleted(object) if is_listed => {
                    self.come_to(object.meta().resource_version.clone())?;
                    return Ok(Event::Delete(object));
                }
                // In a list there is none.
                WatchEvent::Deleted(_) => {}
                WatchEvent::Bookmark(Bookmark { metadata, .. }) => {
                    let ends_list = metadata.annotations.contains_key(LIST_END);
                    if is_listed || ends_list {
                        self.come_to(Some(metadata.resource_version))?;
                    }
                    if !is_listed && ends_list {
                        return Ok(Event::InitDone);
                    }
                }
                WatchEvent::Error(status) => {
                    if status.code == GONE {
                        self.begin_again();
                    }
                    return Err(Error::WatchError(status));
                }
            }
        }
    }

    fn come_to(&mut self, version: Option<String>) -> Result<(), Error> {
        self.version = version.filter(|version| !version.is_empty());
        if self.version.is_none() {
            self.begin_again();
            return Err(Error::NoResourceVersion);
        }
        Ok(())
    }

    /// With a list.
    fn begin_again(&mut self) {
        (self.version, self.received) = (None, None);
    }

    /// A watch from where this one has come to, or a list.
    async fn open(&mut self) -> Result<Received<K>, Error> {
        let Some(version) = &self.version else {
            if self.params.send_initial_events {
                let list = self.api.watch(&self.params, "0").await;
                return Ok(list.map_err(Error::WatchStartFailed)?.boxed());
            }
            let list = list::parts(&self.api, list_params(&self.params)).await;
            return Ok(list.map_err(Error::InitialListFailed)?.map_ok(as_streamed).boxed());
        };
        let params = WatchParams {
            send_initial_events: false,
            ..self.params.clone()
        };
        let received = self.api.watch(&params, version).await;
        // What it would go on from may be gone.
        if matches!(&received, Err(kube::Error::Api(status)) if status.code == GONE) {
            self.begin_again();
        }
        Ok(received.map_err(Error::WatchStartFailed)?.boxed())
    }
}

/// A part of a list that is read in pages, as it is sent where lists are streams.
fn as_streamed<K>(part: Part<K>) -> WatchEvent<K> {
    match part {
        Part::Object(object) => WatchEvent::Added(object),
        Part::End(resource_version) => WatchEvent::Bookmark(Bookmark {
            types: TypeMeta::default(),
            metadata: BookmarkMeta {
                resource_version,
                annotations: [(LIST_END.to_owned(), "true".to_owned())].into(),
            },
        }),
    }
}

/// What is listed and watched with these parameters.
fn list_params(of: &WatchParams) -> ListParams {
    ListParams {
        label_selector: of.label_selector.clone(),
        field_selector: of.field_selector.clone(),
        ..ListParams::default()
    }
}

/// The object of this name whenever it is another, and `None` whenever it is known not to exist, as [`events`] tell it.
pub(super) fn object<K>(api: Api<K>, name: &str) -> impl Stream<Item = Result<Option<K>, Error>> + Send + Unpin + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut exists = false;
    events(api, only).filter_map(move |event| {
        let told = match event {
            Ok(Event::Init) => {
                exists = false;
                None
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                exists = true;
                Some(Ok(Some(object)))
            }
            Ok(Event::InitDone) if exists => None,
            Ok(Event::InitDone | Event::Delete(_)) => Some(Ok(None)),
            Err(error) => Some(Err(error)),
        };
        std::future::ready(told)
    })
}

/// Counts and logs a failure of [`events`].
pub(super) fn count_and_log(kind: &'static str, error: Error, metrics: &Metrics) {
    metrics.view.failure(kind);
    let error = format!("{:#}", anyhow::Error::from(error));
    tracing::warn!(kind, error, "watch failed; it is tried again");
}

/// Namespace and name.
pub(super) type Key = (String, String);

/// What is known of each object, by events. While there is a list, what was known before.
pub(super) struct Known<T> {
    objects: BTreeMap<Key, T>,
    listed: BTreeMap<Key, T>,
}

impl<T: PartialEq> Known<T> {
    pub(super) fn nothing() -> Self {
        Self {
            objects: BTreeMap::new(),
            listed: BTreeMap::new(),
        }
    }

    pub(super) fn objects(&self) -> &BTreeMap<Key, T> {
        &self.objects
    }

    /// Something was told of an object, of which `read` takes what is to be known; an object of which it takes nothing stays as
    /// it was. Whether another thing may be known now.
    pub(super) fn apply<K: Resource>(&mut self, event: Event<K>, read: impl Fn(&K) -> Option<T>) -> bool {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(object) => {
                let read = read(&object).map(|read| (key(&object), read));
                self.listed.extend(read);
            }
            Event::InitDone => {
                self.objects = std::mem::take(&mut self.listed);
                return true;
            }
            Event::Apply(object) => {
                let key = key(&object);
                let other = read(&object).filter(|read| self.objects.get(&key) != Some(read));
                let is_other = other.is_some();
                self.objects.extend(other.map(|read| (key, read)));
                return is_other;
            }
            Event::Delete(object) => return self.objects.remove(&key(&object)).is_some(),
        }
        false
    }
}

/// The key of this object.
pub(super) fn key<K: Resource>(object: &K) -> Key {
    let meta = object.meta();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&meta.namespace), text(&meta.name))
}

/// For how long to open a watch.
fn open_seconds() -> u32 {
    let choice = uuid::Uuid::new_v4().as_u128() % (OPEN_SECONDS.count() as u128);
    OPEN_SECONDS.start() + u32::try_from(choice).unwrap_or(0)
}

/// The pauses after failures.
fn pauses() -> impl Backoff {
    let [first, longest] = PAUSES;
    let builder = backon::ExponentialBuilder::new()
        .with_min_delay(first)
        .with_max_delay(longest);
    let pauses = ExponentialBackoff::from(builder.without_max_times().with_jitter());
    ResetTimerBackoff::new(pauses, 2 * longest)
}
