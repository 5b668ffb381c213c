use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use arc_swap::ArcSwap;
use edgeward_core::cluster::cache::Contribution;
use edgeward_core::config::Config;
use edgeward_core::guard::backstop::Candidate;
use edgeward_core::keys::Keys;
use edgeward_core::model::pod_record::StuckPod;
use edgeward_core::wire::pod::Pod;
use edgeward_core::{config, testkit};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::controllers::events::Recorder;

/// Long enough for a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// An API server that keeps what it is asked to delete, and the Events that it is told.
#[derive(Clone, Default)]
struct Server {
    deletions: Arc<Mutex<Vec<(String, Value)>>>,
    notes: Arc<Mutex<Vec<String>>>,
    /// What it answers to the next deletions, 200 to those after.
    codes: Arc<Mutex<VecDeque<u16>>>,
}

impl Server {
    async fn answer(self, request: Request<Body>) -> anyhow::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let body: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
        let code = if head.method == Method::DELETE {
            self.deletions
                .lock()
                .unwrap()
                .push((head.uri.path().to_owned(), body["preconditions"].clone()));
            self.codes.lock().unwrap().pop_front().unwrap_or(200)
        } else {
            let text = |field: &str| body[field].as_str().unwrap_or_default().to_owned();
            let name = body["regarding"]["name"].as_str().unwrap_or_default();
            let note = format!("{name}: {}: {}", text("reason"), text("note"));
            self.notes.lock().unwrap().push(note);
            201
        };
        let answer = match code {
            201 => body,
            200 => json!({"kind": "Status", "status": "Success"}),
            _ => json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "", "code": code}),
        };
        Ok(Response::builder()
            .status(code)
            .body(Body::from(answer.to_string().into_bytes()))?)
    }
}

/// A replica, whose edge is full and whose cloud is not.
struct Replica {
    server: Server,
    reports: watch::Sender<Arc<BackstopReport>>,
    leads: watch::Sender<Option<Moment>>,
    config: Arc<ArcSwap<Config>>,
    metrics: Arc<Metrics>,
}

impl Replica {
    fn start(recreate: bool) -> Self {
        let server = Server::default();
        let answering = server.clone();
        let service = tower::service_fn(move |request| Box::pin(answering.clone().answer(request)));
        let client = Client::new(service, "default");
        let (clock, metrics) = (Clock::start(), Arc::<Metrics>::default());
        let config = Config {
            backstop: config::Backstop { recreate },
            ..Config::default()
        };
        let config = Arc::new(ArcSwap::from_pointee(config));
        let (recorder, events) = Recorder::new(client.clone(), Arc::clone(&config), clock, Arc::clone(&metrics));
        let fleet = json!({
            "sites": [
                {"name": "edge", "kind": "edge"},
                {"name": "cloud", "kind": "cloud", "wan": {"reachable": true, "rttMs": 9, "lossPct": 0, "ageSeconds": 0}},
            ],
            "nodes": [
                {"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 0, "pods": 9}},
                {"name": "c", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": 9, "pods": 99}},
            ],
        });
        let (reports, newest) = watch::channel(Arc::default());
        let backstop = Backstop {
            client,
            reports: newest,
            config: Arc::clone(&config),
            shared: Arc::new(SharedState::new(Arc::new(testkit::snapshot(&fleet)), Micros(0))),
            events,
            clock,
            metrics: Arc::clone(&metrics),
        };
        let (leads, leadership) = Leadership::new(clock);
        tokio::spawn(recorder.run(leadership.clone()));
        tokio::spawn(backstop.run(leadership));
        Self {
            server,
            reports,
            leads,
            config,
            metrics,
        }
    }

    fn report(&self, candidates: &[Candidate]) {
        let candidates = candidates.to_vec();
        self.reports
            .send_replace(Arc::new(BackstopReport { candidates, bound: 3 }));
    }

    fn lead(&self, leads: bool) {
        self.leads.send_replace(leads.then_some(Moment(i64::MAX)));
    }

    fn deleted(&self) -> Vec<(String, Value)> {
        self.server.deletions.lock().unwrap().clone()
    }

    /// Waits until the page of metrics has this line.
    async fn shows(&self, line: &str) {
        let shown = async {
            while !self.metrics.encode().lines().any(|shown| shown == line) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(BOUND, shown).await.is_ok(), "{line}\n{}", self.metrics.encode());
    }
}

/// A pod of this controller; each has ten.
fn candidate(name: &str, owner: Option<&str>) -> Candidate {
    let owners = owner.map(|uid| json!([{"kind": "ReplicaSet", "uid": uid, "controller": true}]));
    let text = json!({
        "metadata": {
            "annotations": {"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"}, "ownerReferences": owners,
        },
        "spec": {"containers": [{"resources": {"requests": {"cpu": "100m"}}}]},
    })
    .to_string();
    let workload = Pod::from_json(&text)
        .unwrap()
        .workload("shop".into(), &Keys::new("example.io"))
        .into_owned();
    Candidate {
        pod: Arc::new(StuckPod {
            uid: format!("uid-{name}").into(),
            name: name.into(),
            resource_version: "7".into(),
            workload,
            placement: Arc::default(),
            is_replaced: owner.is_some(),
            decision: None,
            reason: None,
        }),
        since: Moment(0),
        contribution: Contribution::default(),
        siblings: 10,
    }
}

#[tokio::test]
async fn pods_are_reported_and_deleted_only_where_that_is_wanted() {
    let replica = Replica::start(false);
    let all = [
        candidate("a", Some("one")),
        candidate("b", Some("two")),
        candidate("bare", None),
    ];
    replica.report(&all);
    replica.lead(true);
    replica.shows("edgeward_backstop_pods{finding=\"undecided\"} 3").await;
    replica.shows("edgeward_backstop_pods{finding=\"bound\"} 3").await;
    let written = "edgeward_events_total{reason=\"Unschedulable\",result=\"written\"} 3";
    replica.shows(written).await;
    let notes = replica.server.notes.lock().unwrap().clone();
    assert!(
        notes[0].starts_with("a: Unschedulable: created without a decision, and kube-scheduler finds no node for it")
            && notes[0].ends_with("it would be sent to site cloud, where it fits 1 node (cloud_edge_no_capacity)"),
        "{notes:?}"
    );
    assert_eq!(replica.deleted(), []);

    replica.config.rcu(|config| Config {
        backstop: config::Backstop { recreate: true },
        ..Config::clone(config)
    });
    replica.report(&all);
    replica
        .shows("edgeward_backstop_recreations_total{result=\"deleted\"} 2")
        .await;
    let expected = ["a", "b"].map(|name| {
        let preconditions = json!({"uid": format!("uid-{name}"), "resourceVersion": "7"});
        (format!("/api/v1/namespaces/shop/pods/{name}"), preconditions)
    });
    assert_eq!(replica.deleted(), expected);
    // Nothing is told twice.
    replica.report(&all[2..]);
    replica.shows("edgeward_backstop_pods{finding=\"undecided\"} 1").await;
    replica.shows(written).await;
    assert_eq!(replica.server.notes.lock().unwrap().len(), 3);

    replica.lead(false);
    replica.shows("edgeward_backstop_pods{finding=\"undecided\"} 0").await;
    replica.report(&[candidate("c", Some("three"))]);
    replica.lead(true);
    replica
        .shows("edgeward_backstop_recreations_total{result=\"deleted\"} 3")
        .await;
}

#[tokio::test]
async fn a_large_report_is_evaluated_in_parts_and_counted_as_a_whole() {
    let replica = Replica::start(false);
    // One in four has a place; the others have none and are not alike.
    let all: Vec<_> = (0..450)
        .map(|i| {
            let mut one = candidate(&format!("p{i:03}"), None);
            if i % 4 != 0 {
                let pod = Arc::make_mut(&mut one.pod);
                pod.workload.priority = i;
                pod.workload.management = edgeward_core::model::slo::Management::OptedOut;
            }
            one
        })
        .collect();
    replica.report(&all);
    replica.lead(true);
    for found in [50, 100, 113] {
        let line = format!("edgeward_backstop_pods{{finding=\"undecided\"}} {found}");
        replica.shows(&line).await;
        replica.report(&all);
    }
}

#[tokio::test]
async fn a_pod_that_has_changed_is_looked_at_again() {
    let replica = Replica::start(true);
    replica.server.codes.lock().unwrap().extend([409, 404, 200]);
    replica.lead(true);
    let one = [candidate("a", Some("one"))];
    for line in [
        "result=\"outdated\"} 1",
        "result=\"outdated\"} 2",
        "result=\"deleted\"} 1",
    ] {
        replica.report(&one);
        replica
            .shows(&format!("edgeward_backstop_recreations_total{{{line}"))
            .await;
    }
    // Its owner has lost one now; and one that may not be deleted is not asked for again and again.
    replica.server.codes.lock().unwrap().push_back(403);
    replica.report(&[candidate("b", Some("one")), candidate("c", Some("two"))]);
    replica
        .shows("edgeward_backstop_recreations_total{result=\"refused\"} 1")
        .await;
    replica.report(&[candidate("c", Some("two")), candidate("d", Some("three"))]);
    replica
        .shows("edgeward_backstop_recreations_total{result=\"deleted\"} 2")
        .await;
    let names: Vec<_> = replica.deleted().into_iter().map(|(path, _)| path).collect();
    let expected = ["a", "a", "a", "c", "d"].map(|name| format!("/api/v1/namespaces/shop/pods/{name}"));
    assert_eq!(names, expected);
}

#[tokio::test]
async fn no_more_than_a_burst_is_deleted_at_once() {
    let replica = Replica::start(true);
    let burst = usize::try_from(BURST).unwrap();
    let many: Vec<_> = (0..3 * burst)
        .map(|i| candidate(&format!("p{i}"), Some(&format!("owner-{i}"))))
        .collect();
    replica.report(&many);
    replica.lead(true);
    replica
        .shows(&format!(
            "edgeward_backstop_recreations_total{{result=\"deleted\"}} {burst}"
        ))
        .await;
    // A marker that the next look is over.
    replica.report(&many[..2 * burst]);
    replica
        .shows(&format!(
            "edgeward_backstop_pods{{finding=\"undecided\"}} {}",
            2 * burst
        ))
        .await;
    assert!(replica.deleted().len() < 2 * burst, "{}", replica.deleted().len());
}
