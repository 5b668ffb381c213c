//! `POST /mutate` over TLS: bounds on everything a client may take from us, the caller's deadline, and a review that
//! panics or takes long costs its own opinion and nothing else.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use rustls::AlertDescription;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::block_in_place;
use tokio::time::Sleep;

use crate::admission::body::{Buffered, Fault};
use crate::admission::clients::Clients;
use crate::admission::connections;
use crate::admission::connections::{Connections, Slot, Stage};
use crate::admission::deadline::answer_within;
use crate::admission::review::{NoOpinion, NotAReview};
use crate::admission::{Answer, Phase, Responder, body};
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::{HandshakeFailure, Metrics};
use crate::platform::clock::Clock;
use crate::platform::threads::Threads;

/// Where reviews are posted.
pub const PATH: &str = "/mutate";

/// The longest a handshake may take; the API server gives up after as long.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many reviews are decided at the same time; the others wait, until their deadline at most. It does not grow with the
/// number of cores, because each review takes memory.
pub const REVIEWS_AT_A_TIME: usize = 4;

/// What a handler shares.
struct Endpoint<A> {
    answer: Arc<A>,
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
    clock: Clock,
    /// Decide reviews, [`REVIEWS_AT_A_TIME`]. No other work runs on them, so that nothing that blocks (a name look-up that gets no answer,
    /// say) keeps a review waiting.
    threads: Threads,
    /// [`REVIEWS_AT_A_TIME`]; never closed.
    slots: Arc<Semaphore>,
    /// For the one large body that is decided at a time; never closed.
    large: Arc<Semaphore>,
    /// For bodies, in bytes.
    room: Arc<Semaphore>,
    clients: Clients,
}

/// The admission endpoint without a listener.
///
/// | request | answer |
/// |---|---|
/// | `POST /mutate` with an AdmissionReview | 200 and the review's response |
/// | what is sent is no AdmissionReview | 400 with the reason |
/// | another path, another method | 404, 405 |
/// | the body does not arrive before the deadline | 408 |
/// | the body is larger than [`BODY_LIMIT`](crate::admission::BODY_LIMIT) | 413 |
/// | the body is not `application/json` | 415 |
/// | with the body, [`BODIES_LIMIT`](crate::admission::BODIES_LIMIT) would be exceeded | 503; no body up to [`ORDINARY_BODY`](crate::admission::ORDINARY_BODY) |
///
/// A review that panics, is not decided within its `timeout` or comes before everything needed is there is answered
/// "allowed, no patch". At most [`REVIEWS_AT_A_TIME`] are decided at the same time; one that overruns its `timeout` keeps its
/// slot until it ends. Bodies of more than [`ORDINARY_BODY`](crate::admission::ORDINARY_BODY) are decided one at a time,
/// because what is made of them takes memory. While draining every answer carries `Connection: close`, so that the client's
/// next request goes to another replica.
///
/// # Errors
/// The threads that decide reviews cannot be started.
pub fn router<A: Answer>(
    answer: Arc<A>,
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
    clock: Clock,
) -> io::Result<Router> {
    let endpoint = Arc::new(Endpoint {
        answer,
        metrics,
        phase,
        clock,
        threads: Threads::start("review", REVIEWS_AT_A_TIME)?,
        slots: Arc::new(Semaphore::new(REVIEWS_AT_A_TIME)),
        large: Arc::new(Semaphore::new(1)),
        room: body::room(),
        clients: Clients::new(clock),
    });
    let router = Router::new()
        .route(PATH, post(mutate::<A>))
        .fallback(async || (StatusCode::NOT_FOUND, "reviews are posted to /mutate\n"))
        .layer(middleware::from_fn_with_state(Arc::clone(&endpoint), finish::<A>))
        .with_state(endpoint);
    Ok(router)
}

/// Serves `router` over TLS, until a drain has ended the last connection.
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

/// Every answer passes here: errors are counted, and a draining server closes its connections.
async fn finish<A: Answer>(State(endpoint): State<Arc<Endpoint<A>>>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let status = response.status();
    if status.is_client_error() || status.is_server_error() {
        endpoint.metrics.http_errors.at([status.as_str()]).inc();
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
    let slot = request.extensions().get::<Arc<Slot>>().cloned();
    if !is_json(request.headers()) {
        return refuse(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body must be application/json\n",
        );
    }
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
    let responder = Arc::new(Responder::new(endpoint.clock));
    let response = answer(&endpoint, body, &responder, deadline).await;
    if let Some(slot) = slot.filter(|_| response.status().is_success()) {
        endpoint.clients.answered(slot.peer);
    }
    response
}

/// What is answered to this body, by the deadline.
async fn answer<A: Answer>(
    endpoint: &Endpoint<A>,
    body: Arc<Buffered>,
    responder: &Arc<Responder>,
    mut deadline: Pin<&mut Sleep>,
) -> Response {
    let no_opinion = |why| no_opinion(&*endpoint.answer, &body, why, responder);
    let phase = *endpoint.phase.borrow();
    if phase == Phase::NotReady {
        return no_opinion(NoOpinion::NotReady);
    }
    let mut review = pin!(review(endpoint, Arc::clone(&body), Arc::clone(responder)));
    let answered = tokio::select! {
        biased;
        answered = &mut review => answered,
        () = &mut deadline => {
            if responder.claim() {
                return no_opinion(NoOpinion::Deadline);
            }
            // Decided in this very moment, and about to arrive.
            review.await
        }
    };
    match answered {
        Ok(answered) => respond(answered),
        Err(why) => no_opinion(why),
    }
}

/// Waits for a slot, and has the review decided on a thread for reviews. The review keeps its slot until it
/// ends, even after the deadline.
async fn review<A: Answer>(
    endpoint: &Endpoint<A>,
    body: Arc<Buffered>,
    responder: Arc<Responder>,
) -> Result<Result<Vec<u8>, NotAReview>, NoOpinion> {
    let alone = match body.is_large() {
        true => Some(Arc::clone(&endpoint.large).acquire_owned().await),
        false => None,
    };
    let slot = Arc::clone(&endpoint.slots).acquire_owned().await;
    let answer = Arc::clone(&endpoint.answer);
    let review = endpoint.threads.handle().spawn(async move {
        let _turns = (alone, slot);
        answer.review(&body, &responder)
    });
    review.await.map_err(|_| NoOpinion::Panic)
}

/// Bodies of more bytes are not parsed while other tasks wait for the thread.
const PARSED_IN_PLACE: usize = 256 * 1024;

/// The answer of last resort. Should it panic too, the client gets a 500, which `failurePolicy: Ignore` admits.
fn no_opinion(answer: &impl Answer, body: &[u8], why: NoOpinion, responder: &Responder) -> Response {
    let answer = || answer.no_opinion(body, why, responder.elapsed());
    let answer = || catch_unwind(AssertUnwindSafe(answer));
    let is_large = body.len() > PARSED_IN_PLACE;
    match if is_large { block_in_place(answer) } else { answer() } {
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
