//! What a port takes of connections: how many, and what a request's head may cost on each.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum_server::accept::Accept;
use axum_server::{Handle, Server};
use hyper_util::rt::TokioTimer;

use crate::metrics::Metrics;

/// The longest a client may take to send a request's head, and also the longest a connection may idle between two
/// requests: hyper has one timer for both. It must exceed the 90 s after which the API server drops an idle
/// connection: were ours the shorter, a review could meet a connection that we are just closing, and under
/// `failurePolicy: Ignore` its pod would be admitted undecided.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// The largest request head in bytes; hyper answers 431 beyond it, and beyond 100 header fields. It is also the
/// size of one read from the socket.
pub const HEAD_LIMIT: usize = 64 * 1024;

/// A port as metrics name it, and how many connections it takes. Both ports together stay below 1,024, the number of
/// files that a process commonly may open.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    pub(crate) name: &'static str,
    pub(crate) connections: usize,
}

/// The admission port. An API server opens a connection for each review that it sends while the others are busy.
pub(crate) const ADMISSION: Port = Port {
    name: "admission",
    connections: 512,
};

/// The port of health and metrics.
pub(crate) const HEALTH: Port = Port {
    name: "health",
    connections: 128,
};

/// HTTP/1 only, with bounds on the number of connections and on what a request's head may cost.
pub(crate) fn bounded<A>(
    server: Server<SocketAddr, A>,
    port: Port,
    handle: Handle<SocketAddr>,
    metrics: Arc<Metrics>,
) -> Server<SocketAddr, Capped<A>> {
    let capped = |inner| Capped {
        inner,
        port,
        handle: handle.clone(),
        metrics,
    };
    let mut server = server.map(capped).handle(handle.clone()).http1_only();
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_LIMIT);
    server
}

/// Closes a connection at once, and counts it, when there are too many.
#[derive(Debug, Clone)]
pub(crate) struct Capped<A> {
    inner: A,
    port: Port,
    /// Counts the connections that are open, those in their handshake and the one being accepted included.
    handle: Handle<SocketAddr>,
    metrics: Arc<Metrics>,
}

impl<A, I, S> Accept<I, S> for Capped<A>
where
    A: Accept<I, S>,
    A::Future: Send + 'static,
    A::Stream: Send,
    A::Service: Send,
{
    type Stream = A::Stream;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(A::Stream, A::Service)>> + Send>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        if self.handle.connection_count() > self.port.connections {
            self.metrics.connection_refused(self.port.name);
            return Box::pin(async { Err(io::Error::other("too many connections")) });
        }
        Box::pin(self.inner.accept(stream, service))
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// Asks for `/` and keeps the connection; `None` if it is closed without an answer.
    async fn ask(address: SocketAddr) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.ok()?;
        let read = stream.read(&mut [0; 1024]).await.ok()?;
        (read > 0).then_some(stream)
    }

    #[tokio::test]
    async fn connections_beyond_the_limit_are_closed_and_counted_until_one_ends() {
        let metrics = Arc::new(Metrics::new());
        let socket = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = socket.local_addr().expect("an address");
        let port = Port {
            name: "admission",
            connections: 2,
        };
        let router = Router::new().route("/", get(async || "ok"));
        let server = bounded(
            Server::<SocketAddr>::from_listener(socket),
            port,
            Handle::new(),
            Arc::clone(&metrics),
        );
        let serving = tokio::spawn(server.serve(router.into_make_service()));

        let first = ask(address).await.expect("served");
        let _second = ask(address).await.expect("served");
        assert!(ask(address).await.is_none());
        let page = metrics.encode();
        assert!(
            page.contains("edgeward_connections_refused_total{port=\"admission\"} 1\n"),
            "{page}"
        );
        drop(first);
        let again = async { while ask(address).await.is_none() {} };
        tokio::time::timeout(Duration::from_secs(60), again)
            .await
            .expect("there is room again");
        serving.abort();
    }
}
