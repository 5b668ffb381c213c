//! Tests in virtual time. The API server answers at once or after a stated latency, so time passes only in pauses.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use edgeward_cluster::queue::Together;
use edgeward_decision::testkit;
use edgeward_kube::units::{Micros, Moment};
use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::controllers::events::Recorder;
use crate::controllers::lease::Leadership;
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::testkit::{api_server, failure, gate_ledger};

/// A request about a pod: the second in which it came, and its patch, or `null` for a read.
type Asked = (i64, Value);

/// Answers of the API server.
#[derive(Clone)]
struct Answers {
    /// Status code for a patch; `None` leaves every patch unanswered.
    patch: Option<u16>,
    /// Status code for reading a pod.
    read: u16,
    /// How long reading the pod of this name takes.
    latency: fn(&str) -> Duration,
    /// Resource version of every pod.
    version: &'static str,
    /// Changes every pod before it is returned.
    differs: fn(&mut Value),
}

impl Answers {
    fn patch(code: u16) -> Self {
        Self {
            patch: Some(code),
            read: 200,
            latency: |_| Duration::ZERO,
            version: "7",
            differs: |_| {},
        }
    }
}

/// An API server, the requests it received, and the replica that sends them.
struct Server {
    asked: Arc<Mutex<Vec<Asked>>>,
    /// The most pods that were read concurrently.
    read_at_once: Arc<AtomicUsize>,
    shared: Arc<SharedState>,
    clock: Clock,
    plan: watch::Sender<Arc<Plan>>,
    leads: watch::Sender<Option<Moment>>,
    metrics: Arc<Metrics>,
}

impl Server {
    /// A server that answers every patch with this code, and a plan with one step.
    fn with_step(code: u16, action: PlanAction) -> Self {
        Self::start(Answers::patch(code), vec![(gated_pod(0), action)])
    }

    /// Starts a replica that leads and has these steps to carry out. The pods are gated from now on.
    fn start(answers: Answers, steps: Vec<(Arc<GatedPod>, PlanAction)>) -> Self {
        let clock = Clock::start();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let (reading, read_at_once) = (Arc::new(AtomicUsize::new(0)), Arc::<AtomicUsize>::default());
        let client = api_server({
            let (asked, most) = (Arc::clone(&asked), Arc::clone(&read_at_once));
            move |method, uri, body| {
                let (answers, asked) = (answers.clone(), Arc::clone(&asked));
                let (reading, most) = (Arc::clone(&reading), Arc::clone(&most));
                async move {
                    let name = uri.path().rsplit('/').next().unwrap_or_default();
                    let second = clock.moment().0 / 1_000_000;
                    match method {
                        Method::PATCH => {
                            asked.lock().unwrap().push((second, body));
                            match answers.patch {
                                Some(code) => failure(code, "no"),
                                None => std::future::pending().await,
                            }
                        }
                        Method::GET => {
                            asked.lock().unwrap().push((second, Value::Null));
                            most.fetch_max(reading.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                            tokio::time::sleep((answers.latency)(name)).await;
                            reading.fetch_sub(1, Ordering::Relaxed);
                            if answers.read != 200 {
                                return failure(answers.read, "no");
                            }
                            let mut pod = pod(name, answers.version);
                            (answers.differs)(&mut pod);
                            (200, pod)
                        }
                        _ => (201, body),
                    }
                }
            }
        });
        let metrics = Arc::<Metrics>::default();
        let (recorder, events) = Recorder::new(client.clone(), clock, Arc::clone(&metrics));
        let fleet = json!({
            "sites": [{"name": "edge", "kind": "edge"}],
            "nodes": [{"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 9, "pods": 99}}],
        });
        let shared = SharedState::new(Arc::new(testkit::snapshot(&fleet)), Micros::from_secs(86_400));
        let shared = Arc::new(shared);
        let (plan, plans) = watch::channel(Arc::default());
        let (leads, leadership) = Leadership::new(clock);
        let context = Context {
            client,
            config: Arc::new(ArcSwap::from_pointee(Config::default())),
            shared: Arc::clone(&shared),
            events,
            leadership: leadership.clone(),
            clock,
            metrics: Arc::clone(&metrics),
        };
        leads.send_replace(Some(Moment(i64::MAX)));
        tokio::spawn(recorder.run(leadership));
        tokio::spawn(run(context, plans));
        let server = Self {
            asked,
            read_at_once,
            shared,
            clock,
            plan,
            leads,
            metrics,
        };
        server.plan(steps);
        server
    }

    /// Replaces the plan.
    fn plan(&self, steps: Vec<(Arc<GatedPod>, PlanAction)>) {
        let step = |(pod, action)| PlanEntry {
            pod,
            since: self.clock.moment(),
            action,
            together: None,
        };
        self.plan.send_replace(Arc::new(Plan {
            entries: steps.into_iter().map(step).collect(),
            ..Plan::default()
        }));
    }

    /// Replaces the plan by the release of these pods together, at the edge.
    fn plan_together(&self, pods: impl Iterator<Item = Arc<GatedPod>>) {
        let together = Together {
            group: "shop/g".into(),
            site: "edge".into(),
        };
        let entry = |pod| PlanEntry {
            pod,
            since: self.clock.moment(),
            action: PlanAction::Release,
            together: Some(together.clone()),
        };
        self.plan.send_replace(Arc::new(Plan {
            entries: pods.map(entry).collect(),
            ..Plan::default()
        }));
    }

    /// The requests within this many seconds from now.
    async fn asked_within(&self, seconds: u64) -> Vec<Asked> {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    /// The patches within this many seconds from now.
    async fn patched_within(&self, seconds: u64) -> Vec<Asked> {
        let mut asked = self.asked_within(seconds).await;
        asked.retain(|(_, patch)| !patch.is_null());
        asked
    }

    /// How many changes of gated pods were counted with this reason and result.
    fn counted(&self, reason: &str, result: &str) -> Option<u64> {
        let series = format!("edgeward_gated_pod_changes_total{{reason=\"{reason}\",result=\"{result}\"}} ");
        let text = self.metrics.encode();
        text.lines().find_map(|line| line.strip_prefix(&series)?.parse().ok())
    }
}

/// A pod of class `latency`, which is gated for at most 30 s.
fn pod(name: &str, version: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version,
                     "annotations": {"slo.example.io/class": "latency", "slo.example.io/latencyTargetMs": "200"}},
        "spec": {"schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}], "containers": []},
    })
}

/// The pod of this number as the waitlist keeps it, in version 7.
fn gated_pod(number: usize) -> Arc<GatedPod> {
    let pod = pod(&format!("p{number}"), "7");
    edgeward_cluster::testkit::record(&pod, &Config::default().keys)
        .gated_pod
        .unwrap()
}

fn seconds(patches: &[Asked]) -> Vec<i64> {
    patches.iter().map(|(second, _)| *second).collect()
}

fn is_placement((_, patch): &Asked) -> bool {
    let mut operations = patch.as_array().unwrap().iter();
    operations.any(|operation| operation["path"] == "/spec/nodeSelector")
}

#[tokio::test(start_paused = true)]
async fn failed_release_is_tried_again_after_longer_pauses() {
    for (code, within, expected, placements) in [
        // After five refusals and the limit of its class, the pod loses the gate without a placement.
        (403, 250, &[0, 1, 3, 7, 15, 31, 63, 123, 183, 243][..], 5),
        // An API server that is away refuses nothing.
        (503, 100, &[0, 1, 3, 7, 15, 31, 63], 7),
        // A version that was changed is left alone.
        (200, 3_600, &[0], 1),
    ] {
        let server = Server::with_step(code, PlanAction::Release);
        let patches = server.patched_within(within).await;
        assert_eq!(seconds(&patches), expected, "{code}");
        let is_placed = patches.iter().map(is_placement);
        assert!(is_placed.eq((0..expected.len()).map(|at| at < placements)), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn lost_lease_frees_reservations_of_pending_patches() {
    let answers = Answers {
        patch: None,
        ..Answers::patch(200)
    };
    let server = Server::start(answers, vec![(gated_pod(0), PlanAction::Release)]);
    assert_eq!(seconds(&server.patched_within(10).await), [0]);
    let open = || server.shared.ledger().open();
    assert_eq!(open(), 1);
    server.leads.send_replace(None);
    server.asked_within(1).await;
    assert_eq!(open(), 0);
}

#[tokio::test(start_paused = true)]
async fn gated_pod_is_read_before_it_is_patched() {
    let server = Server::with_step(200, PlanAction::RemoveGate(Reason::NotManaged));
    let asked = server.asked_within(10).await;
    let [(_, read), (_, patch)] = &*asked else {
        panic!("{asked:?}")
    };
    assert!(read.is_null());
    // All content of the patch comes from the pod that was read.
    let tested = &patch[0];
    assert_eq!(
        (&tested["op"], &tested["value"]),
        (&json!("test"), &json!("7")),
        "{patch}"
    );
}

#[tokio::test(start_paused = true)]
async fn changed_or_deleted_pod_is_left_to_the_next_plan() {
    for (read, version) in [(200, "8"), (404, "7")] {
        let answers = Answers {
            read,
            version,
            ..Answers::patch(200)
        };
        let server = Server::start(answers, vec![(gated_pod(0), PlanAction::Release)]);
        assert_eq!(server.asked_within(3_600).await, [(0, Value::Null)], "{read} {version}");
        assert_eq!(server.counted("unread", "outdated"), Some(1));
        assert_eq!(server.shared.ledger().open(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_pod_read_is_retried_after_longer_pauses() {
    for read in [403, 503] {
        let answers = Answers {
            read,
            ..Answers::patch(200)
        };
        let server = Server::start(answers, vec![(gated_pod(0), PlanAction::Release)]);
        let asked = server.asked_within(100).await;
        assert_eq!(seconds(&asked), [0, 1, 3, 7, 15, 31, 63]);
        assert!(asked.iter().all(|(_, patch)| patch.is_null()));
        assert_eq!(server.counted("unread", "refused"), Some(7));
    }
}

#[tokio::test(start_paused = true)]
async fn pod_read_without_answer_times_out_and_is_retried() {
    let answers = Answers {
        latency: |_| Duration::from_secs(3_600),
        ..Answers::patch(200)
    };
    let server = Server::start(answers, vec![(gated_pod(0), PlanAction::Release)]);
    // Each attempt takes ten seconds, plus the pause.
    assert_eq!(seconds(&server.asked_within(60).await), [0, 11, 23, 37, 55]);
}

#[tokio::test(start_paused = true)]
async fn pod_reads_run_concurrently_up_to_limit() {
    let answers = Answers {
        latency: |_| Duration::from_millis(10),
        ..Answers::patch(200)
    };
    let action = PlanAction::RemoveGate(Reason::NotManaged);
    let steps = (0..40).map(|number| (gated_pod(number), action));
    let server = Server::start(answers, steps.collect());
    assert_eq!(server.patched_within(10).await.len(), 40);
    assert_eq!(server.read_at_once.load(Ordering::Relaxed), AT_ONCE);
}

#[tokio::test(start_paused = true)]
async fn release_does_not_wait_for_reason_updates() {
    let answers = Answers {
        latency: |_| Duration::from_secs(1),
        ..Answers::patch(200)
    };
    let update = PlanAction::UpdateReason(Reason::HeldForeignGate);
    let updates: Vec<_> = (1..=200).map(|number| (gated_pod(number), update)).collect();
    let all = [&*updates, &[(gated_pod(0), PlanAction::Release)]].concat();
    let server = Server::start(answers.clone(), all.clone());
    assert!(server.patched_within(2).await.iter().any(is_placement));
    // A release that is planned while updates are under way does not wait either.
    let server = Server::start(answers, updates);
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.plan(all);
    let patches = server.patched_within(2).await;
    assert!(patches.iter().any(is_placement));
    // Updates get the slots that are left.
    assert_eq!(patches.len() + server.patched_within(300).await.len(), 201);
}

#[tokio::test(start_paused = true)]
async fn slow_pod_read_does_not_delay_other_releases() {
    let answers = Answers {
        latency: |name| Duration::from_secs(if name == "p0" { 4 } else { 0 }),
        ..Answers::patch(200)
    };
    let steps = (0..40).map(|number| (gated_pod(number), PlanAction::Release));
    let server = Server::start(answers, steps.collect());
    assert_eq!(
        seconds(&server.patched_within(60).await),
        [vec![0; 39], vec![4]].concat()
    );
}

#[tokio::test(start_paused = true)]
async fn pod_without_stored_workload_is_decided_when_read() {
    let of = |is_kept: bool| {
        let mut pod = (*gated_pod(0)).clone();
        pod.workload = pod.workload.filter(|_| is_kept);
        vec![(Arc::new(pod), PlanAction::Release)]
    };
    let server = Server::start(Answers::patch(200), of(false));
    let patches = server.patched_within(10).await;
    assert!(patches.len() == 1 && is_placement(&patches[0]), "{patches:?}");
    let cases: [(fn(&mut Value), _); 2] = [
        (
            |pod| pod["spec"]["nodeSelector"] = json!({"a": "b"}),
            "held_no_capacity",
        ),
        (
            |pod| pod["metadata"]["labels"] = json!({"scheduling.example.io/managed": "false"}),
            "passthrough_opted_out",
        ),
    ];
    for (differs, reason) in cases {
        let answers = Answers {
            differs,
            ..Answers::patch(200)
        };
        // If the pod has a place in the plan, the next plan decides.
        let server = Server::start(answers.clone(), of(true));
        assert!(server.patched_within(10).await.is_empty());
        let server = Server::start(answers, of(false));
        let patches = server.patched_within(10).await;
        assert!(patches.len() == 1 && !is_placement(&patches[0]), "{patches:?}");
        assert_eq!(server.counted(reason, "changed"), Some(1), "{patches:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ungated_pod_without_stored_workload_is_read_with_back_off() {
    let answers = Answers {
        differs: |pod| pod["spec"]["schedulingGates"] = json!([]),
        ..Answers::patch(200)
    };
    for (is_kept, expected) in [(true, vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9]), (false, vec![0, 1, 3, 7])] {
        let mut pod = (*gated_pod(0)).clone();
        pod.workload = pod.workload.filter(|_| is_kept);
        let action = PlanAction::RemoveGate(Reason::NotManaged);
        let server = Server::start(answers.clone(), vec![(Arc::new(pod), action)]);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(seconds(&server.asked_within(9).await), expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn deciding_a_release_does_not_block_the_only_worker() {
    let server = Server::start(Answers::patch(200), vec![]);
    let had_turn = gate_ledger(&server.shared);
    server.plan(vec![(gated_pod(0), PlanAction::Release)]);
    assert!(had_turn.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn group_is_released_whole_or_not_at_all() {
    let differs: [fn(&mut Value); 3] = [
        |_| {},
        |pod| {
            if pod["metadata"]["name"] == "p9" {
                pod["metadata"]["resourceVersion"] = json!("8");
            }
        },
        // The edge has 9 cores.
        |pod| pod["spec"]["containers"] = json!([{"resources": {"requests": {"cpu": "1"}}}]),
    ];
    for (differs, patched, reserved) in [(differs[0], 12, 12), (differs[1], 0, 0), (differs[2], 0, 0)] {
        let server = Server::start(
            Answers {
                differs,
                ..Answers::patch(200)
            },
            vec![],
        );
        server.plan_together((0..12).map(gated_pod));
        // A group may have more pods than are read at once.
        let patches = server.patched_within(1).await;
        assert_eq!(patches.iter().filter(|patch| is_placement(patch)).count(), patched);
        assert_eq!(server.shared.ledger().open(), reserved);
        assert!(server.read_at_once.load(Ordering::Relaxed) <= AT_ONCE);
    }
}

#[tokio::test(start_paused = true)]
async fn group_with_an_outdated_pod_starts_once_its_new_version_is_planned() {
    let differs: fn(&mut Value) = |pod| {
        if pod["metadata"]["name"] == "p1" {
            pod["metadata"]["resourceVersion"] = json!("8");
        }
    };
    let answers = Answers {
        differs,
        ..Answers::patch(200)
    };
    let server = Server::start(answers, vec![]);
    server.plan_together((0..3).map(gated_pod));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let newer = GatedPod {
        resource_version: "8".into(),
        ..(*gated_pod(1)).clone()
    };
    server.plan_together([gated_pod(0), Arc::new(newer), gated_pod(2)].into_iter());
    assert_eq!(seconds(&server.patched_within(3).await), [0; 3]);
}
