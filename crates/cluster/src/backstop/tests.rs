use serde_json::{Value, json};

use super::*;
use crate::testkit::node;
use edgeward_decision::keys::Keys;
use edgeward_decision::model::link::LinkState;
use edgeward_decision::testkit;
use edgeward_decision::testkit::{NOW, with};
use edgeward_kube::node;

const SECOND: i64 = 1_000_000;

/// An edge of one core, a cloud with a healthy link, and the pods that the watch shows.
struct Fixture {
    cache: Cache,
    backstop: Backstop,
    config: Arc<Config>,
    now: Moment,
}

/// A pod of class batch without a decision.
fn pod(uid: &str, millicores: u32) -> Value {
    json!({
        "metadata": {
            "uid": uid, "namespace": "shop", "name": uid, "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:10Z",
            "annotations": {"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"},
            "ownerReferences": [owner("apps/v1", "ReplicaSet")],
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": format!("{millicores}m")}}}]},
        "status": {"phase": "Pending"},
    })
}

fn owner(api_version: &str, kind: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": "web", "uid": "rs", "controller": true})
}

/// Adds a site's placement to the pod.
fn placed(pod: Value, site: &str, reason: &str) -> Value {
    let mut pod = with(pod, "/spec/nodeSelector", json!({format!("node.role/{site}"): "true"}));
    let annotations = &mut pod["metadata"]["annotations"];
    annotations["scheduling.example.io/decision-id"] = json!("00000000-0000-4000-8000-000000000001");
    annotations["scheduling.example.io/reason"] = json!(reason);
    if site == "cloud" {
        pod["spec"]["tolerations"] = json!([{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}]);
    }
    pod
}

fn bound(pod: Value, node: &str) -> Value {
    with(
        with(pod, "/spec/nodeName", node.into()),
        "/status/phase",
        "Running".into(),
    )
}

fn unschedulable(pod: Value) -> Value {
    let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}]);
    with(pod, "/status/conditions", conditions)
}

impl Fixture {
    /// A fixture whose edge is full.
    fn new() -> Self {
        let config = Arc::<Config>::default();
        let mut cache = Cache::new(Arc::clone(&config));
        let now = Moment(1_000 * SECOND);
        cache.apply_namespace("shop", true);
        for node in [node("e", "edge", "1"), node("c", "cloud", "100")] {
            cache.apply_node(node::from_json(&node.to_string()).unwrap());
        }
        let mut fixture = Self {
            cache,
            backstop: Backstop::default(),
            config,
            now,
        };
        fixture.see(&bound(
            placed(
                with(
                    pod("filler", 1000),
                    "/metadata/creationTimestamp",
                    "2026-01-01T00:00:00Z".into(),
                ),
                "edge",
                "edge_feasible_slo_met",
            ),
            "e",
        ));
        fixture
    }

    fn wait(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.now = Moment(self.now.0 + SECOND);
            self.cache.publish(self.now);
        }
    }

    fn see(&mut self, pod: &Value) {
        let record = crate::testkit::record(pod, &Keys::new("example.io"));
        self.backstop.apply(&record);
        self.cache.apply_pod(&record, None, NOW.at(self.now));
    }

    fn gone(&mut self, uid: &str) {
        self.backstop.wake();
        self.cache.pod_gone(uid, self.now);
    }

    fn report(&mut self) -> (BackstopReport, Snapshot) {
        let link = testkit::link(LinkState::Healthy, 10, self.now);
        self.cache.apply_link("cloud", Some(link));
        crate::cache::Kind::REQUIRED
            .into_iter()
            .for_each(|kind| self.cache.record_event(kind, self.now));
        let snapshot = self.cache.publish(self.now);
        self.backstop.wake();
        self.now = self.backstop.next_change().unwrap().max(self.now);
        (self.backstop.report(&self.cache, self.now).unwrap(), snapshot)
    }

    /// The stuck pods that the backstop finds, each with the site where it would go.
    fn found(&mut self) -> Vec<(String, String)> {
        let (report, snapshot) = self.report();
        let now = Now {
            moment: self.now,
            wall: jiff::Timestamp::UNIX_EPOCH,
        };
        let findings = report.evaluate(&snapshot, &Ledger::default(), &self.config, now);
        findings
            .iter()
            .map(|found| (found.candidate.pod.name.to_string(), found.site.clone()))
            .collect()
    }
}

fn is(pods: &[(&str, &str)]) -> Vec<(String, String)> {
    pods.iter()
        .map(|(pod, site)| ((*pod).to_owned(), (*site).to_owned()))
        .collect()
}

#[test]
fn pod_stuck_for_30_s_with_room_elsewhere_is_found() {
    let mut fixture = Fixture::new();
    fixture.see(&unschedulable(pod("undecided", 500)));
    fixture.see(&unschedulable(placed(pod("decided", 500), "edge", "edge_no_capacity")));
    fixture.wait(29);
    // kube-scheduler's message changes, but its meaning stays the same.
    let mut again = unschedulable(pod("undecided", 500));
    again["status"]["conditions"][0]["message"] = json!("still no");
    fixture.see(&again);
    assert_eq!(fixture.found(), []);
    fixture.wait(1);
    assert_eq!(fixture.found(), is(&[("decided", "cloud"), ("undecided", "cloud")]));

    // A new pod of the same name starts its own waiting time.
    fixture.gone("undecided");
    fixture.see(&unschedulable(pod("undecided", 500)));
    assert_eq!(fixture.found(), is(&[("decided", "cloud")]));
    fixture.see(&bound(placed(pod("decided", 500), "edge", "edge_no_capacity"), "e"));
    assert_eq!(fixture.found(), []);
}

#[test]
fn namespaces_take_turns_among_candidates() {
    let mut fixture = Fixture::new();
    fixture.cache.apply_namespace("far", true);
    for uid in ["a", "b", "c"] {
        fixture.see(&unschedulable(pod(uid, 500)));
    }
    fixture.wait(1);
    fixture.see(&unschedulable(with(pod("d", 500), "/metadata/namespace", "far".into())));
    fixture.wait(30);
    let (report, _) = fixture.report();
    let names: Vec<_> = report.candidates.iter().map(|candidate| &*candidate.pod.name).collect();
    assert_eq!(names, ["a", "d", "b", "c"]);
}

#[test]
fn stuck_pod_unmanaged_or_without_better_site_is_left() {
    let stuck = || unschedulable(placed(pod("p", 500), "edge", "edge_no_capacity"));
    let none = |change: &dyn Fn(&mut Fixture), pod: Value| {
        let mut fixture = Fixture::new();
        fixture.see(&pod);
        fixture.wait(30);
        change(&mut fixture);
        assert_eq!(fixture.found(), [], "{pod}");
    };
    let reason = |pod: Value, reason: &str| {
        with(
            pod,
            "/metadata/annotations/scheduling.example.io~1reason",
            reason.into(),
        )
    };
    for pod in [
        // Pods that edgeward does not manage, or that have no other site.
        with(
            stuck(),
            "/metadata/labels",
            json!({"scheduling.example.io/managed": "false"}),
        ),
        with(stuck(), "/metadata/annotations/slo.example.io~1class", Value::Null),
        with(
            stuck(),
            "/metadata/annotations/slo.example.io~1offloadAllowed",
            "false".into(),
        ),
        with(stuck(), "/metadata/deletionTimestamp", "2026-01-01T00:00:00Z".into()),
        with(stuck(), "/spec/schedulingGates", json!([{"name": "g"}])),
        with(stuck(), "/status/nominatedNodeName", "e".into()),
        // The pod was gated and lost its gate, by refusals or by hand. A replacement would fare the same.
        reason(unschedulable(pod("p", 500)), "held_no_capacity"),
        unschedulable(placed(pod("p", 500), "edge", "edge_pinned_by_pod")),
        unschedulable(placed(pod("p", 200_000), "edge", "edge_too_large")),
    ] {
        none(&|_| {}, pod);
    }
    none(
        &|fixture| {
            fixture.cache.apply_namespace("shop", false);
        },
        stuck(),
    );
    none(&|fixture| fixture.cache.delete_node("c"), stuck());
    none(
        &|fixture| Arc::make_mut(&mut fixture.config).enable_offload = false,
        stuck(),
    );
    none(
        &|fixture| {
            Arc::make_mut(&mut fixture.config)
                .excluded_namespaces
                .push("shop".into())
        },
        stuck(),
    );
    // The edge has room again, so kube-scheduler will bind the pod.
    none(&|fixture| fixture.gone("filler"), stuck());
    // An outdated snapshot.
    let mut fixture = Fixture::new();
    fixture.see(&stuck());
    fixture.wait(30);
    let (report, snapshot) = fixture.report();
    let at = |moment| Now {
        moment,
        wall: jiff::Timestamp::UNIX_EPOCH,
    };
    let found = |moment| {
        report
            .evaluate(&snapshot, &Ledger::default(), &fixture.config, at(moment))
            .len()
    };
    assert_eq!(
        [found(fixture.now), found(fixture.now.after(Micros::from_secs(61)))],
        [1, 0]
    );
}

#[test]
fn evaluation_ignores_the_pods_own_refusal_and_queue_place() {
    // The pod waits for something that edgeward does not evaluate, and so closes the edge to others. Those go to the cloud. It
    // does not close the edge to itself, because without it the edge would be open.
    let mut fixture = Fixture::new();
    fixture.gone("filler");
    let spread = |uid: &str| unschedulable(placed(pod(uid, 300), "edge", "edge_feasible_slo_met"));
    fixture.see(&spread("one"));
    fixture.wait(30);
    assert_eq!(fixture.found(), []);
    fixture.see(&spread("two"));
    fixture.wait(30);
    assert_eq!(fixture.found(), is(&[("one", "cloud"), ("two", "cloud")]));

    // The pod's own place in the queue is not ahead of it. At the edge it would be in time.
    let mut fixture = Fixture::new();
    let urgent = |uid: &str| {
        let pod = with(
            pod(uid, 500),
            "/metadata/annotations/slo.example.io~1deadlineMs",
            "2000".into(),
        );
        unschedulable(placed(pod, "cloud", "cloud_best_effort"))
    };
    fixture.see(&urgent("c1"));
    fixture.cache.delete_node("c");
    fixture.wait(30);
    let (report, _) = fixture.report();
    let lifted = |snapshot: &Snapshot| {
        let candidate = &report.candidates[0];
        let snapshot = candidate.contribution.removed_from(snapshot, &candidate.pod.workload);
        snapshot
            .sites
            .iter()
            .flat_map(|site| site.queues.clone())
            .map(|queue| queue.waiting)
            .collect::<Vec<_>>()
    };
    assert_eq!(lifted(&fixture.cache.publish(fixture.now)), [0; 0]);
}

#[test]
fn stuck_pod_without_placement_is_assumed_at_the_edge() {
    // The pod fits the edge by size, and kube-scheduler refuses it for its own reason.
    let mut fixture = Fixture::new();
    fixture.gone("filler");
    fixture.see(&unschedulable(pod("p", 300)));
    fixture.wait(30);
    assert_eq!(fixture.found(), []);
    // As it is, the pod fits no node. With the placement's toleration it fits the tainted edge node.
    let mut fixture = Fixture::new();
    fixture.gone("filler");
    let tainted = json!([{"key": "edge", "value": "edge", "effect": "NoSchedule"}]);
    let node = with(node("e", "edge", "1"), "/spec/taints", tainted.clone());
    fixture.cache.apply_node(node::from_json(&node.to_string()).unwrap());
    let edge = json!({"sites": [
        {"name": "edge", "kind": "edge", "tolerations": tainted},
        {"name": "cloud", "kind": "cloud"},
    ]});
    let config = Arc::new(Config::read(&edge).unwrap());
    let mut cache = Cache::new(Arc::clone(&config));
    cache.apply_namespace("shop", true);
    cache.apply_node(node::from_json(&node.to_string()).unwrap());
    (fixture.cache, fixture.config) = (cache, config);
    fixture.see(&unschedulable(pod("p", 300)));
    fixture.wait(30);
    assert_eq!(fixture.found(), is(&[("p", "edge")]));
}

#[test]
fn bound_pod_without_decision_counts_after_others_are_decided() {
    let mut fixture = Fixture::new();
    let at = |pod: Value, second: u32| {
        with(
            pod,
            "/metadata/creationTimestamp",
            format!("2026-01-01T00:00:{second:02}Z").into(),
        )
    };
    let but = |uid: &str, pointer: &str, value: Value| with(bound(at(pod(uid, 1), 30), "e"), pointer, value);
    let reason = "/metadata/annotations/scheduling.example.io~1reason";
    let daemon = json!([owner("apps/v1", "DaemonSet")]);
    for pod in [
        bound(at(pod("before", 1), 0), "e"),
        bound(at(pod("missed", 1), 30), "e"),
        at(pod("waits", 1), 30),
        but(
            "out",
            "/metadata/labels",
            json!({"scheduling.example.io/managed": "false"}),
        ),
        but("daemon", "/metadata/ownerReferences", daemon),
        but("plain", "/metadata/annotations", json!({})),
        but("over", "/status/phase", "Succeeded".into()),
        but("released", reason, "held_no_capacity".into()),
    ] {
        fixture.see(&pod);
    }
    let other = but("other", "/metadata/namespace", "till".into());
    fixture.see(&other);
    assert_eq!(fixture.report().0.bound, 1);
    // In this namespace, only a decided pod shows that the webhook was ever called.
    fixture.cache.apply_namespace("till", true);
    assert_eq!(fixture.report().0.bound, 1);
    let decided = with(
        bound(at(placed(pod("decided", 1), "edge", "edge_feasible_slo_met"), 20), "e"),
        "/metadata/namespace",
        "till".into(),
    );
    fixture.see(&decided);
    assert_eq!(fixture.report().0.bound, 2);
    // The evidence stays after that pod is gone,
    fixture.gone("decided");
    assert_eq!(fixture.report().0.bound, 2);
    fixture.gone("missed");
    // unless the namespace opted out in the meantime.
    fixture.backstop.opted_out("till");
    assert_eq!(fixture.report().0.bound, 0);
    fixture.see(&decided);
    assert_eq!(fixture.report().0.bound, 1);
    fixture.see(&with(other, "/status/phase", "Failed".into()));
    assert_eq!(fixture.report().0.bound, 0);
}

#[test]
fn backstop_reports_after_changes_and_at_most_every_5_s() {
    let mut fixture = Fixture::new();
    let due_in = |fixture: &Fixture| fixture.backstop.next_change().map(|at| (at.0 - fixture.now.0) / SECOND);
    let candidates = |fixture: &mut Fixture| {
        let report = fixture.backstop.report(&fixture.cache, fixture.now);
        report.map(|report| report.candidates.len())
    };
    fixture.wait(100);
    fixture.report();
    assert_eq!(due_in(&fixture), None);
    fixture.see(&unschedulable(pod("p", 500)));
    assert_eq!(due_in(&fixture), Some(5));
    assert_eq!(candidates(&mut fixture), None);
    fixture.wait(5);
    assert_eq!(candidates(&mut fixture), Some(0));
    assert_eq!(due_in(&fixture), Some(25));
    fixture.wait(25);
    assert_eq!(candidates(&mut fixture), Some(1));
    assert_eq!(due_in(&fixture), Some(5));
    fixture.gone("p");
    fixture.wait(5);
    assert_eq!(candidates(&mut fixture), Some(0));
    assert_eq!(due_in(&fixture), None);
}
