//! Serves HTTP on a port with a limited number of connections.
//!
//! The API server does not resend a review that it has written. So a connection with a review in progress is never
//! closed. An idle connection is closed only after the API server would have dropped it itself, or when the port is
//! full.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::Version;
use axum::middleware::{self, AddExtension, Next};
use axum::response::Response;
use axum::{Extension, Router};
use axum_server::Server;
use axum_server::accept::Accept;
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tower::Layer as _;

mod slots;
mod stream;

pub use slots::Connections;
pub(crate) use slots::Slot;
pub(super) use slots::Stage;

use stream::Closable;

/// How long a connection may wait until the head of its next request is complete. It must exceed the 90 s after which
/// the API server drops an idle connection. If ours were shorter, a review could arrive on a closing connection, and
/// under `failurePolicy: Ignore` its pod would be admitted without a decision.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// Age at which the next answer of a connection carries `Connection: close`, so that new replicas receive connections
/// too. Each connection adds random jitter of up to the same time.
pub const AGE_LIMIT: Duration = Duration::from_secs(3 * 60);

/// Largest request head in bytes. hyper answers 431 beyond it, or beyond 100 header fields. It is also the size of one
/// socket read.
pub const HEAD_LIMIT: usize = 16 * 1024;

/// A port with its metric label and limits. All ports together stay below 1,024 connections, the usual limit of open
/// files per process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    name: &'static str,
    connections: usize,
    /// How many of these connections may be in the TLS handshake.
    handshakes: usize,
    idle: Duration,
    /// HTTP/2 alone, for gRPC. All other ports speak HTTP/1 alone.
    is_http2: bool,
}

/// The admission port. An API server opens a further connection while all others are busy with reviews.
pub(crate) const ADMISSION: Port = Port {
    name: "admission",
    connections: 768,
    handshakes: 640,
    idle: IDLE_TIMEOUT,
    is_http2: false,
};

/// The port for health and metrics. An idle connection there can be closed without harm.
pub(crate) const HEALTH: Port = Port {
    name: "health",
    connections: 128,
    handshakes: 128,
    idle: Duration::from_secs(10),
    is_http2: false,
};

/// The port for peers.
pub(crate) const PEERS: Port = Port {
    name: "peers",
    connections: 64,
    handshakes: 32,
    idle: Duration::from_secs(10),
    is_http2: false,
};

/// The port for Karmada's scheduler. It keeps one connection.
pub(crate) const ESTIMATOR: Port = Port {
    name: "estimator",
    connections: 32,
    handshakes: 16,
    idle: Duration::from_secs(30),
    is_http2: true,
};

/// How many calls a connection of HTTP/2 may have at the same time.
const STREAMS: u32 = 16;

/// The connections of a port; dropping this closes them.
pub(crate) struct Open(pub(crate) Connections);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.cut();
    }
}

/// Serves `router` on every connection that `handshake` accepts, until [`Connections::drain`] has ended the last one.
/// Calls `failed` with the error of each failed handshake.
pub(crate) async fn serve<A, F>(
    listener: TcpListener,
    connections: Connections,
    handshake: A,
    failed: F,
    router: Router,
) where
    A: Accept<Closable, Router, Service = Router> + Clone + Send + Sync + 'static,
    A::Stream: AsyncRead + AsyncWrite + Unpin + Send,
    A::Future: Send + 'static,
    F: Fn(&io::Error) + Clone + Send + Sync + 'static,
{
    let Port { idle, is_http2, .. } = connections.port;
    let server = Server::from_listener(listener)
        .handle(connections.handle.clone())
        .acceptor(Acceptor {
            handshake,
            failed,
            connections,
        });
    let mut server = if is_http2 {
        server.http2_only()
    } else {
        server.http1_only()
    };
    let mut http2 = server.http_builder().http2();
    http2
        .timer(TokioTimer::new())
        .keep_alive_interval(idle)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_LIMIT as u32);
    let mut http = server.http_builder().http1();
    http.timer(TokioTimer::new())
        .header_read_timeout(idle)
        .max_buf_size(HEAD_LIMIT);
    let router = router.layer(middleware::from_fn(track));
    // Cannot fail: the listener is bound, and a router is always ready.
    let _ = server.serve(router.into_make_service()).await;
}

/// Updates the connection's [`Slot`] for each request and its answer.
async fn track(Extension(slot): Extension<Arc<Slot>>, request: Request, next: Next) -> Response {
    slot.enter(Stage::Used);
    let may_close = request.version() < Version::HTTP_2;
    let mut answer = next.run(request).await;
    slot.answered(&mut answer, may_close);
    answer
}

/// Takes a [`Slot`] for a new connection, sets `TCP_NODELAY`, and runs the handshake.
#[derive(Clone)]
struct Acceptor<A, F> {
    handshake: A,
    failed: F,
    connections: Connections,
}

impl<A, F> Accept<TcpStream, Router> for Acceptor<A, F>
where
    A: Accept<Closable, Router, Service = Router>,
    A::Future: Send + 'static,
    F: Fn(&io::Error) + Clone + Send + 'static,
{
    type Stream = A::Stream;
    type Service = AddExtension<Router, Arc<Slot>>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, router: Router) -> Self::Future {
        let failed = self.failed.clone();
        let slot = stream.set_nodelay(true).and_then(|()| {
            let slot = self.connections.open(stream.peer_addr()?.ip());
            Ok(slot.ok_or(io::ErrorKind::ConnectionRefused)?)
        });
        let accepting = slot.map(|(slot, open)| {
            let stream = Closable { inner: stream, open };
            (self.handshake.accept(stream, router), Arc::new(slot))
        });
        Box::pin(async move {
            let (handshake, slot) = accepting?;
            let (stream, router) = handshake.await.inspect_err(|error| failed(error))?;
            slot.enter(Stage::New);
            Ok((stream, Extension(slot).layer(router)))
        })
    }
}

#[cfg(test)]
mod tests;
