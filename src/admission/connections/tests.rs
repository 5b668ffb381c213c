//! A port with a handler of the test, over plain TCP.

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;

const LONG: Duration = Duration::from_secs(3_600);
const SHORT: Duration = Duration::from_millis(20);

/// The longest that anything may take that does happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nothing is over by itself.
const PATIENT: Port = Port {
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
    /// Lets one request to `/late` be answered.
    late: Arc<Notify>,
    task: JoinHandle<io::Result<()>>,
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
    let wait = Arc::clone(&late);
    // Asked by the only one on a port that is full, they evict it.
    let evicting = async |connections: Connections, status: StatusCode| {
        let _newcomer = connections.seat().expect("a seat");
        status
    };
    let (first, second) = (connections.clone(), connections.clone());
    let router = Router::new()
        .route("/", get(async || "ok"))
        .route("/evicted", get(move || evicting(first, StatusCode::OK)))
        .route("/evicted-in-vain", get(move || evicting(second, StatusCode::NOT_FOUND)))
        .route("/late", get(async move || wait.notified().await));
    let server = Server::<SocketAddr>::from_listener(socket);
    let server = bounded(server, connections.clone(), Handle::new());
    Served {
        address,
        connections,
        metrics,
        late,
        task: tokio::spawn(server.serve(router.into_make_service())),
    }
}

impl Served {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connected")
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
    let mut answer = vec![0; 1024];
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut answer)).await;
    answer.truncate(read.expect("an answer or an end").unwrap_or(0));
    String::from_utf8(answer).expect("UTF-8")
}

async fn is_closed(mut stream: TcpStream) {
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut [0; 1])).await;
    assert!(matches!(read.expect("it ends"), Ok(0) | Err(_)));
}

async fn eventually(mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("it happens");
}

#[tokio::test]
async fn strangers_make_room_the_oldest_of_the_largest_crowd_first() {
    let served = serve(Port {
        connections: 5,
        ..PATIENT
    })
    .await;
    let mut known = served.asked().await;
    // Older than the others, and each alone in what it waits for.
    let mut failed = served.connect().await;
    assert!(ask(&mut failed, "/nowhere").await.contains("404"));
    let mut silent = served.connect().await;
    let mut asking = Vec::new();
    for requests in 1..=2 {
        let mut stream = served.connect().await;
        stream.write_all(b"GET / HT").await.expect("sent");
        eventually(|| served.connections.in_flight() == requests).await;
        asking.push(stream);
    }
    let mut newcomer = served.asked().await;
    is_closed(asking.remove(0)).await;
    assert!(served.refused());
    for stream in [&mut known, &mut silent, &mut newcomer] {
        assert!(ask(stream, "/").await.contains("200 OK"));
    }
    assert!(ask(&mut failed, "/nowhere").await.contains("404"));
}

#[tokio::test]
async fn an_eviction_is_for_good() {
    let port = Port {
        connections: 1,
        ..PATIENT
    };
    let connections = Connections::new(port, Clock::start(), Arc::default());
    let (_seat, mut eviction) = connections.seat().expect("a seat");
    let _newcomer = connections.seat().expect("the other's seat");
    // A connection that is told while it reads may still try to write.
    for _ in 0..2 {
        let told = tokio::time::timeout(PATIENCE, eviction.evicted()).await;
        told.expect("it is told");
    }
}

#[tokio::test]
async fn where_answers_do_not_count_the_oldest_makes_room() {
    let served = serve(Port {
        connections: 2,
        keeps_answered: false,
        ..PATIENT
    })
    .await;
    let (first, mut second) = (served.asked().await, served.asked().await);
    let mut newcomer = served.asked().await;
    is_closed(first).await;
    assert!(served.refused());
    for stream in [&mut second, &mut newcomer] {
        assert!(ask(stream, "/").await.contains("200 OK"));
    }
}

#[tokio::test]
async fn a_success_that_comes_after_the_eviction_leaves_and_is_the_last() {
    let served = serve(Port {
        connections: 1,
        ..PATIENT
    })
    .await;
    let mut stream = served.connect().await;
    let answer = ask(&mut stream, "/evicted").await;
    assert!(
        answer.contains("200 OK") && answer.contains("connection: close"),
        "{answer}"
    );
    is_closed(stream).await;
    let mut failed = served.connect().await;
    assert_eq!(ask(&mut failed, "/evicted-in-vain").await, "");
    // A seat that was given away is free again once.
    let _again = served.asked().await;
    assert_eq!(ask(&mut served.connect().await, "/").await, "");
}

#[tokio::test]
async fn where_all_were_answered_a_newcomer_is_refused_until_one_goes() {
    let served = serve(Port {
        connections: 2,
        ..PATIENT
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
    tokio::time::timeout(PATIENCE, again)
        .await
        .expect("there is room again");
}

#[tokio::test]
async fn a_seat_is_free_again_however_a_connection_ends() {
    let served = serve(Port {
        connections: 2,
        ..PATIENT
    })
    .await;
    for _ in 0..20 {
        // Evicted, or dropped before or after it was answered.
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
        ..PATIENT
    })
    .await;
    is_closed(served.connect().await).await;
    let mut asked = served.asked().await;
    assert!(ask(&mut asked, "/").await.contains("200 OK"));

    let served = serve(Port { head: SHORT, ..PATIENT }).await;
    let mut idle = served.asked().await;
    let mut slow = served.connect().await;
    slow.write_all(b"GET / HT").await.expect("sent");
    is_closed(slow).await;
    let mut slow_at_last = served.asked().await;
    slow_at_last.write_all(b"G").await.expect("sent");
    is_closed(slow_at_last).await;
    assert!(ask(&mut idle, "/").await.contains("200 OK"), "idling is no slow head");

    let served = serve(Port { idle: SHORT, ..PATIENT }).await;
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
        ..PATIENT
    })
    .await;
    let mut stream = served.connect().await;
    assert!(ask(&mut stream, "/").await.contains("connection: close"));
    is_closed(stream).await;
    let young = serve(PATIENT).await;
    assert!(!ask(&mut young.connect().await, "/").await.contains("connection: close"));
}

#[tokio::test]
async fn a_request_is_in_flight_from_its_first_byte_until_its_answer_has_left() {
    let served = serve(PATIENT).await;
    let connections = &served.connections;
    let (_new, _idle) = (served.connect().await, served.asked().await);
    connections.at_rest().await;
    let mut stream = served.connect().await;
    stream.write_all(b"GET /late HT").await.expect("sent");
    eventually(|| connections.in_flight() == 1).await;
    let mut gone = served.connect().await;
    gone.write_all(b"GET /late HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("sent");
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
    let read = tokio::time::timeout(PATIENCE, stream.read(&mut [0; 15])).await;
    assert_eq!(read.expect("an answer").expect("read"), 15);
}
