//! `POST /mutate` over TLS: bounds on everything a client may take from us, the caller's deadline, and a panic that
//! costs one review its opinion and nothing else.

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum_server::accept::{Accept, NoDelayAcceptor};
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use axum_server::{Handle, Server};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper_util::rt::TokioTimer;
use rustls::{AlertDescription, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;

use super::deadline::answer_within;
use super::review::{NoOpinion, NotAReview};
use super::{Answer, Phase};
use crate::metrics::{HandshakeFailure, Metrics};
use crate::tls::ALPN;

/// Where reviews are posted.
pub const PATH: &str = "/mutate";

/// The largest request body in bytes. A review can hold a pod twice and the API server takes objects of 3 MiB, so
/// this is what webhooks commonly accept.
pub const BODY_LIMIT: usize = 7 * 1024 * 1024;

/// The longest a handshake may take; the API server gives up after as long.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest a client may take to send a request's head, and also the longest a connection may idle between two
/// requests: hyper has one timer for both. It must exceed the 90 s after which the API server drops an idle
/// connection: were ours the shorter, a review could meet a connection that we are just closing, and under
/// `failurePolicy: Ignore` its pod would be admitted undecided.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// The largest request head in bytes; hyper answers 431 beyond it, and beyond 100 header fields. It is also the
/// size of one read from the socket.
pub const HEAD_LIMIT: usize = 64 * 1024;

/// What a handler shares.
struct Endpoint<A> {
    answer: Arc<A>,
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
}

/// The admission endpoint without a listener.
///
/// | request | answer |
/// |---|---|
/// | `POST /mutate` with an AdmissionReview | 200 and the review's response |
/// | what is sent is no AdmissionReview | 400 with the reason |
/// | another path, another method | 404, 405 |
/// | the body does not arrive before the deadline | 408 |
/// | the body is larger than [`BODY_LIMIT`] | 413 |
/// | the body is not `application/json` | 415 |
///
/// A review that panics, overruns its `timeout` or comes before everything needed is there is answered "allowed, no
/// patch". While draining every answer carries `Connection: close`, so that the client's next request goes to
/// another replica.
pub fn router<A: Answer>(answer: Arc<A>, metrics: Arc<Metrics>, phase: watch::Receiver<Phase>) -> Router {
    let endpoint = Arc::new(Endpoint { answer, metrics, phase });
    Router::new()
        .route(PATH, post(mutate::<A>))
        .fallback(async || (StatusCode::NOT_FOUND, "reviews are posted to /mutate\n"))
        .layer(middleware::from_fn_with_state(Arc::clone(&endpoint), finish::<A>))
        .with_state(endpoint)
}

/// Serves `router` over TLS until `handle` ends it. Resolves when the last connection is closed, or at the end of
/// the handle's grace period.
///
/// # Errors
/// The socket can no longer accept.
pub async fn listen(
    socket: TcpListener,
    tls: Arc<ServerConfig>,
    router: Router,
    metrics: Arc<Metrics>,
    handle: Handle<SocketAddr>,
) -> io::Result<()> {
    let server = Server::from_listener(socket)
        .acceptor(acceptor(tls, metrics))
        .handle(handle);
    bounded(server).serve(router.into_make_service()).await
}

/// HTTP/1 only, with bounds on what a request's head may cost.
pub(crate) fn bounded<Acceptor>(server: Server<SocketAddr, Acceptor>) -> Server<SocketAddr, Acceptor> {
    let mut server = server.http1_only();
    server
        .http_builder()
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_LIMIT);
    server
}

/// Every answer passes here: errors are counted, and a draining server says goodbye.
async fn finish<A: Answer>(State(endpoint): State<Arc<Endpoint<A>>>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        endpoint.metrics.http_error(status.as_u16());
    }
    if *endpoint.phase.borrow() == Phase::Draining {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn mutate<A: Answer>(State(endpoint): State<Arc<Endpoint<A>>>, request: Request) -> Response {
    let mut deadline = pin!(tokio::time::sleep(answer_within(request.uri())));
    if !is_json(request.headers()) {
        return refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body must be application/json\n",
        );
    }
    let collect = Limited::new(request.into_body(), BODY_LIMIT).collect();
    let body = tokio::select! {
        biased;
        body = collect => body,
        () = &mut deadline => return refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n"),
    };
    let body = match body {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 7 MiB\n");
        }
        Err(error) => return refuse(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}\n")),
    };
    let phase = *endpoint.phase.borrow();
    if phase == Phase::NotReady {
        return no_opinion(&*endpoint.answer, &body, NoOpinion::NotReady);
    }
    // A task of its own, so that the runtime catches a panic, and so that this one is woken at the deadline. An
    // overdue review runs to its end, which nobody waits for.
    let review = tokio::spawn({
        let (answer, body) = (Arc::clone(&endpoint.answer), body.clone());
        async move { answer.review(&body) }
    });
    tokio::select! {
        biased;
        answered = review => match answered {
            Ok(answered) => respond(answered),
            Err(_) => no_opinion(&*endpoint.answer, &body, NoOpinion::Panic),
        },
        () = &mut deadline => no_opinion(&*endpoint.answer, &body, NoOpinion::Deadline),
    }
}

/// The answer of last resort. Should it panic too, the client gets a 500, which `failurePolicy: Ignore` admits.
fn no_opinion(answer: &impl Answer, body: &Bytes, why: NoOpinion) -> Response {
    match catch_unwind(AssertUnwindSafe(|| answer.no_opinion(body, why))) {
        Ok(answered) => respond(answered),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the review failed\n").into_response(),
    }
}

fn respond(answered: Result<Vec<u8>, NotAReview>) -> Response {
    match answered {
        Ok(bytes) => ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], bytes).into_response(),
        Err(NotAReview(reason)) => (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response(),
    }
}

/// An error before the body was read to its end: the connection cannot be used again, and the client is told.
fn refuse(status: StatusCode, reason: impl IntoResponse) -> Response {
    (status, [(CONNECTION, HeaderValue::from_static("close"))], reason).into_response()
}

/// Parameters such as `charset=utf-8` are allowed; JSON is UTF-8 whatever they say.
fn is_json(headers: &HeaderMap) -> bool {
    let value = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// The handshake, counted.
#[derive(Debug, Clone)]
struct CountedAcceptor {
    inner: RustlsAcceptor<NoDelayAcceptor>,
    metrics: Arc<Metrics>,
}

/// `TCP_NODELAY`, then the handshake within [`HANDSHAKE_TIMEOUT`].
fn acceptor(tls: Arc<ServerConfig>, metrics: Arc<Metrics>) -> CountedAcceptor {
    let inner = RustlsAcceptor::new(RustlsConfig::from_config(tls))
        .handshake_timeout(HANDSHAKE_TIMEOUT)
        .acceptor(NoDelayAcceptor::new());
    CountedAcceptor { inner, metrics }
}

impl<S: Send + 'static> Accept<TcpStream, S> for CountedAcceptor {
    type Stream = TlsStream<TcpStream>;
    type Service = S;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, S)>> + Send>>;

    fn accept(&self, stream: TcpStream, service: S) -> Self::Future {
        let accepting = self.inner.accept(stream, service);
        let metrics = Arc::clone(&self.metrics);
        Box::pin(async move {
            let accepted = accepting.await;
            match &accepted {
                Ok((stream, _)) => {
                    let protocol = stream.get_ref().1.alpn_protocol();
                    metrics.connection(if protocol == Some(ALPN) { "http/1.1" } else { "none" });
                }
                Err(error) => {
                    let cause = cause(error);
                    metrics.handshake_failure(cause);
                    if cause == HandshakeFailure::Rejected {
                        tracing::warn!(%error, "a client does not trust our certificate; is its caBundle ours?");
                    } else {
                        tracing::debug!(%error, cause = cause.as_str(), "handshake failed");
                    }
                }
            }
            accepted
        })
    }
}

fn cause(error: &io::Error) -> HandshakeFailure {
    use AlertDescription as Alert;
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::AlertReceived(
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA,
        )) => HandshakeFailure::Rejected,
        Some(_) => HandshakeFailure::Protocol,
        None if error.kind() == io::ErrorKind::TimedOut => HandshakeFailure::Timeout,
        None => HandshakeFailure::Closed,
    }
}

#[cfg(test)]
mod tests;
