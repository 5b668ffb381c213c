//! Where logs go is nothing that a review depends on.

use edgeward_harness::checkout::workspace;
use serde_json::{Value, json};

use crate::client::{BOUND, Connection, eventually, get};
use crate::process::Process;
use crate::program::edgeward;

/// The creation of a pod, which is a line in the log.
pub(crate) const CREATE: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",
"resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","namespace":"shop",
"object":{"metadata":{"name":"camera"},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;

async fn create(connection: &mut Connection) {
    let answered = tokio::time::timeout(BOUND, connection.post_to("/mutate", CREATE))
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

pub(crate) async fn ends(mut process: Process) -> Option<i32> {
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

/// Whatever the level: a pod's environment, its other annotations and what is wrong with it are nobody's business.
#[tokio::test]
async fn no_line_says_what_a_pod_contains() {
    const SECRET: &str = "hunter2";
    let object = |annotations: Value, spec: Value| {
        let labels = json!({"app": SECRET, "scheduling.example.io/managed": "true"});
        json!({"metadata": {"name": "camera", "labels": labels, "annotations": annotations}, "spec": spec})
    };
    let container =
        json!({"name": SECRET, "image": SECRET, "args": [SECRET], "env": [{"name": "PASSWORD", "value": SECRET}]});
    let spec = json!({"containers": [container], "volumes": [{"name": "v", "secret": {"secretName": SECRET}}]});
    let slo =
        |class: &str| json!({"slo.example.io/class": class, "slo.example.io/deadlineMs": "60000", "theirs": SECRET});
    let faulty =
        json!({"slo.example.io/class": SECRET, "slo.example.io/deadlineMs": SECRET, "slo.example.io/hunter2": "1"});
    let pods = [
        object(slo("batch"), spec.clone()),
        object(faulty, spec.clone()),
        object(json!({}), spec.clone()),
        // What cannot be read.
        object(json!(SECRET), spec.clone()),
        object(json!({"a": [SECRET]}), spec.clone()),
        object(slo("batch"), json!({"containers": SECRET})),
        json!(SECRET),
    ];
    let review = |pod: &Value, operation: &str| {
        let resource = json!({"group": "", "version": "v1", "resource": "pods"});
        let request = json!({
            "uid": "u", "resource": resource, "operation": operation, "namespace": "shop", "object": pod, "oldObject": pod,
            "userInfo": {"username": SECRET},
        });
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
    };
    let mut bodies: Vec<_> = pods.iter().map(|pod| review(pod, "CREATE")).collect();
    bodies.push(review(&pods[0], "UPDATE"));
    bodies.extend([json!({"kind": SECRET}).to_string(), format!("{{\"{SECRET}\"")]);

    let mut process = Process::start_logging("trace", &[]);
    let log = process.log.take().expect("a log");
    let lines = tokio::task::spawn_blocking(move || log.map_while(Result::ok).collect::<Vec<_>>());
    let mut connection = process.client().connect().await.expect("handshake");
    for body in &bodies {
        connection.post_to("/mutate", body).await.expect("answered");
    }
    drop(connection);
    assert_eq!(ends(process).await, Some(0));
    let lines = lines.await.expect("joined");
    let count = |message: &str| {
        lines
            .iter()
            .filter(|line| line.contains(&format!("\"{message}\"")))
            .count()
    };
    assert_eq!((count("decided"), count("untouched")), (3, 5), "{lines:#?}");
    let telling: Vec<_> = lines.iter().filter(|line| line.contains(SECRET)).collect();
    assert!(telling.is_empty(), "{telling:#?}");
}

#[test]
fn a_word_that_is_no_log_level_is_refused() {
    let mut command = edgeward();
    let output = command
        .current_dir(workspace())
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
