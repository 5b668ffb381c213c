//! The way out of the real program.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use edgeward::runtime::Server;

use crate::client::{Client, eventually, get};
use crate::program::edgeward;
use crate::server::{options, self_signed};

/// Longer than any test: only a second signal ends it.
const ENDLESS_SECONDS: &str = "86400";

struct Process {
    child: Child,
    admission: SocketAddr,
    health: SocketAddr,
}

impl Process {
    /// Starts the child and reads its log until it says where it serves.
    fn start(directory: &Path) -> Self {
        let mut child = edgeward()
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args([
                "serve",
                "--fleet",
                "examples/fleet.yaml",
                "--shutdown-delay",
                ENDLESS_SECONDS,
            ])
            .args([
                "--listen",
                "127.0.0.1:0",
                "--health-listen",
                "127.0.0.1:0",
                "--self-signed",
            ])
            .arg(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        let mut log = BufReader::new(child.stderr.take().expect("piped")).lines();
        let serving = log
            .by_ref()
            .map_while(Result::ok)
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok())
            .find(|line| line["message"] == "serving")
            .expect("it says that it serves");
        // Nobody else reads the pipe, and a full one would stop the child.
        std::thread::spawn(move || log.for_each(drop));
        let address = |field: &str| {
            serving[field]
                .as_str()
                .and_then(|text| text.parse().ok())
                .expect("an address")
        };
        Self {
            child,
            admission: address("admission"),
            health: address("health"),
        }
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("sh").success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn sigterm_drains_and_exits_with_0() {
    let directory = tempfile::tempdir().expect("tempdir");
    let mut process = Process::start(directory.path());
    let ca_bundle = std::fs::read_to_string(directory.path().join("ca.crt")).expect("the CA bundle");
    let client = Client::new(process.admission, &ca_bundle);
    let mut before = client.connect().await.expect("handshake");
    before.begin_post().await.expect("in flight");

    process.signal("TERM");
    eventually("not ready", async || {
        let ready = get(process.health, "/readyz").await.expect("answered");
        (ready.status, ready.body.as_str()) == (503, "draining\n")
    })
    .await;
    let answered = before.end_post().await.expect("answered");
    assert_eq!(answered.status, 200);
    assert!(answered.body.contains(r#""allowed":true"#), "{}", answered.body);
    assert_eq!(answered.header("connection"), Some("close"));
    assert!(before.is_closed().await);
    let mut during = client.connect().await.expect("new connections are still served");
    assert_eq!(
        during.post().await.expect("answered").header("connection"),
        Some("close")
    );
    assert!(during.is_closed().await);

    let mut last = client.connect().await.expect("handshake");
    last.begin_post().await.expect("in flight");
    let mut idle = client.connect().await.expect("handshake");
    process.signal("TERM");
    eventually("no new connections", async || client.connect().await.is_err()).await;
    assert!(idle.is_closed().await);
    let answered = last.end_post().await.expect("what is in flight is finished");
    assert_eq!((answered.status, answered.header("connection")), (200, Some("close")));
    let status = tokio::task::spawn_blocking(move || process.child.wait().expect("it ends"))
        .await
        .expect("joined");
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn sigint_stops_as_well() {
    let directory = tempfile::tempdir().expect("tempdir");
    let mut process = Process::start(directory.path());
    process.signal("INT");
    eventually("not ready", async || {
        get(process.health, "/readyz").await.expect("answered").status == 503
    })
    .await;
    process.signal("INT");
    let status = tokio::task::spawn_blocking(move || process.child.wait().expect("it ends"))
        .await
        .expect("joined");
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn a_server_in_process_finishes_what_is_in_flight() {
    let server = Server::start(options(self_signed())).await.expect("started");
    let client = Client::new(server.admission(), server.ca_bundle().expect("self-signed"));
    let mut connection = client.connect().await.expect("handshake");
    connection.begin_post().await.expect("in flight");
    let stopping = tokio::spawn(server.shutdown());
    eventually("no new connections", async || client.connect().await.is_err()).await;
    assert_eq!(
        connection.end_post().await.expect("answered").header("connection"),
        Some("close")
    );
    stopping.await.expect("joined").expect("stopped");
}
