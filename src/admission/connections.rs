//! What a port takes of connections: how many, for how long, and what a request's head may cost on each.
//!
//! The API server does not send a review again once it has written it. So a connection that has had an answer is
//! closed behind another one, which says so, and while it idles only after the API server has dropped it itself.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tower::ServiceExt as _;

mod slots;
mod staged;

pub use slots::Connections;
pub(super) use slots::Slot;

use slots::Stage;
use staged::Staged;

/// The longest that a new connection may take to begin its first request, from the end of its handshake.
pub const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest that a request's head may take to arrive, from its first byte on; and an answer to be taken.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may idle after an answer. It must exceed the 90 s after which the API server drops an idle
/// connection: were ours the shorter, a review could meet a connection that we are just closing, and under
/// `failurePolicy: Ignore` its pod would be admitted undecided.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The age from which a connection's next answer says `Connection: close`, so that replicas which come later get their
/// share. Each connection adds something random, as much again at most.
pub const AGE_LIMIT: Duration = Duration::from_secs(3 * 60);

/// The largest request head in bytes; hyper answers 431 beyond it, and beyond 100 header fields. It is also the
/// size of one read from the socket.
pub const HEAD_LIMIT: usize = 16 * 1024;

/// How long to wait where no connection can be accepted, since there are no files left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A port as metrics name it, how many connections it takes, and for how long. Both ports together stay below 1,024, the
/// number of files that a process commonly may open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    name: &'static str,
    connections: usize,
    first_request: Duration,
    head: Duration,
    idle: Duration,
    age: Duration,
    /// Whether a connection that was answered with success keeps its slot, whoever wants it.
    keeps_answered: bool,
}

/// The admission port. An API server opens a connection for each review that it sends while the others are busy.
pub(crate) const ADMISSION: Port = Port {
    name: "admission",
    connections: 768,
    first_request: FIRST_REQUEST_TIMEOUT,
    head: HEAD_TIMEOUT,
    idle: IDLE_TIMEOUT,
    age: AGE_LIMIT,
    keeps_answered: true,
};

/// The port of health and metrics. Anybody gets an answer there, so it earns no slot; and nothing that is asked is lost where
/// an idle connection is closed.
pub(crate) const HEALTH: Port = Port {
    name: "health",
    connections: 128,
    idle: Duration::from_secs(10),
    keeps_answered: false,
    ..ADMISSION
};

/// Where a request is from; one of its extensions.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// Serves HTTP/1 on every connection that `listener` accepts and `handshake` lets through, with bounds on what
/// `connections` may take. Never ends; dropped, it drops every connection.
pub(crate) async fn serve<S, F>(
    listener: TcpListener,
    connections: Connections,
    handshake: impl Fn(TcpStream) -> F,
    router: Router,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            // What has ended is dropped first, so that it never piles up. There is never more of it than was accepted.
            biased;
            Some(_) = tasks.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if let Some(slot) = connections.open() {
                    let peer = Peer(peer.ip());
                    tasks.spawn(serve_one(handshake(stream), slot, peer, router.clone()));
                }
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Serves one connection until it ends, a [`Stage`] of it has lasted too long, or it has to make room.
async fn serve_one<S>(handshake: impl Future<Output = io::Result<S>>, slot: Slot, peer: Peer, router: Router)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let slot = Arc::new(slot);
    let serving = async {
        let Ok(stream) = handshake.await else { return };
        slot.enter(Stage::New);
        let service = service_fn(|mut request: Request<Incoming>| {
            slot.enter(Stage::Request);
            request.extensions_mut().insert(Arc::clone(&slot));
            request.extensions_mut().insert(peer);
            let (slot, answering) = (Arc::clone(&slot), router.clone().oneshot(request));
            async move {
                let mut answer = answering.await?;
                slot.answered(&mut answer);
                Ok::<_, Infallible>(answer)
            }
        });
        // No timer: the time that a head may take is counted here.
        let mut http = http1::Builder::new();
        let stream = TokioIo::new(Staged::new(stream, Arc::clone(&slot)));
        // An error is the client's, or that it is gone.
        let _ = http.max_buf_size(HEAD_LIMIT).serve_connection(stream, service).await;
    };
    tokio::select! {
        biased;
        () = slot.over() => {}
        () = serving => {}
    }
}

#[cfg(test)]
mod tests;
