//! What a port takes of connections: how many, for how long, and what a request's head may cost on each.
//!
//! The API server does not send a review again once it has written it. So a connection that has had an answer is
//! closed behind another one, which says so, and while it idles only after the API server has dropped it itself.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum_server::accept::Accept;
use axum_server::{Handle, Server};

mod guarded;
mod seats;

pub use seats::Connections;

use guarded::{Attended, Guarded};
use seats::Stage;

/// The longest that a new connection may take to begin its first request, handshake included.
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
    /// Whether a connection that was answered with success keeps its seat, whoever wants it.
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

/// The port of health and metrics. Anybody gets an answer there, so it earns no seat; and nothing that is asked is lost where
/// an idle connection is closed.
pub(crate) const HEALTH: Port = Port {
    name: "health",
    connections: 128,
    idle: Duration::from_secs(10),
    keeps_answered: false,
    ..ADMISSION
};

/// HTTP/1 only, with bounds on what `connections` may take.
pub(crate) fn bounded<A>(
    server: Server<SocketAddr, A>,
    connections: Connections,
    handle: Handle<SocketAddr>,
) -> Server<SocketAddr, Capped<A>> {
    let capped = |inner| Capped { inner, connections };
    let mut server = server.map(capped).handle(handle).http1_only();
    // No timer: the time that a head may take is counted here.
    server.http_builder().http1().max_buf_size(HEAD_LIMIT);
    server
}

/// Gives each connection a seat, and what watches over it.
#[derive(Debug, Clone)]
pub(crate) struct Capped<A> {
    inner: A,
    connections: Connections,
}

impl<A, I, S> Accept<I, S> for Capped<A>
where
    A: Accept<I, S>,
    A::Future: Send + 'static,
    A::Stream: Send,
    A::Service: Send,
{
    type Stream = Guarded<A::Stream>;
    type Service = Attended<A::Service>;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let Some((seat, mut eviction)) = self.connections.seat() else {
            return Box::pin(async { Err(io::Error::other("too many connections")) });
        };
        let accepting = self.inner.accept(stream, service);
        Box::pin(async move {
            let (stream, service) = tokio::select! {
                biased;
                accepted = accepting => accepted?,
                () = eviction.evicted() => return Err(seats::evicted()),
            };
            seat.enter(Stage::New);
            let seat = Arc::new(seat);
            let service = Attended::new(service, Arc::clone(&seat));
            Ok((Guarded::new(stream, seat, eviction), service))
        })
    }
}

#[cfg(test)]
mod tests;
