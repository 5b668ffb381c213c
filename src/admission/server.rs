//! `POST /mutate` over TLS. Limits everything a client may consume, and keeps the caller's deadline. A review that
//! panics or is slow loses only its own opinion.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use edgeward_decision::placement::verdict::Reason;
use rustls::AlertDescription;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::Sleep;

use crate::admission::body::{BODIES_LIMIT, Buffered, Fault, ORDINARY_BODY};
use crate::admission::clients::Clients;
use crate::admission::connections;
use crate::admission::connections::{Connections, Slot, Stage};
use crate::admission::deadline::{self, answer_within};
use crate::admission::{Answer, Phase, Responder, Route, body};
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::{HandshakeFailure, Metrics};
use crate::platform::clock::Clock;
use crate::platform::threads::Threads;

/// Path of the admission endpoint.
pub const PATH: &str = "/mutate";

/// Longest TLS handshake; the API server gives up after the same time.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many reviews are decided concurrently. Others wait, at most until their deadline. The limit does not grow with
/// the number of cores, because each review takes memory.
pub const REVIEWS_AT_A_TIME: usize = 4;

/// State shared by all requests.
struct Endpoint {
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
    /// Decide reviews; [`REVIEWS_AT_A_TIME`] threads. Other work does not run on them, so that a blocking call (such as
    /// a name look-up without an answer) does not delay a review.
    threads: Threads,
    /// [`REVIEWS_AT_A_TIME`] permits; never closed.
    slots: Arc<Semaphore>,
    /// One permit for deciding a large body; never closed.
    large: Arc<Semaphore>,
    /// Memory for large bodies, in bytes.
    room: Arc<Semaphore>,
    clients: Clients,
}

impl Route {
    /// The route of AdmissionReviews.
    pub fn of_reviews(answer: Arc<dyn Answer>) -> Self {
        Self {
            path: PATH,
            answer,
            timeout: deadline::DEFAULT,
        }
    }
}

/// The admission endpoint without a listener.
///
/// | request | answer |
/// |---|---|
/// | `POST /mutate` with an AdmissionReview | 200 and the review's response |
/// | `POST` to another route | 200 and its answer; 404 while it is not served |
/// | a body that is not an AdmissionReview | 400 with the reason |
/// | another path or another method | 404, 405 |
/// | the body does not arrive before the deadline | 408 |
/// | the body is larger than [`BODY_LIMIT`](crate::admission::body::BODY_LIMIT) | 413 |
/// | a body above [`ORDINARY_BODY`] would exceed [`BODIES_LIMIT`] | 503 |
///
/// A review is answered "allowed, no patch" if it panics, if it is not decided within its `timeout`, or if edgeward is
/// not ready. At most [`REVIEWS_AT_A_TIME`] are decided concurrently; a review that exceeds its `timeout` keeps its
/// slot until it ends. Bodies above [`ORDINARY_BODY`] are decided one at a time, because their parsed form takes
/// memory. While draining, every answer carries `Connection: close`, so that the client's next request goes to another
/// replica.
///
/// # Errors
/// The review threads cannot be started.
pub fn router(
    routes: Vec<Route>,
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
    clock: Clock,
) -> io::Result<Router> {
    let endpoint = Arc::new(Endpoint {
        metrics,
        phase,
        threads: Threads::start("review", REVIEWS_AT_A_TIME)?,
        slots: Arc::new(Semaphore::new(REVIEWS_AT_A_TIME)),
        large: Arc::new(Semaphore::new(1)),
        room: Arc::new(Semaphore::new(BODIES_LIMIT)),
        clients: Clients::new(clock),
    });
    let mut router = Router::new();
    for route in routes {
        let path = route.path;
        let state = (Arc::clone(&endpoint), Arc::new(route));
        router = router.route(path, post(handle).with_state(state));
    }
    Ok(router
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(endpoint, finish)))
}

/// Serves `router` over TLS until a drain has ended the last connection.
pub async fn listen(
    socket: TcpListener,
    tls: RustlsConfig,
    router: Router,
    connections: Connections,
    metrics: Arc<Metrics>,
    clock: Clock,
) {
    let limit = Arc::new(LogLimit::new(clock));
    let failed = move |error: &io::Error| handshake_failed(error, &metrics, &limit);
    let handshake = RustlsAcceptor::new(tls).handshake_timeout(HANDSHAKE_TIMEOUT);
    connections::serve(socket, connections, handshake, failed, router).await;
}

/// Runs on every answer: counts errors and, while draining, closes the connection.
async fn finish(State(endpoint): State<Arc<Endpoint>>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        endpoint.metrics.http_errors.at([status.as_str()]).inc();
    }
    if endpoint.phase.borrow().is_draining {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "reviews are posted to /mutate\n").into_response()
}

async fn handle(State((endpoint, route)): State<(Arc<Endpoint>, Arc<Route>)>, request: Request) -> Response {
    if !route.answer.is_served() {
        return not_found().await;
    }
    let mut deadline = pin!(tokio::time::sleep(answer_within(request.uri(), route.timeout)));
    let slot = request.extensions().get::<Arc<Slot>>().cloned();
    let body = tokio::select! {
        biased;
        body = body::read(request.into_body(), &endpoint.room) => body,
        () = &mut deadline => return refuse(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n"),
    };
    let body = match body {
        Ok(body) => Arc::new(body),
        Err(Fault::TooLarge) => return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 7 MiB\n"),
        Err(Fault::NoRoom) => return refuse(StatusCode::SERVICE_UNAVAILABLE, "too many reviews at a time\n"),
        Err(Fault::Broken(error)) => {
            return refuse(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}\n"));
        }
    };
    if let Some(slot) = &slot {
        slot.enter(Stage::Review);
    }
    let responder = Arc::new(Responder::start());
    let response = answer(&endpoint, &route.answer, body, &responder, deadline).await;
    if let Some(slot) = slot.filter(|_| response.status().is_success()) {
        endpoint.clients.answered(slot.peer);
    }
    response
}

/// Returns the answer to this body by the deadline.
async fn answer(
    endpoint: &Endpoint,
    answer: &Arc<dyn Answer>,
    body: Arc<Buffered>,
    responder: &Arc<Responder>,
    mut deadline: Pin<&mut Sleep>,
) -> Response {
    let no_opinion = |why| respond(answer.no_opinion(&body.bytes, why, responder.elapsed()));
    let is_ready = endpoint.phase.borrow().missing.is_empty();
    if !is_ready {
        return no_opinion(Reason::NotReady);
    }
    let mut review = pin!(review(
        endpoint,
        Arc::clone(answer),
        Arc::clone(&body),
        Arc::clone(responder)
    ));
    let answered = tokio::select! {
        biased;
        answered = &mut review => answered,
        () = &mut deadline => {
            if responder.take() {
                return no_opinion(Reason::Deadline);
            }
            // The review was decided at the same moment; its answer is about to arrive.
            review.await
        }
    };
    match answered {
        Ok(answered) => respond(answered),
        Err(why) => no_opinion(why),
    }
}

/// Waits for a slot, then decides the review on a review thread. The review keeps its slot until it ends, even after
/// the deadline.
async fn review(
    endpoint: &Endpoint,
    answer: Arc<dyn Answer>,
    body: Arc<Buffered>,
    responder: Arc<Responder>,
) -> Result<anyhow::Result<Vec<u8>>, Reason> {
    let alone = match body.bytes.len() > ORDINARY_BODY {
        true => Some(Arc::clone(&endpoint.large).acquire_owned().await),
        false => None,
    };
    let slot = Arc::clone(&endpoint.slots).acquire_owned().await;
    let review = endpoint.threads.handle.spawn(async move {
        let _turns = (alone, slot);
        answer.review(&body.bytes, &responder)
    });
    review.await.map_err(|_| Reason::Panic)
}

fn respond(answered: anyhow::Result<Vec<u8>>) -> Response {
    match answered {
        Ok(bytes) => ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], bytes).into_response(),
        Err(reason) => (StatusCode::BAD_REQUEST, format!("{reason}\n")).into_response(),
    }
}

/// Answers an error before the whole body was read. The connection cannot be reused, so the answer closes it.
fn refuse(status: StatusCode, reason: impl IntoResponse) -> Response {
    (status, [(CONNECTION, HeaderValue::from_static("close"))], reason).into_response()
}

fn handshake_failed(error: &io::Error, metrics: &Metrics, limit: &LogLimit) {
    let cause = cause(error);
    metrics.handshake_failures.at([cause.as_str()]).inc();
    let words = match cause {
        HandshakeFailure::Rejected => Some("a client does not trust our certificate; is its caBundle ours?"),
        HandshakeFailure::Client => Some("a client showed no certificate that --client-ca vouches for"),
        _ => None,
    };
    let due = words.and_then(|words| Some((words, limit.due(words)?)));
    if let Some((words, held_back)) = due {
        tracing::warn!(%error, held_back, "{words}");
    } else {
        tracing::debug!(%error, cause = cause.as_str(), "handshake failed");
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
        Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)) => HandshakeFailure::Client,
        Some(_) => HandshakeFailure::Protocol,
        None if error.kind() == io::ErrorKind::TimedOut => HandshakeFailure::Timeout,
        None => HandshakeFailure::Closed,
    }
}

#[cfg(test)]
mod tests;
