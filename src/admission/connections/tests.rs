//! Tests of a port with a test handler, over plain TCP.

use std::net::SocketAddr;

use axum::http::StatusCode;
use axum::routing::get;
use axum_server::accept::DefaultAcceptor;
use futures::channel::oneshot::Receiver;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::instruments::metrics::Metrics;

/// Timeout of operations that are expected to finish.
const BOUND: Duration = Duration::from_secs(60);

const TWO: Port = Port {
    connections: 2,
    ..ADMISSION
};

struct Served {
    address: SocketAddr,
    connections: Connections,
    /// Lets one request to `/review` be answered.
    decided: Arc<Notify>,
    task: JoinHandle<()>,
}

async fn serve(port: Port) -> Served {
    let socket = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = socket.local_addr().expect("an address");
    let connections = Connections::new(port, Arc::new(Metrics::new()));
    let decided = Arc::<Notify>::default();
    let wait = Arc::clone(&decided);
    let review = async move |Extension(slot): Extension<Arc<Slot>>| {
        slot.enter(Stage::Review);
        wait.notified().await;
        StatusCode::BAD_REQUEST
    };
    let router = Router::new()
        .route("/", get(async || "ok"))
        .route("/review", get(review));
    let serving = super::serve(socket, connections.clone(), DefaultAcceptor::new(), |_: &_| {}, router);
    Served {
        address,
        connections,
        decided,
        task: tokio::spawn(serving),
    }
}

impl Served {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connected")
    }

    async fn connect_from(&self, address: [u8; 4]) -> TcpStream {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((address, 0).into()).expect("an address of the loopback");
        socket.connect(self.address).await.expect("connected")
    }

    /// Opens a connection and requests `/`.
    async fn asked(&self) -> TcpStream {
        let mut stream = self.connect().await;
        assert!(ask(&mut stream, "/").await.contains("200 OK"));
        stream
    }

    /// Waits until a connection is in this stage.
    async fn until(&self, stage: Stage) {
        while self.connections.count(stage) == 0 {
            tokio::task::yield_now().await;
        }
    }

    /// Opens a connection with a review in progress.
    async fn reviewing(&self) -> TcpStream {
        let mut stream = self.connect().await;
        stream
            .write_all(b"GET /review HTTP/1.1\r\nhost: x\r\n\r\n")
            .await
            .expect("sent");
        self.until(Stage::Review).await;
        stream
    }
}

/// Returns the answer; empty if the connection was closed without one.
async fn ask(stream: &mut TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    // Fails if the connection is closed; the missing answer shows that.
    let _ = stream.write_all(request.as_bytes()).await;
    answer(stream).await
}

async fn answer(stream: &mut TcpStream) -> String {
    let mut answer = vec![0; 1024];
    let read = tokio::time::timeout(BOUND, stream.read(&mut answer)).await;
    answer.truncate(read.expect("an answer or an end").unwrap_or(0));
    String::from_utf8(answer).expect("UTF-8")
}

#[tokio::test]
async fn full_port_closes_unproven_then_idle_but_no_review() {
    let served = serve(TWO).await;
    let mut review = served.reviewing().await;
    let mut failed = served.connect().await;
    assert!(ask(&mut failed, "/nowhere").await.contains("404"));
    let mut idle = served.asked().await;
    assert_eq!(answer(&mut failed).await, "", "it was never answered with success");
    let mut new = served.asked().await;
    assert_eq!(answer(&mut idle).await, "", "it is the only one without a review");
    served.decided.notify_one();
    assert!(answer(&mut review).await.contains("400 Bad Request"));
    let mut newest = served.asked().await;
    assert_eq!(answer(&mut review).await, "", "an error proves nothing");
    for stream in [&mut new, &mut newest] {
        assert!(ask(stream, "/").await.contains("200 OK"));
    }
}

#[tokio::test]
async fn port_full_of_idle_proven_connections_answers_another_peer() {
    // Fewer than the admission port allows: this process holds both ends of each.
    let port = Port {
        connections: 256,
        ..ADMISSION
    };
    let served = serve(port).await;
    let mut idle = vec![];
    for _ in 0..port.connections {
        let mut stream = served.connect_from([127, 0, 0, 2]).await;
        assert!(ask(&mut stream, "/").await.contains("200 OK"));
        idle.push(stream);
    }
    let mut other = served.connect_from([127, 0, 0, 3]).await;
    assert!(ask(&mut other, "/").await.contains("200 OK"));
    assert_eq!(answer(&mut idle[0]).await, "", "it has idled longest");
    assert!(ask(&mut idle[1], "/").await.contains("200 OK"));
}

fn is_closed(open: &mut Receiver<()>) -> bool {
    open.try_recv().is_err()
}

#[test]
fn full_port_closes_the_longest_idle_of_the_busiest_peer() {
    let port = Port {
        connections: 4,
        ..ADMISSION
    };
    let connections = Connections::new(port, Arc::default());
    let open = |last: u8| connections.open([192, 0, 2, last].into());
    let mut slots = [1, 2, 2, 3].map(|last| open(last).expect("a slot"));
    slots
        .iter()
        .for_each(|(slot, _)| slot.answered(&mut Response::default(), true));
    slots[1].0.enter(Stage::Used);
    let _new = open(4).expect("another one's slot");
    let closed = slots.each_mut().map(|(_, open)| is_closed(open));
    assert_eq!(closed, [false, false, true, false]);
}

#[test]
fn handshakes_are_bounded_apart_from_connections() {
    let port = Port {
        handshakes: 2,
        ..ADMISSION
    };
    let connections = Connections::new(port, Arc::default());
    let open = || connections.open([192, 0, 2, 1].into()).expect("a slot");
    let mut slots = [(); 3].map(|()| open());
    let closed = slots.each_mut().map(|(_, open)| is_closed(open));
    assert_eq!(closed, [true, false, false]);
    slots[1].0.enter(Stage::New);
    let _fourth = open();
    assert!(slots[1..].iter_mut().all(|(_, open)| !is_closed(open)));
}

#[tokio::test]
async fn drain_ends_each_connection_after_its_answer() {
    let served = serve(ADMISSION).await;
    let (mut review, mut idle, mut new) = (served.reviewing().await, served.asked().await, served.connect().await);
    served.until(Stage::New).await;
    served.connections.drain();
    for stream in [&mut idle, &mut new] {
        assert_eq!(answer(stream).await, "");
    }
    assert!(!served.task.is_finished());
    served.decided.notify_one();
    assert!(answer(&mut review).await.contains("connection: close"));
    tokio::time::timeout(BOUND, served.task)
        .await
        .expect("it ends")
        .expect("joined");
}
