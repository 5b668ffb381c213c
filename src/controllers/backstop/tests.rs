use std::sync::Mutex;
use std::time::Duration;

use arc_swap::ArcSwap;
use edgeward_cluster::backstop::{Candidate, Contribution};
use edgeward_cluster::engine::SharedState;
use edgeward_cluster::pod_record::StuckPod;
use edgeward_decision::config::Config;
use edgeward_decision::keys::Keys;
use edgeward_decision::pod::Pod;
use edgeward_decision::testkit;
use edgeward_kube::units::{Micros, Moment};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::controllers::events::Recorder;
use crate::controllers::lease::Leadership;
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::testkit::api_server;

/// Generous enough for a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// A replica with a full edge and a cloud that has room.
struct Replica {
    /// The Events as the API server received them.
    notes: Arc<Mutex<Vec<String>>>,
    reports: watch::Sender<Arc<BackstopReport>>,
    leads: watch::Sender<Option<Moment>>,
    metrics: Arc<Metrics>,
}

impl Replica {
    fn start() -> Self {
        let notes = Arc::<Mutex<Vec<String>>>::default();
        let client = api_server({
            let notes = Arc::clone(&notes);
            move |_, _, event| {
                let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
                let note = [text("/regarding/name"), text("/reason"), text("/note")].join(": ");
                notes.lock().unwrap().push(note);
                std::future::ready((201, event))
            }
        });
        let (clock, metrics) = (Clock::start(), Arc::<Metrics>::default());
        let (recorder, events) = Recorder::new(client.clone(), clock, Arc::clone(&metrics));
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
        let (leads, leadership) = Leadership::new(clock);
        let context = Context {
            client,
            config: Arc::new(ArcSwap::from_pointee(Config::default())),
            shared: Arc::new(SharedState::new(Arc::new(testkit::snapshot(&fleet)), Micros(0))),
            events,
            leadership: leadership.clone(),
            clock,
            metrics: Arc::clone(&metrics),
        };
        tokio::spawn(recorder.run(leadership));
        tokio::spawn(run(context, newest));
        Self {
            notes,
            reports,
            leads,
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

    /// Waits until the metrics page contains this line.
    async fn shows(&self, line: &str) {
        let shown = async {
            while !self.metrics.encode().lines().any(|shown| shown == line) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(BOUND, shown).await.is_ok(), "{line}\n{}", self.metrics.encode());
    }
}

fn candidate(name: &str) -> Candidate {
    let text = json!({
        "metadata": {
            "annotations": {"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"},
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
            workload,
            placement: Arc::default(),
            decision: None,
            reason: None,
        }),
        since: Moment(0),
        contribution: Contribution::default(),
    }
}

#[tokio::test]
async fn each_finding_is_counted_and_reported_once() {
    let replica = Replica::start();
    let mut decided = candidate("b");
    let pod = Arc::make_mut(&mut decided.pod);
    pod.decision = Some(edgeward_decision::model::decision_id::DecisionId(7));
    pod.reason = Some("edge_no_capacity".into());
    let all = [candidate("a"), decided, candidate("c")];
    replica.report(&all);
    replica.lead(true);
    replica.shows("edgeward_backstop_pods{finding=\"undecided\"} 2").await;
    replica.shows("edgeward_backstop_pods{finding=\"misplaced\"} 1").await;
    replica.shows("edgeward_backstop_pods{finding=\"bound\"} 3").await;
    let written = "edgeward_events_total{reason=\"Unschedulable\",result=\"written\"} 3";
    replica.shows(written).await;
    let notes = || replica.notes.lock().unwrap().clone();
    assert!(
        notes()[0].starts_with("a: Unschedulable: created without a decision, and kube-scheduler finds no node for it")
            && notes()[0].ends_with("it would be sent to site cloud, where it fits 1 node (cloud_edge_no_capacity)"),
        "{:?}",
        notes()
    );
    // The site of this pod is no longer in the configuration.
    let sent = "b: Unschedulable: sent to a site that no longer exists (edge_no_capacity), and";
    assert!(notes()[1].starts_with(sent), "{:?}", notes());

    replica.report(&all[2..]);
    replica.shows("edgeward_backstop_pods{finding=\"undecided\"} 1").await;
    replica.shows(written).await;
    assert_eq!(notes().len(), 3);

    replica.lead(false);
    replica.shows("edgeward_backstop_pods{finding=\"undecided\"} 0").await;
}
