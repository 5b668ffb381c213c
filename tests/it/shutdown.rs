//! Shutdown of the real program.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use edgeward::testkit::{ServeOptions, Server, Task, serve};

use crate::client::{eventually, get};
use crate::process::Process;
use crate::server::{options, self_signed};

#[tokio::test]
async fn sigterm_drains_and_exits_with_0() {
    let mut process = Process::start();
    process.discard_log();
    let client = process.client();
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
    process.signal("TERM");
    let answered = last.end_post().await.expect("what is in flight is finished");
    assert_eq!((answered.status, answered.header("connection")), (200, Some("close")));
    assert_eq!(process.ended().await, Some(0));
}

#[tokio::test]
async fn sigint_drains_and_exits_with_0() {
    let mut process = Process::start();
    process.discard_log();
    process.signal("INT");
    process.is_unready().await;
    process.signal("INT");
    assert_eq!(process.ended().await, Some(0));
}

#[tokio::test]
async fn shutdown_waits_for_graceful_task() {
    let mut options = options(self_signed());
    let mut phase = options.readiness.phase();
    let has_left = Arc::new(AtomicBool::new(false));
    let left = Arc::clone(&has_left);
    options.tasks = vec![Task::graceful("Lease", async move {
        phase.wait_for(|phase| phase.is_draining).await.expect("told");
        // Longer than the other steps take.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        left.store(true, Ordering::Relaxed);
    })];
    let server = Server::start(options).await.expect("started");
    server.shutdown(pending::<()>()).await.expect("stopped");
    assert!(has_left.load(Ordering::Relaxed));
}

#[tokio::test]
async fn graceful_task_that_ends_early_stops_server() {
    let options = ServeOptions {
        tasks: vec![Task::graceful("Lease", async {})],
        ..options(self_signed())
    };
    let error = serve(options).await.expect_err("failed");
    assert_eq!(error.to_string(), "background task `Lease` ended");
}
