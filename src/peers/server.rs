//! Answers peers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{future, io};

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use axum_server::accept::Accept;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use edgeward_decision::model::report::Report;
use edgeward_peers::message::MAX_BYTES;
use edgeward_peers::{ClusterId, Settings};
use futures::future::{BoxFuture, FutureExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_rustls::server::TlsStream;

use super::Asked;
use crate::admission::{self, Connections, Open, PEERS, Slot};
use crate::instruments::metrics::Metrics;
use crate::tls::member;

/// Where a peer sends a request, and where it reads the report of this cluster.
pub(super) const EXCHANGE: &str = "/v1/exchange";
pub(super) const REPORT: &str = "/v1/report";

/// The most bytes of a report.
pub(super) const MAX_REPORT: usize = 64 * 1024;

/// Timeout of a handshake, of the body of a request, and of the answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A peer may read the report once in this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Endpoint {
    asked: mpsc::Sender<Asked>,
    report: watch::Receiver<Option<Arc<Report>>>,
    /// When each peer last read the report.
    readers: Arc<Mutex<BTreeMap<ClusterId, Instant>>>,
}

impl Endpoint {
    fn may_read(&self, id: ClusterId) -> bool {
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|_, last| last.elapsed() < REPORT_INTERVAL);
        let is_early = readers.contains_key(&id);
        readers.entry(id).or_insert_with(Instant::now);
        !is_early
    }
}

/// Answers peers whose certificate is verified; others get no answer. Dropping this closes all connections.
pub(super) async fn serve(
    listener: TcpListener,
    tls: RustlsConfig,
    settings: Arc<Settings>,
    asked: mpsc::Sender<Asked>,
    report: watch::Receiver<Option<Arc<Report>>>,
    metrics: Arc<Metrics>,
) -> ! {
    let connections = Open(Connections::new(PEERS, metrics));
    let handshake = Members {
        handshake: RustlsAcceptor::new(tls).handshake_timeout(TIMEOUT),
        settings,
    };
    let router = Router::new()
        .route(EXCHANGE, post(exchange))
        .route(REPORT, get(reported))
        .with_state(Endpoint {
            asked,
            report,
            readers: Arc::default(),
        });
    let failed = |error: &io::Error| tracing::debug!(%error, "a connection to the port for peers is closed");
    admission::serve(listener, connections.0.clone(), handshake, failed, router).await;
    future::pending().await
}

async fn exchange(
    State(endpoint): State<Endpoint>,
    Extension(id): Extension<ClusterId>,
    Extension(slot): Extension<Arc<Slot>>,
    body: Body,
) -> Response {
    let answering = async {
        let request = to_bytes(body, MAX_BYTES).await.ok()?;
        let (reply, replied) = oneshot::channel();
        let asked = Asked {
            from: slot.peer,
            id,
            request,
            reply,
        };
        endpoint.asked.send(asked).await.ok()?;
        replied.await.ok()?
    };
    match timeout(TIMEOUT, answering).await.ok().flatten() {
        Some(reply) => json(reply),
        None => StatusCode::TOO_MANY_REQUESTS.into_response(),
    }
}

async fn reported(State(endpoint): State<Endpoint>, Extension(id): Extension<ClusterId>) -> Response {
    if !endpoint.may_read(id) {
        return StatusCode::TOO_MANY_REQUESTS.into_response();
    }
    let report = endpoint.report.borrow().clone();
    match report.and_then(|report| serde_json::to_vec(&*report).ok()) {
        Some(report) => json(report),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn json(bytes: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, "application/json")], bytes).into_response()
}

/// Accepts connections of verified members, and tells the routes which one it is.
#[derive(Clone)]
struct Members {
    handshake: RustlsAcceptor,
    settings: Arc<Settings>,
}

impl<S> Accept<S, Router> for Members
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = TlsStream<S>;
    type Service = Router;
    type Future = BoxFuture<'static, io::Result<(Self::Stream, Router)>>;

    fn accept(&self, stream: S, router: Router) -> Self::Future {
        let (handshake, settings) = (self.handshake.accept(stream, router), Arc::clone(&self.settings));
        let accepting = async move {
            let (stream, router) = handshake.await?;
            let uri = member(stream.get_ref().1.peer_certificates());
            let id = uri.as_deref().and_then(|uri| settings.identify(uri));
            let id = id.ok_or_else(|| io::Error::other(format!("{uri:?} is not the name of a peer")))?;
            Ok((stream, router.layer(Extension(id))))
        };
        accepting.boxed()
    }
}
