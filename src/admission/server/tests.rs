//! Tests of the router without a port.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Waker};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tower::ServiceExt as _;

use super::*;
use crate::admission::body::{BODIES_LIMIT, BODY_LIMIT, ORDINARY_BODY};
use crate::platform::clock::Clock;

/// An answer whose text names the method that was called. `review` first runs the test's closure.
struct Scripted<F>(F);

impl<F: Fn(&Responder) + Send + Sync + 'static> Answer for Scripted<F> {
    fn review(&self, body: &[u8], responder: &Responder) -> anyhow::Result<Vec<u8>> {
        (self.0)(responder);
        match body {
            b"{}" => Ok(b"reviewed".to_vec()),
            _ => Err(anyhow::anyhow!("kind is missing")),
        }
    }

    fn no_opinion(&self, _: &[u8], why: Reason, _: Duration) -> anyhow::Result<Vec<u8>> {
        Ok(format!("no opinion: {why:?}").into_bytes())
    }
}

struct Harness {
    router: Router,
    metrics: Arc<Metrics>,
    phase: watch::Sender<Phase>,
}

fn harness(behaviour: impl Fn(&Responder) + Send + Sync + 'static) -> Harness {
    harness_of(Scripted(behaviour))
}

fn harness_of(answer: impl Answer) -> Harness {
    let metrics = Arc::new(Metrics::new());
    let (phase, receiver) = watch::channel(Phase::default());
    Harness {
        router: router(
            vec![Route::of_reviews(Arc::new(answer))],
            Arc::clone(&metrics),
            receiver,
            Clock::start(),
        )
        .expect("threads"),
        metrics,
        phase,
    }
}

impl Harness {
    async fn send(&self, request: Request) -> (StatusCode, HeaderMap, String) {
        let response = self.router.clone().oneshot(request).await.expect("infallible");
        let (head, body) = response.into_parts();
        let body = body.collect().await.expect("a body").to_bytes();
        (
            head.status,
            head.headers,
            String::from_utf8(body.to_vec()).expect("UTF-8"),
        )
    }

    async fn post(&self, body: impl Into<Body>) -> (StatusCode, HeaderMap, String) {
        self.send(review("/mutate", body)).await
    }

    fn counted(&self, line: &str) -> bool {
        self.metrics.encode().contains(line)
    }
}

fn review(uri: &str, body: impl Into<Body>) -> Request {
    Request::post(uri)
        .header(CONTENT_TYPE, "application/json")
        .body(body.into())
        .expect("a request")
}

#[tokio::test]
async fn body_without_review_is_answered_with_400_and_reason() {
    let harness = harness(|_| {});
    let (status, _, body) = harness.post("[]").await;
    assert_eq!((status, body.as_str()), (StatusCode::BAD_REQUEST, "kind is missing\n"));
    assert!(harness.counted("edgeward_http_errors_total{code=\"400\"} 1"));
}

#[tokio::test]
async fn unknown_path_gets_404_and_wrong_method_gets_405() {
    let harness = harness(|_| {});
    assert_eq!(harness.send(review("/validate", "{}")).await.0, StatusCode::NOT_FOUND);
    let get = Request::builder()
        .method(Method::GET)
        .uri("/mutate")
        .body(Body::empty())
        .expect("a request");
    let (status, headers, _) = harness.send(get).await;
    assert_eq!(
        (status, headers["allow"].as_bytes()),
        (StatusCode::METHOD_NOT_ALLOWED, b"POST".as_slice())
    );
    assert!(harness.counted("edgeward_http_errors_total{code=\"404\"} 1"));
    assert!(harness.counted("edgeward_http_errors_total{code=\"405\"} 1"));
}

#[tokio::test]
async fn body_over_7_mib_is_refused() {
    let harness = harness(|_| {});
    assert_eq!(harness.post(vec![b' '; BODY_LIMIT]).await.0, StatusCode::BAD_REQUEST);
    let (status, headers, _) = harness.post(vec![b' '; BODY_LIMIT + 1]).await;
    assert_eq!(
        (status, headers[CONNECTION].as_bytes()),
        (StatusCode::PAYLOAD_TOO_LARGE, b"close".as_slice())
    );
    assert!(harness.counted("edgeward_http_errors_total{code=\"413\"} 1"));
}

/// A body that sends these bytes and never ends.
struct Stalled(Option<Bytes>);

impl HttpBody for Stalled {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        match self.0.take() {
            Some(data) => Poll::Ready(Some(Ok(http_body::Frame::data(data)))),
            None => Poll::Pending,
        }
    }
}

#[tokio::test]
async fn stalled_body_times_out_with_408() {
    let harness = harness(|_| {});
    let (status, headers, _) = harness
        .send(review("/mutate?timeout=20ms", Body::new(Stalled(None))))
        .await;
    assert_eq!(
        (status, headers[CONNECTION].as_bytes()),
        (StatusCode::REQUEST_TIMEOUT, b"close".as_slice())
    );
    assert!(harness.counted("edgeward_http_errors_total{code=\"408\"} 1"));
}

#[tokio::test]
async fn received_body_bytes_are_bounded_across_requests() {
    let harness = harness(|_| {});
    let begin = |data: Bytes| {
        let mut sending = Box::pin(harness.post(Body::new(Stalled(Some(data)))));
        let polled = sending.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        sending
    };
    let announced: Vec<_> = (0..100).map(|_| begin(Bytes::new())).collect();
    assert_eq!(harness.post("{}").await.0, StatusCode::OK);
    let largest = Bytes::from(vec![b' '; BODY_LIMIT]);
    let arrived: Vec<_> = (0..BODIES_LIMIT / (BODY_LIMIT - ORDINARY_BODY))
        .map(|_| begin(largest.clone()))
        .collect();
    let (status, headers, _) = harness.post(largest.clone()).await;
    assert_eq!(
        (status, headers[CONNECTION].as_bytes()),
        (StatusCode::SERVICE_UNAVAILABLE, b"close".as_slice())
    );
    assert!(harness.counted("edgeward_http_errors_total{code=\"503\"} 1"));
    let ordinary = vec![b' '; ORDINARY_BODY];
    assert_eq!(
        harness.post(ordinary).await.0,
        StatusCode::BAD_REQUEST,
        "taken, and no review"
    );
    drop((announced, arrived));
    assert_eq!(
        harness.post(largest).await.0,
        StatusCode::BAD_REQUEST,
        "taken, and no review"
    );
}

/// Timeout of operations that are expected to finish.
const BOUND: Duration = Duration::from_secs(60);

/// A review that lasts until the test drops the other end. It then reports whether it could still claim the answer.
fn until(released: Receiver<()>, claimed: Sender<bool>) -> impl Fn(&Responder) + Send + Sync {
    let released = Mutex::new(released);
    move |responder| {
        let _ = released.lock().expect("not poisoned").recv_timeout(BOUND);
        let _ = claimed.send(responder.take());
    }
}

#[tokio::test]
async fn overdue_review_is_answered_once_with_no_opinion() {
    let ((release, released), (claimed, claims)) = (channel(), channel());
    let harness = harness(until(released, claimed));
    let answered = harness.send(review("/mutate?timeout=100ms", "{}")).await;
    drop(release);
    let (status, _, body) = answered;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "no opinion: Deadline"));
    assert!(!claims.recv().expect("it ran to its end"), "it was answered already");
    let (_, _, body) = harness.post("{}").await;
    assert_eq!(body, "reviewed");
    assert!(claims.recv().expect("it ran to its end"));
}

#[tokio::test]
async fn reviews_without_slot_get_no_opinion_until_slots_are_free() {
    let ((release, released), (claimed, claims)) = (channel(), channel());
    let harness = harness(until(released, claimed));
    for _ in 0..=REVIEWS_AT_A_TIME {
        let (_, _, body) = harness.send(review("/mutate?timeout=20ms", "{}")).await;
        assert_eq!(body, "no opinion: Deadline");
    }
    drop(release);
    let (_, _, body) = harness.post("{}").await;
    assert_eq!(body, "reviewed");
    let answered = claims.iter().take(REVIEWS_AT_A_TIME + 1).filter(|claimed| *claimed);
    assert_eq!(
        answered.count(),
        1,
        "one more than had a slot, and only the last was in time"
    );
}

/// Reports the start of a large review, which lasts until the test drops the other end.
struct LargeLasts {
    begun: UnboundedSender<()>,
    released: Mutex<Receiver<()>>,
}

impl Answer for LargeLasts {
    fn review(&self, body: &[u8], _: &Responder) -> anyhow::Result<Vec<u8>> {
        if body.len() > ORDINARY_BODY {
            let _ = self.begun.send(());
            let _ = self.released.lock().expect("not poisoned").recv_timeout(BOUND);
        }
        Ok(b"reviewed".to_vec())
    }

    fn no_opinion(&self, _: &[u8], why: Reason, _: Duration) -> anyhow::Result<Vec<u8>> {
        Ok(format!("no opinion: {why:?}").into_bytes())
    }
}

#[tokio::test]
async fn large_reviews_run_one_at_a_time_beside_ordinary_ones() {
    let ((release, released), (begun, mut begins)) = (channel(), unbounded_channel());
    let released = Mutex::new(released);
    let harness = Arc::new(harness_of(LargeLasts { begun, released }));
    let post = |uri: &'static str, size: usize| {
        let harness = Arc::clone(&harness);
        tokio::spawn(async move { harness.send(review(uri, vec![b' '; size])).await.2 })
    };
    let large: Vec<_> = (0..2).map(|_| post("/mutate?timeout=30s", ORDINARY_BODY + 1)).collect();
    begins.recv().await.expect("one begins");
    assert_eq!(post("/mutate", ORDINARY_BODY).await.expect("joined"), "reviewed");
    let overdue = post("/mutate?timeout=20ms", ORDINARY_BODY + 1);
    assert_eq!(overdue.await.expect("joined"), "no opinion: Deadline");
    assert!(begins.try_recv().is_err(), "the second waits");
    drop(release);
    for large in large {
        assert_eq!(large.await.expect("joined"), "reviewed");
    }
    begins.recv().await.expect("the second began");
}

#[tokio::test]
async fn panic_in_review_is_answered_with_no_opinion() {
    let harness = harness(|_| panic!("a bug"));
    let (status, _, body) = harness.post("{}").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "no opinion: Panic"));
}

#[tokio::test]
async fn review_before_readiness_is_answered_with_no_opinion() {
    let harness = harness(|_| panic!("must not be asked"));
    harness.phase.send_modify(|phase| phase.missing.push("nodes"));
    let (status, headers, body) = harness.post("{}").await;
    assert_eq!((status, body.as_str()), (StatusCode::OK, "no opinion: NotReady"));
    assert!(!headers.contains_key(CONNECTION));
}

#[tokio::test]
async fn draining_server_decides_and_closes_its_connections() {
    let harness = harness(|_| {});
    harness.phase.send_modify(|phase| phase.is_draining = true);
    for request in [
        review("/mutate", "{}"),
        review("/mutate", "[]"),
        review("/elsewhere", "{}"),
    ] {
        let (_, headers, _) = harness.send(request).await;
        assert_eq!(headers[CONNECTION], "close");
    }
    assert_eq!(harness.post("{}").await.2, "reviewed");
}
