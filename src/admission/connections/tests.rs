//! A port with a handler of the test, over plain TCP.

use std::net::SocketAddr;

use axum::Extension;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;

const LONG: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_millis(20);

/// The longest that anything may take that does happen.
const BOUND: Duration = Duration::from_secs(60);

/// Nothing is over by itself.
const UNLIMITED: Port = Port {
    name: "admission",
    connections: 100,
    first_request: LONG,
    head: LONG,
    idle: LONG,
    age: LONG,
    keeps_answered: true,
};

struct Served {
    address: SocketAddr,
    connections: Connections,
    metrics: Arc<Metrics>,
    /// Lets one request to `/late` or `/review` be answered.
    late: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(port: Port) -> Served {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = socket.local_addr().expect("an address");
    let metrics = Arc::new(Metrics::new());
    let connections = Connections::new(port, Clock::start(), Arc::clone(&metrics));
    let late = Arc::<Notify>::default();
    let [wait, decided] = [Arc::clone(&late), Arc::clone(&late)];
    let review = async move |Extension(slot): Extension<Arc<Slot>>| {
        slot.review_arrived();
        decided.notified().await;
        StatusCode::BAD_REQUEST
    };
    let router = Router::new()
        .route("/", get(async || "ok"))
        .route("/review", get(review))
        .route("/late", get(async move || wait.notified().await));
    let plain = |stream| std::future::ready(Ok(stream));
    let serving = super::serve(socket, connections.clone(), plain, router);
    Served {
        address,
        connections,
        metrics,
        late,
        task: tokio::spawn(serving),
    }
}

impl Served {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connected")
    }

    /// A new connection with a request for `path` whose answer was not read.
    async fn asking(&self, path: &str) -> TcpStream {
        let requests = self.connections.in_flight();
        let mut stream = self.connect().await;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        eventually(|| self.connections.in_flight() > requests).await;
        stream
    }

    /// A new connection that was asked for `/`.
    async fn asked(&self) -> TcpStream {
        let mut stream = self.connect().await;
        assert!(ask(&mut stream, "/").await.contains("200 OK"));
        stream
    }

    fn refused(&self) -> bool {
        let line = "edgeward_connections_refused_total{port=\"admission\"}";
        self.metrics.encode().contains(line)
    }
}

/// The answer; empty if the connection is closed without one.
async fn ask(stream: &mut TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    // May fail where it is closed, which the answer tells.
    let _ = stream.write_all(request.as_bytes()).await;
    answer(stream).await
}

async fn answer(stream: &mut TcpStream) -> String {
    let mut answer = vec![0; 1024];
    let read = tokio::time::timeout(BOUND, stream.read(&mut answer)).await;
    answer.truncate(read.expect("an answer or an end").unwrap_or(0));
    String::from_utf8(answer).expect("UTF-8")
}

async fn is_closed(mut stream: TcpStream) {
    let read = tokio::time::timeout(BOUND, stream.read(&mut [0; 1])).await;
    assert!(matches!(read.expect("it ends"), Ok(0) | Err(_)));
}

async fn eventually(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.expect("it happens");
}

#[tokio::test]
async fn the_oldest_unproven_connection_makes_room() {
    let served = serve(Port {
        connections: 4,
        ..UNLIMITED
    })
    .await;
    let mut known = served.asked().await;
    let mut failed = served.connect().await;
    assert!(ask(&mut failed, "/nowhere").await.contains("404"));
    let mut silent = served.connect().await;
    let mut slow = served.connect().await;
    slow.write_all(b"GET / HT").await.expect("sent");
    eventually(|| served.connections.in_flight() == 1).await;
    let mut new = served.asked().await;
    is_closed(failed).await;
    assert!(served.refused());
    for stream in [&mut known, &mut silent, &mut new] {
        assert!(ask(stream, "/").await.contains("200 OK"));
    }
    // That it was asked for something keeps it no longer than its answer.
    let mut new = served.asked().await;
    is_closed(slow).await;
    assert!(ask(&mut new, "/").await.contains("200 OK"));
}

#[tokio::test]
async fn a_handshake_that_has_ended_makes_a_connection_young_again() {
    let connections = Connections::new(
        Port {
            connections: 2,
            ..UNLIMITED
        },
        Clock::start(),
        Arc::default(),
    );
    let (first, second) = (connections.open().expect("a slot"), connections.open().expect("a slot"));
    first.enter(Stage::New);
    let _third = connections.open().expect("the second one's slot");
    let told = tokio::time::timeout(BOUND, second.over()).await;
    told.expect("it is closed");
    assert!(tokio::time::timeout(SHORT, first.over()).await.is_err());
}

#[tokio::test]
async fn a_review_in_progress_is_spared_until_it_was_answered() {
    let served = serve(Port {
        connections: 2,
        ..UNLIMITED
    })
    .await;
    let mut review = served.asking("/review").await;
    // Younger, and it has to go.
    let waiting = served.asking("/late").await;
    let new = served.asked().await;
    is_closed(waiting).await;
    let mut refused = served.connect().await;
    assert_eq!(ask(&mut refused, "/").await, "");
    served.late.notify_one();
    assert!(answer(&mut review).await.contains("400 Bad Request"));
    // Which proves nothing.
    let _both = (new, served.asked().await);
    is_closed(review).await;
}

#[tokio::test]
async fn where_answers_do_not_count_the_oldest_makes_room() {
    let served = serve(Port {
        connections: 2,
        keeps_answered: false,
        ..UNLIMITED
    })
    .await;
    let (first, mut second) = (served.asked().await, served.asked().await);
    let mut new = served.asked().await;
    is_closed(first).await;
    assert!(served.refused());
    for stream in [&mut second, &mut new] {
        assert!(ask(stream, "/").await.contains("200 OK"));
    }
}

#[tokio::test]
async fn where_all_were_answered_a_new_one_is_refused_until_one_goes() {
    let served = serve(Port {
        connections: 2,
        ..UNLIMITED
    })
    .await;
    let (mut first, second) = (served.asked().await, served.asked().await);
    let mut refused = served.connect().await;
    assert_eq!(ask(&mut refused, "/").await, "");
    assert!(served.refused());
    assert!(ask(&mut first, "/").await.contains("200 OK"));
    drop(second);
    let again = async {
        loop {
            let mut stream = served.connect().await;
            if !ask(&mut stream, "/").await.is_empty() {
                break;
            }
        }
    };
    tokio::time::timeout(BOUND, again).await.expect("there is room again");
}

#[tokio::test]
async fn a_slot_is_free_again_however_a_connection_ends() {
    let served = serve(Port {
        connections: 2,
        ..UNLIMITED
    })
    .await;
    for _ in 0..20 {
        // Closed for another, or dropped before or after it was answered.
        drop(served.connect().await);
        drop(served.asked().await);
    }
    let (mut first, mut second) = (served.asked().await, served.asked().await);
    for stream in [&mut first, &mut second] {
        assert!(ask(stream, "/").await.contains("200 OK"));
    }
}

#[tokio::test]
async fn each_stage_has_a_time_of_its_own() {
    let served = serve(Port {
        first_request: SHORT,
        ..UNLIMITED
    })
    .await;
    is_closed(served.connect().await).await;
    let mut asked = served.asked().await;
    assert!(ask(&mut asked, "/").await.contains("200 OK"));

    let served = serve(Port {
        head: SHORT,
        ..UNLIMITED
    })
    .await;
    let mut idle = served.asked().await;
    let mut slow = served.connect().await;
    slow.write_all(b"GET / HT").await.expect("sent");
    is_closed(slow).await;
    let mut slow_at_last = served.asked().await;
    slow_at_last.write_all(b"G").await.expect("sent");
    is_closed(slow_at_last).await;
    assert!(ask(&mut idle, "/").await.contains("200 OK"), "idling is no slow head");

    let served = serve(Port {
        idle: SHORT,
        ..UNLIMITED
    })
    .await;
    let late = tokio::spawn({
        let mut stream = served.connect().await;
        async move { ask(&mut stream, "/late").await }
    });
    is_closed(served.asked().await).await;
    served.late.notify_one();
    let late = late.await.expect("joined");
    assert!(late.contains("200 OK"), "waiting for an answer is no idling: {late}");
}

#[tokio::test]
async fn an_old_connection_ends_behind_an_answer() {
    let served = serve(Port {
        age: Duration::ZERO,
        ..UNLIMITED
    })
    .await;
    let mut stream = served.connect().await;
    assert!(ask(&mut stream, "/").await.contains("connection: close"));
    is_closed(stream).await;
    let young = serve(UNLIMITED).await;
    assert!(!ask(&mut young.connect().await, "/").await.contains("connection: close"));
}

#[tokio::test]
async fn a_request_is_in_flight_from_its_first_byte_until_its_answer_has_left() {
    let served = serve(UNLIMITED).await;
    let connections = &served.connections;
    let (_new, _idle) = (served.connect().await, served.asked().await);
    connections.at_rest().await;
    let mut stream = served.connect().await;
    stream.write_all(b"GET /late HT").await.expect("sent");
    eventually(|| connections.in_flight() == 1).await;
    let gone = served.asking("/late").await;
    eventually(|| connections.in_flight() == 2).await;
    drop(gone);
    eventually(|| connections.in_flight() == 1).await;
    stream.write_all(b"TP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    let mut at_rest = std::pin::pin!(connections.at_rest());
    tokio::select! {
        biased;
        () = &mut at_rest => panic!("there is a request"),
        () = tokio::task::yield_now() => {}
    }
    served.late.notify_one();
    at_rest.await;
    let read = tokio::time::timeout(BOUND, stream.read(&mut [0; 15])).await;
    assert_eq!(read.expect("an answer").expect("read"), 15);
}
