//! Where logs go is nothing that a review depends on.

use crate::client::{Connection, PATIENCE, eventually, get};
use crate::process::Process;
use crate::program::edgeward;

/// The creation of a pod, which is a line in the log.
const CREATE: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",
"resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","namespace":"shop",
"object":{"metadata":{"name":"camera"},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;

async fn create(connection: &mut Connection) {
    let answered = tokio::time::timeout(PATIENCE, connection.post_to("/mutate", CREATE))
        .await
        .expect("in time")
        .expect("answered");
    assert_eq!(answered.status, 200, "{}", answered.body);
}

async fn lines_were_dropped(process: &Process) -> bool {
    let page = get(process.health, "/metrics").await.expect("answered").body;
    let mut lines = page.lines();
    lines.any(|line| {
        line.strip_prefix("edgeward_log_lines_dropped_total ")
            .is_some_and(|count| count != "0")
    })
}

async fn ends(mut process: Process) -> Option<i32> {
    process.signal("TERM");
    eventually("not ready", async || {
        get(process.health, "/readyz").await.expect("answered").status == 503
    })
    .await;
    process.signal("TERM");
    let waiting = tokio::task::spawn_blocking(move || process.child.wait().expect("it ends"));
    waiting.await.expect("joined").code()
}

#[tokio::test]
async fn a_log_that_nobody_reads_stops_nothing() {
    let process = Process::start();
    let mut connection = process.client().connect().await.expect("handshake");
    eventually("the pipe and the backlog are full", async || {
        for _ in 0..500 {
            create(&mut connection).await;
        }
        lines_were_dropped(&process).await
    })
    .await;
    for _ in 0..1_000 {
        create(&mut connection).await;
    }
    assert_eq!(get(process.health, "/livez").await.expect("answered").status, 200);
    drop(connection);
    assert_eq!(ends(process).await, Some(0));
}

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nothing() {
    let mut process = Process::start();
    process.log = None;
    let mut connection = process.client().connect().await.expect("handshake");
    eventually("the closed pipe is noticed", async || {
        create(&mut connection).await;
        lines_were_dropped(&process).await
    })
    .await;
    create(&mut connection).await;
    assert_eq!(get(process.health, "/livez").await.expect("answered").status, 200);
    drop(connection);
    assert_eq!(ends(process).await, Some(0));
}

#[tokio::test]
async fn the_last_line_is_written() {
    let mut process = Process::start();
    let log = process.log.take().expect("a log");
    let lines = tokio::task::spawn_blocking(move || log.map_while(Result::ok).last());
    assert_eq!(ends(process).await, Some(0));
    let last = lines.await.expect("joined").expect("a line");
    assert!(last.contains("\"stopped\""), "{last}");
}

#[test]
fn a_word_that_is_no_log_level_is_refused() {
    let mut command = edgeward();
    let output = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("EDGEWARD_LOG", "verbose")
        .args(["serve", "--fleet", "examples/fleet.yaml", "--self-signed", "unused"])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("EDGEWARD_LOG=verbose is no log filter: \"verbose\" is none of off, error"),
        "{stderr}"
    );
}
