//! Watches nodes, pods and namespaces.
//!
//! The readers in `crates/` parse an object, and it is sent on as a [`Change`]. No object is kept here.

pub(crate) mod device_classes;
pub(crate) mod kubeconfig;
pub mod namespaced_name;
pub(crate) mod objects;
pub(crate) mod pod_groups;
pub(crate) mod raw;
pub(crate) mod replicas;
pub(crate) mod volumes;
pub(crate) mod watcher;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

use edgeward_cluster::cache::Kind;
use edgeward_cluster::engine::Change;
use edgeward_cluster::pod_record::PodRecord;
use edgeward_decision::keys::Keys;
use edgeward_kube::resources::{Amounts, ResourceNames};
use edgeward_kube::units::Now;
use edgeward_kube::{node as model_node, node};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use http::{HeaderMap, Request, Response, Uri, header};
use kube::client::{Body, ClientBuilder};
use kube::runtime::watcher::{Config, Event};
use kube::{Client, Resource as _};
use prometheus_client::metrics::gauge::Gauge;
use serde_json::Value;
use tokio::sync::watch;
use tower::Service;

use crate::config::Versions;
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::observer::Changes;
use crate::watch::kubeconfig::client_config;
use crate::watch::raw::{Gvr, Raw};

/// How long an answer may be silent before its connection is abandoned. The API server ends a quiet watch before
/// that. Without this bound, a silently lost connection would last until the kernel gives it up.
const SILENCE: Duration = Duration::from_secs(40);

/// A connection to the API server of the watched cluster.
#[derive(Clone)]
pub struct Cluster {
    /// A client of this cluster.
    pub client: Client,
    pub(super) changes: Changes,
    /// Kinds that were listed at least once.
    listed: watch::Sender<BTreeSet<Kind>>,
    /// Names of the resources of all nodes.
    resource_names: Arc<RwLock<ResourceNames>>,
}

impl Cluster {
    /// Uses the cluster of the current kubeconfig context, or else of our own pod. Does not connect yet.
    ///
    /// # Errors
    /// There is no such configuration, or it cannot be used.
    pub async fn infer(changes: Changes, metrics: Arc<Metrics>) -> anyhow::Result<Self> {
        Ok(Self::new(client_config(None)?.0, SILENCE, changes, &metrics)?)
    }

    fn new(mut config: kube::Config, silence: Duration, changes: Changes, metrics: &Metrics) -> kube::Result<Self> {
        config.read_timeout = Some(silence);
        // Watches and controllers retry by themselves, each with its own pause. The client would retry up to 15 times, for minutes.
        config.default_retry = false;
        // The idle time of a connection must not count against the next answer.
        config.reset_reader_on_write = true;
        let (listener, clock_difference) = (changes.clone(), metrics.clock_difference.clone());
        let layer = tower::layer::layer_fn(move |service| Listening {
            service,
            changes: listener.clone(),
            clock_difference: clock_difference.clone(),
        });
        Ok(Self::of(
            ClientBuilder::try_from(config)?.with_layer(&layer).build(),
            changes,
        ))
    }

    /// Uses this client.
    pub(super) fn of(client: Client, changes: Changes) -> Self {
        Self {
            client,
            changes,
            listed: watch::Sender::default(),
            resource_names: Arc::default(),
        }
    }

    /// Watches nodes, pods and namespaces. Never returns.
    pub async fn follow(self, mut versions: Versions, metrics: Arc<Metrics>) {
        // The domain cannot change once a version is in use.
        let config = versions.next().await;
        let (keys, can_move) = (&config.keys, AtomicBool::new(config.moves.enabled));
        let follow_settings = async {
            loop {
                let can = versions.next().await.moves.enabled;
                // Pods that are known already are read again, with what moves need.
                if can && !can_move.swap(can, Ordering::Relaxed) {
                    watcher::list_again();
                }
                can_move.store(can, Ordering::Relaxed);
            }
        };
        tokio::join!(
            self.clone().watch_nodes(&metrics),
            self.clone().watch_pods(&metrics, keys.clone(), &can_move),
            self.clone().watch_namespaces(&metrics, keys.clone()),
            follow_settings,
        );
    }

    /// Watches nodes. Never returns. A failure is logged, counted and retried after a pause.
    async fn watch_nodes(self, metrics: &Metrics) {
        let limit = LogLimit::new(self.changes.clock);
        let clock = self.changes.clock;
        let gone = |object: &Raw| Some(Change::NodeGone(object.meta().name.as_deref()?.into()));
        // A node that became unreadable counts as gone, because its known state is no longer true.
        let read = |object: &Raw| match read_node(object, clock.now(), &limit) {
            Some(node) => Some(Change::Node(Box::new(node))),
            None => gone(object),
        };
        self.watch_kind(Kind::Nodes, Gvr::NODES, metrics, read, gone).await;
    }

    /// Watches pods as [`Self::watch_nodes`] watches nodes. Starts once all nodes and namespaces are listed. The
    /// nodes determine the site of an ended pod, the node of a nominated one, and the known resource names. The
    /// namespace's opt-in determines how much of a pod is kept.
    async fn watch_pods(self, metrics: &Metrics, keys: Keys, can_move: &AtomicBool) {
        let are_listed =
            |listed: &BTreeSet<Kind>| [Kind::Nodes, Kind::Namespaces].iter().all(|kind| listed.contains(kind));
        // This fails only without a sender, and `self` holds one.
        let _ = self.listed.subscribe().wait_for(are_listed).await;
        let limit = LogLimit::new(self.changes.clock);
        let names = Arc::clone(&self.resource_names);
        let read = |object: &Raw| {
            let names = names.read().unwrap_or_else(PoisonError::into_inner);
            let pod = read_pod(object, &keys, &names, can_move.load(Ordering::Relaxed), &limit)?;
            // Any user who may create pods can invent gates, so these lines are limited.
            if let Some(gate_domain) = pod.other_domain.as_deref()
                && let Some(held_back) = limit.due("gate")
            {
                tracing::error!(
                    domain = keys.domain,
                    gate_domain,
                    held_back,
                    "pods are behind the gate of another domain, and edgeward does not release them; was the domain changed?"
                );
            }
            Some(Change::Pod(Box::new(pod)))
        };
        let gone = |object: &Raw| Some(Change::PodGone(object.meta().uid.as_deref()?.into()));
        self.watch_kind(Kind::Pods, Gvr::PODS, metrics, read, gone).await;
    }

    /// Watches namespaces as [`Self::watch_nodes`] watches nodes.
    async fn watch_namespaces(self, metrics: &Metrics, keys: Keys) {
        let limit = LogLimit::new(self.changes.clock);
        let read = |object: &Raw| {
            let (name, is_managed) = read_namespace(object, &keys, &limit)?;
            Some(Change::Namespace(name, is_managed))
        };
        let gone = |object: &Raw| Some(Change::Namespace(object.meta().name.as_deref()?.into(), false));
        self.watch_kind(Kind::Namespaces, Gvr::NAMESPACES, metrics, read, gone)
            .await;
    }

    /// Updates the resource names after a change of nodes.
    fn keep_names(&self, change: &Change) {
        let names = || self.resource_names.write().unwrap_or_else(PoisonError::into_inner);
        match change {
            Change::Node(node) => names().set(&node.name, &node.allocatable),
            Change::NodeGone(name) => names().set(name, &Amounts::default()),
            Change::ListBegan(Kind::Nodes) => names().list_began(),
            Change::ListEnded(Kind::Nodes) => names().list_ended(),
            _ => {}
        }
    }

    /// Sends the changes of a kind. Never returns.
    pub(super) async fn watch_kind(
        self,
        kind: Kind,
        gvr: Gvr,
        metrics: &Metrics,
        read: impl Fn(&Raw) -> Option<Change>,
        gone: impl Fn(&Raw) -> Option<Change>,
    ) {
        let name = gvr.plural;
        let mut events = watcher::events(gvr.all(&self.client), Config::default().streaming_lists());
        let mut last_error = String::new();
        while let Some(event) = events.next().await {
            if matches!(event, Ok(Event::InitDone | Event::Apply(_) | Event::Delete(_))) {
                last_error.clear();
            }
            let change = match event {
                Ok(Event::Init) => {
                    metrics.watch_lists.at([name]).inc();
                    Some(Change::ListBegan(kind))
                }
                Ok(Event::InitDone) => Some(Change::ListEnded(kind)),
                Ok(Event::InitApply(object) | Event::Apply(object)) => read(&object),
                Ok(Event::Delete(object)) => gone(&object),
                Err(error) => {
                    let is_forbidden = watcher::code(&error) == Some(objects::FORBIDDEN);
                    watcher::count_and_log(name, error, &mut last_error, metrics);
                    // Missing rights to an optional kind are not going to appear soon.
                    if is_forbidden && !Kind::REQUIRED.contains(&kind) {
                        tokio::time::sleep(objects::FORBIDDEN_PERIOD).await;
                    }
                    None
                }
            };
            let has_ended = matches!(change, Some(Change::ListEnded(_)));
            if let Some(change) = change {
                self.keep_names(&change);
                self.changes.send(change).await;
            }
            if has_ended {
                self.listed.send_modify(|listed| listed.extend([kind]));
            }
        }
    }
}

/// Reads a node; `None` if it is unreadable.
pub(crate) fn read_node(object: &Raw, now: Now, limit: &LogLimit) -> Option<model_node::Node> {
    let mut node = readable(Kind::Nodes.as_str(), object, node::from_json(object.json()), limit)?;
    let created = object.meta().creation_timestamp.as_ref();
    node.state.young_until = created.and_then(|at| model_node::Node::young_until(at.0, now));
    Some(node)
}

/// Reads a pod; `None` if it is unreadable.
pub(crate) fn read_pod(
    object: &Raw,
    keys: &Keys,
    names: &ResourceNames,
    can_move: bool,
    limit: &LogLimit,
) -> Option<PodRecord> {
    let read = edgeward_cluster::pod_record::read_record(object.json(), keys, names, can_move);
    readable(Kind::Pods.as_str(), object, read, limit)?
}

/// Reads the name of a namespace and whether it opted in; `None` if it is unreadable.
pub(crate) fn read_namespace(object: &Raw, keys: &Keys, limit: &LogLimit) -> Option<(Box<str>, bool)> {
    let is_managed = readable(Kind::Namespaces.as_str(), object, opted_in(object.json(), keys), limit)?;
    Some((object.meta().name.as_deref()?.into(), is_managed))
}

/// Returns the parsed object. A failure is logged at error level, because the charge of an unreadable object is
/// missing.
pub(super) fn readable<T>(
    kind: &'static str,
    object: &Raw,
    read: Result<T, serde_json::Error>,
    limit: &LogLimit,
) -> Option<T> {
    if let (Err(error), Some(held_back)) = (&read, read.is_err().then(|| limit.due(kind)).flatten()) {
        let (namespace, name) = (&object.meta().namespace, &object.meta().name);
        tracing::error!(kind, namespace, name, %error, held_back, "cannot be read, and does not count");
    }
    read.ok()
}

/// Whether a namespace has the label that opts it in.
fn opted_in(json: &str, keys: &Keys) -> Result<bool, serde_json::Error> {
    let object: Value = serde_json::from_str(json)?;
    Ok(object["metadata"]["labels"][&*keys.managed] == "true")
}

/// The difference between our clock and the API server's, in seconds, above which there is a warning.
const CLOCK_TOLERANCE: i64 = 5;

/// Reports each successful start of a watch. Bookmarks do not reach the engine, so without events only this tells a
/// quiet cluster from a broken connection. Also compares our clock with the date of each answer.
#[derive(Clone)]
struct Listening<S> {
    service: S,
    changes: Changes,
    clock_difference: Gauge,
}

/// How many seconds our clock is ahead of the clock that wrote this header, with a precision of one second.
fn clock_difference(headers: &HeaderMap, now: jiff::Timestamp) -> Option<i64> {
    let theirs = jiff::fmt::rfc2822::parse(headers.get(header::DATE)?.to_str().ok()?).ok()?;
    Some(now.as_second() - theirs.timestamp().as_second())
}

impl<S, B> Service<Request<Body>> for Listening<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let alive = watched(request.uri());
        let (changes, gauge) = (self.changes.clone(), self.clock_difference.clone());
        let response = self.service.call(request);
        async move {
            let response = response.await?;
            if let Some(seconds) = clock_difference(response.headers(), changes.clock.now().wall)
                && gauge.set(seconds).abs() <= CLOCK_TOLERANCE
                && seconds.abs() > CLOCK_TOLERANCE
            {
                tracing::warn!(
                    seconds,
                    "our clock differs from the API server's; gated pods are released too early or too late"
                );
            }
            if let Some(alive) = alive.filter(|_| response.status().is_success()) {
                changes.hint(alive);
            }
            Ok(response)
        }
        .boxed()
    }
}

/// Returns the sign of life for the kind that this request watches.
fn watched(uri: &Uri) -> Option<Change> {
    let is_watch = uri
        .query()?
        .split('&')
        .any(|pair| matches!(pair, "watch=true" | "watch=1"));
    let name = ["/api/v1/", "/apis/storage.k8s.io/v1/"]
        .into_iter()
        .find_map(|group| uri.path().strip_prefix(group).filter(|_| is_watch))?;
    Kind::of_word(name).map(Change::WatchAlive)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::BodyExt as _;
    use tokio::net::TcpListener;
    use tokio::sync::{Notify, mpsc};
    use tokio::time::timeout;

    use super::*;
    use crate::platform::clock::Clock;

    /// Generous enough for a busy machine.
    const BOUND: Duration = Duration::from_secs(30);

    fn changes() -> (Changes, mpsc::Receiver<(edgeward_kube::units::Now, Change)>) {
        let (sender, receiver) = mpsc::channel(8);
        let clock = Clock::start();
        (Changes::to(sender, clock), receiver)
    }

    /// An API server that ends every watch, and answers 410 to a client that resumes it.
    async fn forgetful(request: Request<Body>) -> Result<Response<Body>, http::Error> {
        const LISTED: &str = r#"{"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Node", "metadata":
            {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}}}"#;
        const GONE: &str =
            r#"{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}"#;
        let begins = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("resourceVersion=0"));
        let (code, body) = if begins {
            (200, LISTED.replace('\n', ""))
        } else {
            (410, GONE.to_owned())
        };
        Response::builder().status(code).body(Body::from(body.into_bytes()))
    }

    fn forgetful_cluster(changes: Changes) -> Cluster {
        Cluster::of(Client::new(tower::service_fn(forgetful), "default"), changes)
    }

    #[tokio::test]
    async fn expired_watch_is_listed_again() {
        let (changes, mut received) = changes();
        let cluster = forgetful_cluster(changes);
        let metrics = Metrics::new();
        let lists = async {
            for list in 0..2 {
                let ended = async {
                    while let Some((_, change)) = received.recv().await {
                        if matches!(change, Change::ListEnded(Kind::Nodes)) {
                            return;
                        }
                    }
                };
                assert!(timeout(BOUND, ended).await.is_ok(), "list {list}");
            }
        };
        tokio::select! {
            () = cluster.watch_nodes(&metrics) => {}
            () = lists => {}
        }
    }

    /// An API server whose only node gets more and more resources, and then too many taints.
    async fn inventive(request: Request<Body>) -> Result<Response<Body>, http::Error> {
        let node = |kind: &str, resources: usize, taints: usize| {
            let names = (0..resources).map(|i| (format!("example.com/r-{i}"), "1".into()));
            let allocatable: serde_json::Map<_, Value> = names.collect();
            let metadata = serde_json::json!({"name": "a", "resourceVersion": resources.to_string()});
            let object = serde_json::json!({
                "apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": allocatable},
                "spec": {"taints": vec![serde_json::json!({"key": "k", "effect": "NoSchedule"}); taints]},
            });
            format!(r#"{{"type": "{kind}", "object": {object}}}"#)
        };
        let query = request.uri().query().unwrap_or_default();
        if !query.contains("resourceVersion=0") {
            return std::future::pending().await;
        }
        let events = [node("ADDED", 1, 0), node("MODIFIED", 2, 0), node("MODIFIED", 3, 101)];
        Response::builder().body(Body::from(events.join("\n").into_bytes()))
    }

    #[tokio::test]
    async fn oversized_node_is_removed_with_its_resource_names() {
        let (changes, mut received) = changes();
        let cluster = Cluster::of(Client::new(tower::service_fn(inventive), "default"), changes);
        let names = Arc::clone(&cluster.resource_names);
        let metrics = Metrics::new();
        let seen = async {
            let mut seen = vec![];
            while let Some((_, change)) = received.recv().await {
                match change {
                    Change::Node(node) => seen.push(node.allocatable.scalars.len()),
                    Change::NodeGone(name) => return (seen, name),
                    _ => {}
                }
            }
            unreachable!("the watch is over");
        };
        tokio::select! {
            () = cluster.watch_nodes(&metrics) => {}
            seen = timeout(BOUND, seen) => assert_eq!(seen.unwrap(), (vec![1, 2], "a".into())),
        }
        let names = format!("{:?}", names.read().unwrap());
        assert!(!names.contains("example.com"), "{names}");
    }

    /// An API server that refuses to stream a list, and has two nodes on two pages.
    async fn old_fashioned(request: Request<Body>) -> Result<Response<Body>, http::Error> {
        const REFUSED: &str = r#"{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422,
            "message": "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"}"#;
        let query = request.uri().query().unwrap_or_default();
        let page = |node: &str, next: &str| {
            format!(
                r#"{{"apiVersion": "v1", "kind": "NodeList", "metadata": {{"resourceVersion": "7", "continue": "{next}"}},
                    "items": [{{"metadata": {{"name": "{node}", "resourceVersion": "7"}}}}]}}"#
            )
        };
        let (code, body) = match query {
            query if query.contains("sendInitialEvents=true") => (422, REFUSED.to_owned()),
            query if query.contains("watch=true") => return std::future::pending().await,
            query if query.contains("continue=more") => (200, page("b", "")),
            _ => (200, page("a", "more")),
        };
        Response::builder().status(code).body(Body::from(body.into_bytes()))
    }

    /// The second page breaks off the first time. The second time, its continue token has expired.
    #[tokio::test(start_paused = true)]
    async fn interrupted_paged_list_is_restarted() {
        let pages = Arc::<AtomicUsize>::default();
        let service = move |request: Request<Body>| {
            let pages = Arc::clone(&pages);
            async move {
                let is_second = request
                    .uri()
                    .query()
                    .is_some_and(|query| query.contains("continue=more"));
                let (head, body) = old_fashioned(request).await?.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let turn = if is_second {
                    pages.fetch_add(1, Ordering::Relaxed)
                } else {
                    usize::MAX
                };
                let (code, body) = match turn {
                    0 => (head.status.as_u16(), body.slice(..body.len() - 2)),
                    1 => (410, (&br#"{"kind": "Status", "status": "Failure", "reason": "Expired", "message": "", "code": 410}"#[..]).into()),
                    _ => (head.status.as_u16(), body),
                };
                Response::builder().status(code).body(Body::from(body))
            }
        };
        let (changes, mut received) = changes();
        let cluster = Cluster::of(Client::new(tower::service_fn(service), "default"), changes);
        let metrics = Metrics::new();
        let seen = async {
            let mut seen = vec![];
            while let Some((_, change)) = received.recv().await {
                match change {
                    Change::ListBegan(_) => seen.push("began".to_owned()),
                    Change::Node(node) => seen.push(node.name.to_string()),
                    Change::ListEnded(_) => break,
                    _ => {}
                }
            }
            seen
        };
        tokio::select! {
            () = cluster.watch_nodes(&metrics) => {}
            seen = seen => {
                assert_eq!(seen, ["began", "a", "began", "a", "began", "a", "b"]);
            }
        }
    }

    #[tokio::test]
    async fn pods_are_listed_after_nodes_and_namespaces() {
        for kind in [Kind::Nodes, Kind::Namespaces] {
            let (changes, mut received) = changes();
            let cluster = forgetful_cluster(changes);
            let metrics = Metrics::new();
            let keys = || Keys::new("example.io");
            let others_are_listed = Notify::new();
            // Runs the watch of pods, and that of the other kind before this one.
            let nodes = async {
                if kind == Kind::Nodes {
                    others_are_listed.notified().await;
                }
                cluster.clone().watch_nodes(&metrics).await;
            };
            let namespaces = async {
                if kind == Kind::Namespaces {
                    others_are_listed.notified().await;
                }
                cluster.clone().watch_namespaces(&metrics, keys()).await;
            };
            let order = async {
                let mut lists = 0;
                while let Some((_, change)) = received.recv().await {
                    match change {
                        Change::ListBegan(Kind::Pods) => break,
                        Change::ListEnded(listed) if listed == kind => lists += 1,
                        // This fires often enough to let a watch that does not wait show itself.
                        Change::ListEnded(_) => others_are_listed.notify_one(),
                        _ => {}
                    }
                }
                lists
            };
            let can_move = AtomicBool::new(false);
            tokio::select! {
                () = cluster.clone().watch_pods(&metrics, keys(), &can_move) => {}
                () = nodes => {}
                () = namespaces => {}
                lists = timeout(BOUND, order) => assert_eq!(lists, Ok(1), "{kind:?}"),
            }
        }
    }

    #[tokio::test]
    async fn api_server_request_without_answer_times_out() {
        // The kernel accepts connections, but there is no answer.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", silent.local_addr().unwrap());
        let config = kube::Config::new(address.parse().unwrap());
        let cluster = Cluster::new(config, Duration::from_millis(100), changes().0, &Metrics::new()).unwrap();
        let answer = timeout(BOUND, cluster.client.apiserver_version()).await;
        assert!(answer.unwrap().is_err());
    }

    #[test]
    fn clock_difference_is_read_from_date_header() {
        let headers = HeaderMap::from_iter([(header::DATE, "Fri, 27 Nov 2026 01:34:54 GMT".parse().unwrap())]);
        let difference = |ours: &str| clock_difference(&headers, ours.parse().unwrap());
        assert_eq!(difference("2026-11-27T01:39:54.9Z"), Some(300));
        assert_eq!(difference("2026-11-27T01:34:44Z"), Some(-10));
        assert_eq!(clock_difference(&HeaderMap::new(), jiff::Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn watch_kind_is_recognized_from_request_uri() {
        let of = |uri: &'static str| match watched(&Uri::from_static(uri))? {
            Change::WatchAlive(kind) => Some(kind.as_str().to_owned()),
            _ => None,
        };
        assert_eq!(
            of("https://x/api/v1/pods?&watch=true&timeoutSeconds=25"),
            Some("pods".to_owned())
        );
        assert_eq!(of("/api/v1/nodes?watch=1").as_deref(), Some("nodes"));
        assert_eq!(
            of("/api/v1/persistentvolumes?watch=true").as_deref(),
            Some("persistentvolumes")
        );
        assert_eq!(
            of("/apis/storage.k8s.io/v1/storageclasses?watch=true").as_deref(),
            Some("storageclasses")
        );
        assert_eq!(of("/api/v1/pods?limit=500"), None);
        assert_eq!(of("/api/v1/namespaces/x/pods?watch=true"), None);
    }

    #[test]
    fn namespace_opts_in_by_its_label() {
        let keys = Keys::new("example.io");
        let labelled = |value: &str| {
            let label = format!(r#"{{"scheduling.example.io/managed": "{value}"}}"#);
            opted_in(&format!(r#"{{"metadata": {{"name": "a", "labels": {label}}}}}"#), &keys).unwrap()
        };
        assert!(labelled("true") && !labelled("false"));
        assert!(!opted_in(r#"{"metadata": {"name": "a"}}"#, &keys).unwrap());
    }
}
