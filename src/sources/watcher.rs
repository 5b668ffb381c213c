//! Watches of the API server, which go on for ever.
//!
//! Each is opened for 20 to 30 seconds: that it could be opened again is how a quiet cluster is told from a dead connection.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use futures::{FutureExt as _, Stream, StreamExt as _, stream};
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::{Config, Error, Event, ExponentialBackoff};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::instruments::metrics::Metrics;

/// The seconds for which a watch is opened; each picks one, so that those of several kinds and replicas do not end together.
const OPEN_SECONDS: RangeInclusive<u32> = 20..=30;

/// The first and the longest pause after a failure.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];

/// What there is and what becomes of it, for ever. A failure is one of the events, and is tried again after a pause.
pub(super) fn events<K>(api: Api<K>, config: Config) -> impl Stream<Item = Result<Event<K>, Error>> + Send + Unpin
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let config = config.timeout(open_seconds());
    let begin = move |pause| {
        let (api, config) = (api.clone(), config.clone());
        let after = tokio::time::sleep(pause);
        after.map(|()| watcher(api, config).backoff(pauses())).flatten_stream()
    };
    let watch = (Box::pin(begin(Duration::ZERO)), begin);
    let events = stream::unfold(watch, |(mut events, begin)| async move {
        let event = events.next().await?;
        if event.as_ref().is_err_and(is_gone) {
            events = Box::pin(begin(PAUSES[0]));
        }
        Some((event, (events, begin)))
    });
    Box::pin(events)
}

/// The object of this name whenever it is another, and `None` whenever it is known not to exist, as [`events`] tell it.
pub(super) fn object<K>(api: Api<K>, name: &str) -> impl Stream<Item = Result<Option<K>, Error>> + Send + Unpin + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let only = Config::default().fields(&format!("metadata.name={name}"));
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

/// Whether a watch could not be opened because what it would go on from is gone. Another watcher must begin again then: this
/// one would ask for the same for ever, for it expects to be told by an event of the watch, as the API server mostly does.
fn is_gone(error: &Error) -> bool {
    matches!(error, Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410)
}
