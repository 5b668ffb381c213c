//! Serves HTTP/1 on a port, with a bound on its connections.
//!
//! The API server does not repeat a review that it has written, so a connection with a review in progress is never closed, and
//! one that idles only after the API server has dropped it itself or when the port is full.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use axum_server::Server;
use axum_server::accept::Accept;
use hyper::body::Incoming;
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tower::{Service, service_fn};

mod slots;
mod stream;

pub use slots::Connections;
pub(super) use slots::Slot;

use slots::Stage;
use stream::Closable;

/// How long a connection may take until the head of its next request is complete. It must exceed the 90 s after which the API
/// server drops an idle connection: were ours the shorter, a review could meet a connection that is closing, and under
/// `failurePolicy: Ignore` its pod would be admitted undecided.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The age from which a connection's next answer says `Connection: close`, so that replicas which come later get their
/// share. Each connection adds something random, as much again at most.
pub const AGE_LIMIT: Duration = Duration::from_secs(3 * 60);

/// The largest request head in bytes; hyper answers 431 beyond it, and beyond 100 header fields. It is also the
/// size of one read from the socket.
pub const HEAD_LIMIT: usize = 16 * 1024;

/// A port as metrics name it, and what it takes. Both ports together stay below 1,024 connections, the number of files that a
/// process commonly may open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    name: &'static str,
    connections: usize,
    /// Of these, how many may be in their handshake.
    handshakes: usize,
    idle: Duration,
}

/// The admission port. An API server opens a connection for each review that it sends while the others are busy.
pub(crate) const ADMISSION: Port = Port {
    name: "admission",
    connections: 768,
    handshakes: 640,
    idle: IDLE_TIMEOUT,
};

/// The port of health and metrics. Closing an idle connection loses nothing there.
pub(crate) const HEALTH: Port = Port {
    name: "health",
    connections: 128,
    handshakes: 128,
    idle: Duration::from_secs(10),
};

/// Serves `router` on every connection that `handshake` accepts, until [`Connections::drain`] has ended the last one. `failed` is
/// told each handshake's error.
pub(crate) async fn serve<A, F>(
    listener: TcpListener,
    connections: Connections,
    handshake: A,
    failed: F,
    router: Router,
) where
    A: Accept<Closable, Tracked, Service = Tracked> + Clone + Send + Sync + 'static,
    A::Stream: AsyncRead + AsyncWrite + Unpin + Send,
    A::Future: Send + 'static,
    F: Fn(&io::Error) + Clone + Send + Sync + 'static,
{
    let (handle, idle) = (connections.handle(), connections.port().idle);
    let mut server = Server::from_listener(listener)
        .handle(handle)
        .acceptor(Acceptor { handshake, failed })
        .http1_only();
    let mut http = server.http_builder().http1();
    http.timer(TokioTimer::new())
        .header_read_timeout(idle)
        .max_buf_size(HEAD_LIMIT);
    let tracked = service_fn(move |peer: SocketAddr| {
        let slot = connections.open(peer.ip()).map(Arc::new);
        let router = router.clone();
        ready(slot.map(|slot| Tracked { router, slot }).ok_or("the port is full"))
    });
    // Cannot fail: the listener is bound, and a service is always ready.
    let _ = server.serve(tracked).await;
}

/// The router for one connection, whose [`Slot`] hears of each request and answer.
#[derive(Clone)]
pub(crate) struct Tracked {
    router: Router,
    slot: Arc<Slot>,
}

impl Service<Request<Incoming>> for Tracked {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let slot = Arc::clone(&self.slot);
        slot.enter(Stage::Used);
        request.extensions_mut().insert(Arc::clone(&slot));
        let answering = self.router.call(request);
        Box::pin(async move {
            let mut answer = answering.await?;
            slot.answered(&mut answer);
            Ok(answer)
        })
    }
}

/// Makes the handshake on a stream that its [`Slot`] can close, with `TCP_NODELAY`.
#[derive(Clone)]
pub(crate) struct Acceptor<A, F> {
    handshake: A,
    failed: F,
}

impl<A, F> Accept<TcpStream, Tracked> for Acceptor<A, F>
where
    A: Accept<Closable, Tracked, Service = Tracked>,
    A::Future: Send + 'static,
    F: Fn(&io::Error) + Clone + Send + 'static,
{
    type Stream = A::Stream;
    type Service = Tracked;
    type Future = Pin<Box<dyn Future<Output = io::Result<(A::Stream, Tracked)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: Tracked) -> Self::Future {
        let (slot, failed) = (Arc::clone(&service.slot), self.failed.clone());
        let nodelay = stream.set_nodelay(true);
        let handshake = self.handshake.accept(Closable::new(stream, slot.closing()), service);
        Box::pin(async move {
            nodelay?;
            let accepted = handshake.await.inspect_err(|error| failed(error))?;
            slot.enter(Stage::New);
            Ok(accepted)
        })
    }
}

#[cfg(test)]
mod tests;
