//! In virtual time: the API server of these tests answers at once, so that time passes in pauses alone.

use std::sync::Mutex;
use std::time::Duration;

use edgeward_core::engine::{Journal, Step as JournalStep};
use edgeward_core::testkit;
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::controllers::events::Recorder;
use crate::testkit::LongSteps;

/// A patch of a pod, and the second in which it was asked for.
type Patched = (u64, Value);

/// An API server, what it was asked, and the replica that asks.
struct Server {
    patches: Arc<Mutex<Vec<Patched>>>,
    shared: Arc<SharedState>,
    leads: watch::Sender<Option<Moment>>,
}

impl Server {
    /// It answers every patch of a pod with this code.
    fn with_step(code: u16, action: PlanAction) -> Self {
        Self::start(Some(code), action, None)
    }

    /// With a replica that leads, and has this to do about a pod that is held from now on. Without a code no patch is ever
    /// answered.
    fn start(code: Option<u16>, action: PlanAction, journal: Option<Arc<dyn Journal>>) -> Self {
        let clock = Clock::start();
        let patches = Arc::<Mutex<Vec<Patched>>>::default();
        let asked = Arc::clone(&patches);
        let service = tower::service_fn(move |request: Request<Body>| {
            let asked = Arc::clone(&asked);
            Box::pin(async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let is_patch = head.method == Method::PATCH;
                if is_patch {
                    let patch = serde_json::from_slice(&body)?;
                    asked.lock().unwrap().push((clock.monotonic_us() / 1_000_000, patch));
                }
                let code = match (is_patch, code) {
                    (true, Some(code)) => code,
                    (true, None) => std::future::pending().await,
                    (false, _) => 201,
                };
                let refusal =
                    json!({"kind": "Status", "status": "Failure", "message": "no", "reason": "", "code": code});
                let answer = match is_patch {
                    true => refusal.to_string().into_bytes(),
                    false => body.to_vec(),
                };
                anyhow::Ok(Response::builder().status(code).body(Body::from(answer))?)
            })
        });
        let client = Client::new(service, "default");
        let config = Arc::new(ArcSwap::from_pointee(Config::default()));
        let metrics = Arc::<Metrics>::default();
        let (recorder, events) = Recorder::new(client.clone(), Arc::clone(&config), clock, Arc::clone(&metrics));
        let fleet = json!({
            "sites": [{"name": "edge", "kind": "edge"}],
            "nodes": [{"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 9, "pods": 9}}],
        });
        let shared = SharedState::new(Arc::new(testkit::snapshot(&fleet)), Micros::from_secs(86_400));
        let shared = Arc::new(shared.with_journal(journal));
        let (plan, plans) = watch::channel(Arc::default());
        let executor = Executor {
            client,
            plans,
            config,
            shared: Arc::clone(&shared),
            clock,
            metrics,
            events,
            log_limit: Arc::new(LogLimit::new(clock)),
        };
        let (leads, leadership) = Leadership::new(clock);
        leads.send_replace(Some(Moment(i64::MAX)));
        let step = Step {
            pod: held_pod(),
            since: clock.moment(),
            action,
        };
        plan.send_replace(Arc::new(Plan {
            steps: vec![step],
            ..Plan::default()
        }));
        tokio::spawn(recorder.run(leadership.clone()));
        tokio::spawn(async move {
            let _kept = plan;
            executor.run(leadership).await;
        });
        Self { patches, shared, leads }
    }

    /// What was asked within so many seconds from now on.
    async fn asked_within(&self, seconds: u64) -> Vec<Patched> {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        std::mem::take(&mut self.patches.lock().unwrap())
    }
}

/// Of class `latency`, which is held for 30 s at most.
fn held_pod() -> Arc<HeldPod> {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "shop", "uid": "p", "resourceVersion": "7",
                     "annotations": {"slo.example.io/class": "latency", "slo.example.io/latencyTargetMs": "200"}},
        "spec": {"schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}], "containers": []},
    });
    let text = pod.to_string();
    let record = Pod::from_json(&text)
        .unwrap()
        .record(&text, &Config::default().keys)
        .unwrap();
    record.unwrap().held.unwrap()
}

fn seconds(patches: &[Patched]) -> Vec<u64> {
    patches.iter().map(|(second, _)| *second).collect()
}

fn is_placement((_, patch): &Patched) -> bool {
    let mut operations = patch.as_array().unwrap().iter();
    operations.any(|operation| operation["path"] == "/spec/nodeSelector")
}

#[tokio::test(start_paused = true)]
async fn a_refused_release_is_tried_again_after_longer_pauses_and_without_a_placement_at_last() {
    let server = Server::with_step(403, PlanAction::Release);
    let patches = server.asked_within(250).await;
    assert_eq!(seconds(&patches), [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]);
    // Five refusals, and the limit of its class is over: it loses the gate.
    let placements: Vec<bool> = patches.iter().map(is_placement).collect();
    assert_eq!(placements, [vec![true; 5], vec![false; 5]].concat());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_away_refuses_nothing() {
    let server = Server::with_step(503, PlanAction::Release);
    let patches = server.asked_within(100).await;
    assert_eq!(seconds(&patches), [0, 1, 3, 7, 15, 31, 63]);
    assert!(patches.iter().all(is_placement));
}

#[tokio::test(start_paused = true)]
async fn a_version_of_a_pod_that_was_changed_is_left_alone() {
    let server = Server::with_step(200, PlanAction::Release);
    assert_eq!(seconds(&server.asked_within(3_600).await), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_frees_the_room_of_patches_under_way() {
    let server = Server::start(None, PlanAction::Release, None);
    assert_eq!(seconds(&server.asked_within(10).await), [0]);
    let open = || server.shared.ledger().open();
    assert_eq!(open(), 1);
    server.leads.send_replace(None);
    server.asked_within(1).await;
    assert_eq!(open(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn while_a_release_is_decided_the_only_worker_has_time_for_others() {
    let (decisions, mut ends) = LongSteps::new(|step| matches!(step, JournalStep::Release { .. }));
    let _server = Server::start(Some(200), PlanAction::Release, Some(decisions));
    assert_eq!(ends.recv().await, Some(Ok(())));
}
