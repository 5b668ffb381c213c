//! Endless watches of the API server: kube's watcher, restarted where it would not recover by itself.
//!
//! A watch stays open for 20 to 30 seconds. Its successful reopening tells a quiet cluster from a dead connection.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _, stream};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::{Config, Error, Event, ExponentialBackoff, InitialListStrategy, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use crate::instruments::logs::news;
use crate::instruments::metrics::Metrics;
use crate::platform::random;

/// The shortest time for which a watch is opened, and the range of the random time added to it, in seconds. The
/// random part keeps the watches of several kinds and replicas from ending together.
const OPEN_SECONDS: u32 = 20;
const MORE_SECONDS: u32 = 11;

/// Page size of lists. A page is held in memory, and a tenant may create pods of 1.5 MB.
const PAGE: u32 = 10;

/// How many streamed lists may break off before one list is read in pages. A list that takes longer than a watch stays
/// open would never end.
const BROKEN_LISTS: u32 = 2;

/// Status code if a resource version is too old to watch from.
const GONE: u16 = 410;

/// The first and the longest pause after a failure.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(5)];

/// Time over which the watches of all replicas restart after the history went back, in milliseconds.
const SPREAD_MS: u64 = 3_000;

/// How often the history of the API server went back. A process follows one API server.
static WENT_BACK: LazyLock<watch::Sender<u32>> = LazyLock::new(watch::Sender::default);

/// Restarts every watch of this process with a list, each after a random pause. This is needed if the API server was
/// restored from a backup: it sends nothing to a watch from a version that it has not reached yet.
pub(crate) fn list_again() {
    WENT_BACK.send_modify(|times| *times += 1);
}

/// Returns the objects of `api` that `config` selects and their changes as an endless stream. A failure is one of the
/// events, and the watch retries after a pause. If `config` asks for streamed lists, one object at a time is in
/// memory. If streaming fails, the list comes in pages.
pub(crate) fn events<K>(api: Api<K>, config: Config) -> impl Stream<Item = Result<Event<K>, Error>> + Send + Unpin
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    events_until(api, config, WENT_BACK.subscribe())
}

/// Restarts the watch whenever `went_back` changes.
fn events_until<K>(
    api: Api<K>,
    config: Config,
    went_back: watch::Receiver<u32>,
) -> impl Stream<Item = Result<Event<K>, Error>> + Send + Unpin
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let seconds = OPEN_SECONDS + random() as u32 % MORE_SECONDS;
    let config = config.timeout(seconds).page_size(PAGE);
    let watch = Watch {
        events: watcher(api.clone(), config.clone()).boxed(),
        api,
        strategy: config.initial_list_strategy.clone(),
        config,
        broken_lists: 0,
        went_back,
    };
    let events = stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        Some((event, watch))
    });
    Box::pin(events.backoff(pauses()))
}

/// A watch, with the settings to restart it.
struct Watch<K> {
    api: Api<K>,
    /// How the objects are listed unless streamed lists break off.
    strategy: InitialListStrategy,
    config: Config,
    events: BoxStream<'static, Result<Event<K>, Error>>,
    /// How many lists in a row have started but not ended.
    broken_lists: u32,
    went_back: watch::Receiver<u32>,
}

impl<K> Watch<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    async fn next(&mut self) -> Option<Result<Event<K>, Error>> {
        let event = loop {
            tokio::select! {
                Ok(()) = self.went_back.changed() => {
                    tokio::time::sleep(Duration::from_millis(random() % SPREAD_MS)).await;
                    self.begin();
                }
                event = self.events.next() => break event?,
            }
        };
        match &event {
            Ok(Event::Init) => self.broken_lists += 1,
            Ok(Event::InitDone) => {
                self.broken_lists = 0;
                self.config.initial_list_strategy = self.strategy.clone();
            }
            _ => {}
        }
        let code = event.as_ref().err().and_then(code);
        let is_streamed = self.config.initial_list_strategy == InitialListStrategy::StreamingList;
        // A server without streamed lists calls such a request invalid.
        let is_invalid = matches!(code, Some(400 | 422));
        let gives_up = is_streamed && (is_invalid || self.broken_lists > BROKEN_LISTS);
        if is_streamed && is_invalid {
            self.strategy = InitialListStrategy::ListWatch;
        }
        if gives_up {
            tracing::info!(
                url = self.api.resource_url(),
                "streamed lists do not work; listing in pages"
            );
            self.config.initial_list_strategy = InitialListStrategy::ListWatch;
        }
        // kube would resume from an expired resource version again and again.
        if gives_up || code == Some(GONE) {
            self.begin();
        }
        Some(event)
    }

    fn begin(&mut self) {
        self.events = watcher(self.api.clone(), self.config.clone()).boxed();
    }
}

/// The HTTP status code of the API server's refusal.
pub(crate) fn code(error: &Error) -> Option<u16> {
    match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status) => Some(status.code),
        _ => None,
    }
}

/// Streams the object of this name after each change, and `None` when it is known not to exist. Failures are counted
/// and logged.
pub(crate) fn object<K>(
    kind: &'static str,
    api: Api<K>,
    name: &str,
    metrics: Arc<Metrics>,
) -> impl Stream<Item = Option<K>> + Send + Unpin + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let only = Config::default().fields(&format!("metadata.name={name}"));
    let (mut exists, mut last_error) = (false, String::new());
    events(api, only).filter_map(move |event| {
        event.iter().for_each(|event| recovered(event, &mut last_error));
        let told = match event {
            Ok(Event::Init) => {
                exists = false;
                None
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                exists = true;
                Some(Some(object))
            }
            Ok(Event::InitDone) if exists => None,
            Ok(Event::InitDone | Event::Delete(_)) => Some(None),
            Err(error) => {
                count_and_log(kind, error, &mut last_error, &metrics);
                None
            }
        };
        std::future::ready(told)
    })
}

/// Counts a failure to watch a kind, and logs it unless it equals the `last` logged one.
pub(crate) fn count_and_log(kind: &'static str, error: impl Into<anyhow::Error>, last: &mut String, metrics: &Metrics) {
    metrics.watch_failures.at([kind]).inc();
    if let Some(error) = news(&error.into(), last) {
        tracing::warn!(kind, error, "watch failed; it is tried again");
    }
}

/// Forgets the `last` logged failure, so that it is logged when it occurs again. A list that begins may fail as the last
/// one did.
pub(crate) fn recovered<K>(event: &Event<K>, last: &mut String) {
    if !matches!(event, Event::Init) {
        last.clear();
    }
}

/// The back-off after failures.
fn pauses() -> impl Backoff {
    let [first, longest] = PAUSES;
    let builder = backon::ExponentialBuilder::new()
        .with_min_delay(first)
        .with_max_delay(longest);
    let pauses = ExponentialBackoff::from(builder.without_max_times().with_jitter());
    ResetTimerBackoff::new(pauses, 2 * longest)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use futures::future::join_all;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use kube::client::Body;
    use tokio::time::Instant;

    use super::*;

    const LIST: &str =
        r#"{"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"}, "items": []}"#;
    const EXPIRED: &str = r#"{"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "message": "", "reason": "Expired", "code": 410}}"#;

    #[tokio::test(start_paused = true)]
    async fn streaming_is_tried_again_after_one_list_in_pages() {
        let requests = Arc::<Mutex<Vec<&str>>>::default();
        let asked = Arc::clone(&requests);
        let respond = move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let (request, body) = if query.contains("sendInitialEvents") {
                ("stream", "")
            } else if query.contains("watch=true") {
                ("watch", EXPIRED)
            } else {
                ("list", LIST)
            };
            asked.lock().unwrap_or_else(PoisonError::into_inner).push(request);
            async move { Response::builder().body(Body::from(body.replace('\n', " ").into_bytes())) }
        };
        let client = Client::new(tower::service_fn(respond), "default");
        let times = watch::Sender::new(0);
        let maps = Api::<ConfigMap>::default_namespaced(client);
        let mut events = events_until(maps, Config::default().streaming_lists(), times.subscribe());
        let watched = async { while events.next().await.is_some() {} };
        let _ = tokio::time::timeout(Duration::from_secs(600), watched).await;
        let mut requests = requests.lock().unwrap().clone();
        requests.dedup();
        assert_eq!(requests[..4], ["stream", "list", "watch", "stream"]);
    }

    #[tokio::test(start_paused = true)]
    async fn watches_do_not_all_list_again_at_once() {
        let lists = Arc::<Mutex<Vec<Instant>>>::default();
        let listed = Arc::clone(&lists);
        let respond = move |request: Request<Body>| {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
            let listed = Arc::clone(&listed);
            async move {
                if is_watch {
                    return std::future::pending().await;
                }
                listed
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(Instant::now());
                Response::builder().body(Body::from(LIST.as_bytes().to_vec()))
            }
        };
        let client = Client::new(tower::service_fn(respond), "default");
        let times = watch::Sender::new(0);
        let watches = (0..8).map(|_| {
            let maps = Api::<ConfigMap>::default_namespaced(client.clone());
            let mut events = events_until(maps, Config::default(), times.subscribe());
            async move { while events.next().await.is_some() {} }
        });
        let again = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            times.send_replace(1);
            tokio::time::sleep(Duration::from_millis(SPREAD_MS)).await;
        };
        tokio::select! {
            _ = join_all(watches) => {}
            () = again => {}
        }
        let lists = lists.lock().unwrap();
        let mut again = lists[8..].to_vec();
        again.dedup();
        assert!(lists.len() == 16 && again.len() > 1, "{again:?}");
    }
}
