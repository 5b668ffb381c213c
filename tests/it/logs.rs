//! Reviews do not depend on where the logs go.

use std::sync::Mutex;

use edgeward_harness::prelude::*;

use crate::client::{BOUND, Connection, eventually, get};
use crate::process::Process;
use crate::program::is_recorded;

/// A pod creation without an SLO. Only the first few such reviews are logged.
const CREATE: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",
"resource":{"group":"","version":"v1","resource":"pods"},"operation":"CREATE","namespace":"shop",
"object":{"metadata":{"name":"camera"},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;

/// A pod creation that gets a decision, which is always logged.
fn decided() -> String {
    CREATE.replace(
        r#""name":"camera""#,
        r#""name":"camera","annotations":{"slo.example.io/class":"batch"}"#,
    )
}

async fn create(connection: &mut Connection) {
    let answered = tokio::time::timeout(BOUND, connection.post_to("/mutate", &decided()))
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

async fn ends(process: Process) -> Option<i32> {
    process.signal("TERM");
    process.is_unready().await;
    process.signal("TERM");
    process.ended().await
}

#[tokio::test]
async fn unread_log_does_not_block_reviews() {
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
async fn closed_log_does_not_block_reviews() {
    let mut process = Process::start();
    process.log = None;
    let mut connection = process.client().connect().await.expect("handshake");
    for _ in 0..10 {
        create(&mut connection).await;
    }
    assert_eq!(get(process.health, "/livez").await.expect("answered").status, 200);
    drop(connection);
    assert_eq!(ends(process).await, Some(0));
}

#[tokio::test]
async fn last_log_line_is_written_at_shutdown() {
    let mut process = Process::start();
    let log = process.log.take().expect("a log");
    let lines = tokio::task::spawn_blocking(move || log.map_while(Result::ok).last());
    assert_eq!(ends(process).await, Some(0));
    let last = lines.await.expect("joined").expect("a line");
    assert!(last.contains("\"stopped\""), "{last}");
}

/// A kind of review without a decision, and how to recognise its log lines.
struct Kind {
    review: String,
    message: &'static str,
    field: &'static str,
    text: &'static str,
}

/// Every kind of log line that any client can cause repeatedly.
fn undecided() -> [Kind; 6] {
    let kind = |message, field, text, pointer: &str, value: Value| {
        let mut review: Value = serde_json::from_str(CREATE).expect("a review");
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        review.pointer_mut(parent).expect("a parent")[key] = value;
        let review = review.to_string();
        Kind {
            review,
            message,
            field,
            text,
        }
    };
    let metadata = "/request/object/metadata";
    let (labels, annotations) = (format!("{metadata}/labels"), format!("{metadata}/annotations"));
    let opted_out = json!({"scheduling.example.io/managed": "false"});
    let class = json!({"slo.example.io/class": "batch"});
    let mut kinds = [
        kind(
            "decided",
            "reason",
            "passthrough_not_managed",
            "/request/uid",
            json!("u"),
        ),
        kind("decided", "reason", "passthrough_opted_out", &labels, opted_out),
        kind(
            "decided",
            "reason",
            "passthrough_excluded_namespace",
            "/request/namespace",
            json!("kube-system"),
        ),
        kind("decided", "dry_run", "true", &annotations, class),
        kind(
            "untouched",
            "why",
            "is not the creation of a pod",
            "/request/operation",
            json!("UPDATE"),
        ),
        kind("untouched", "why", "cannot be read", "/request/object", json!("a pod")),
    ];
    let mut dry_run: Value = serde_json::from_str(&kinds[3].review).expect("a review");
    dry_run["request"]["dryRun"] = json!(true);
    kinds[3].review = dry_run.to_string();
    // A pod without an SLO would pass through as `passthrough_not_managed` instead.
    let mut excluded: Value = serde_json::from_str(&kinds[2].review).expect("a review");
    excluded["request"]["object"]["metadata"]["annotations"] = json!({"slo.example.io/class": "batch"});
    kinds[2].review = excluded.to_string();
    kinds
}

/// The number of lines of this kind, and the number of suppressed lines that they report.
fn told(lines: &[Value], kind: &Kind) -> (usize, u64) {
    let is_it = |line: &&Value| {
        let field = &line[kind.field];
        let text = field.as_str().map_or_else(|| field.to_string(), str::to_owned);
        line["message"] == kind.message && text.contains(kind.text)
    };
    let held_back = |line: &Value| line["held_back"].as_u64().expect("a count");
    let lines: Vec<_> = lines.iter().filter(is_it).collect();
    (lines.len(), lines.into_iter().map(held_back).sum())
}

/// Each kind of line is rate-limited, and the next line reports the number that was suppressed. Every decision is logged, and
/// every review is counted.
#[tokio::test]
async fn repeated_log_lines_are_rate_limited() {
    const FLOOD: u64 = 200;
    let mut process = Process::start();
    let log = process.log.take().expect("a log");
    let lines = Arc::<Mutex<Vec<Value>>>::default();
    let keep = Arc::clone(&lines);
    let reading = tokio::task::spawn_blocking(move || {
        let lines = log.map_while(Result::ok);
        lines.for_each(|line| keep.lock().unwrap().push(serde_json::from_str(&line).expect("JSON")));
    });
    let mut connection = process.client().connect().await.expect("handshake");
    let (kinds, began) = (undecided(), Instant::now());
    for _ in 0..FLOOD {
        for kind in &kinds {
            connection.post_to("/mutate", &kind.review).await.expect("answered");
        }
        create(&mut connection).await;
    }
    let mut sent = FLOOD;
    eventually("the next line says what was held back", async || {
        for kind in &kinds {
            connection.post_to("/mutate", &kind.review).await.expect("answered");
        }
        sent += 1;
        let lines = lines.lock().unwrap();
        kinds.iter().all(|kind| {
            let (lines, held_back) = told(&lines, kind);
            lines as u64 + held_back > FLOOD
        })
    })
    .await;
    let seconds = began.elapsed().as_secs() as usize + 1;
    let page = get(process.health, "/metrics").await.expect("answered").body;
    let counted = |reason: &str| -> u64 {
        let reason = format!("reason=\"{reason}\"");
        let series = page
            .lines()
            .filter(|line| line.starts_with("edgeward_reviews_total{") && line.contains(&reason));
        series
            .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
            .sum()
    };
    for (reason, expected) in [
        ("passthrough_not_managed", sent),
        ("passthrough_opted_out", sent),
        ("passthrough_excluded_namespace", sent),
        ("passthrough_not_a_pod_create", 2 * sent),
    ] {
        assert_eq!(counted(reason), expected, "{reason}");
    }
    drop(connection);
    assert_eq!(ends(process).await, Some(0));
    reading.await.expect("read");
    let lines = lines.lock().unwrap();
    for kind in &kinds {
        let (lines, held_back) = told(&lines, kind);
        assert!(
            (11..=10 + seconds).contains(&lines),
            "{}: {lines} in {seconds} s",
            kind.text
        );
        assert!(lines as u64 + held_back <= sent, "{}: {lines}, {held_back}", kind.text);
    }
    let is_decided =
        |line: &&Value| line["message"] == "decided" && line["dry_run"] == false && line["class"] == "batch";
    let decided = lines
        .iter()
        .filter(is_decided)
        .filter(|line| line["verdict"] != "passthrough");
    assert_eq!(
        decided.filter(|line| line.get("held_back").is_none()).count() as u64,
        FLOOD
    );
}

/// At every log level, a pod's environment, other annotations and invalid content stay out of the log.
#[tokio::test]
async fn log_omits_pod_content() {
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
        // Documents that cannot be parsed.
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

/// The tests of `edgeward-lab simulate --trace` read this recording. Its times are made up.
#[tokio::test]
async fn decision_log_lines_match_recording() {
    let pod = |owner: Value, annotations: Value, cpu: &str| {
        let metadata = json!({"generateName": "camera-", "annotations": annotations, "ownerReferences": owner});
        let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}});
        json!({"metadata": metadata, "spec": {"priority": 7, "containers": [container]}})
    };
    let owner = |kind: &str, uid: &str| json!([{"apiVersion": "apps/v1", "kind": kind, "name": uid, "uid": uid, "controller": true}]);
    let service = json!({"slo.example.io/class": "latency", "slo.example.io/latencyTargetMs": "200", "slo.example.io/priority": "8"});
    let job = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000", "slo.example.io/offloadAllowed": "false"});
    let of_service = || ("shop", pod(owner("ReplicaSet", "rs-1"), service.clone(), "200m"), false);
    let of_job = |uid: &str| ("reports", pod(owner("Job", uid), job.clone(), "1500m"), false);
    let mut sent = vec![of_service(), of_service()];
    sent.extend(["job-1", "job-1", "job-1", "job-2", "job-2", "job-2"].map(of_job));
    sent.push((
        "alone",
        pod(json!([]), json!({"slo.example.io/class": "throughput"}), "0"),
        false,
    ));
    sent.push(("reports", pod(owner("Job", "dry"), job.clone(), "1"), true));
    sent.push(("others", pod(json!([]), json!({}), "1"), false));
    let review = |uid: usize, (namespace, pod, is_dry_run): &(&str, Value, bool)| {
        let mut review: Value = serde_json::from_str(CREATE).expect("a review");
        let request = &mut review["request"];
        (request["uid"], request["namespace"]) = (format!("u{uid}").into(), (*namespace).into());
        (request["dryRun"], request["object"]) = ((*is_dry_run).into(), pod.clone());
        review.to_string()
    };

    let mut process = Process::start();
    let log = process.log.take().expect("a log");
    let lines = tokio::task::spawn_blocking(move || log.map_while(Result::ok).collect::<Vec<_>>());
    let mut connection = process.client().connect().await.expect("handshake");
    for (uid, pod) in sent.iter().enumerate() {
        connection
            .post_to("/mutate", &review(uid, pod))
            .await
            .expect("answered");
    }
    drop(connection);
    assert_eq!(ends(process).await, Some(0));
    let lines = lines.await.expect("joined");
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let decided = lines
        .filter(|line| line["message"] == "decided")
        .enumerate()
        .map(|(number, mut line)| {
            line["timestamp"] = format!("2026-01-01T00:00:{number:02}.250Z").into();
            line.to_string() + "\n"
        });
    let found = decided.collect::<String>();
    let recorded = is_recorded(&workspace().join("tests/golden/log/decided.jsonl"), &found);
    assert!(recorded, "differs; now it is\n{found}");
}
