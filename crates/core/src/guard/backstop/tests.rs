use serde_json::{Value, json};

use super::*;
use crate::keys::Keys;
use crate::model::link::{Link, LinkState};
use crate::wire::node;
use crate::wire::pod::Pod;

const SECOND: i64 = 1_000_000;

/// An edge of a core, a cloud with a healthy link, and what the watch of pods shows.
struct Scene {
    index: Index,
    backstop: Backstop,
    config: Config,
    now: Moment,
}

fn node(name: &str, site: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {format!("node.role/{site}"): "true"}},
        "spec": {"taints": if site == "cloud" { json!([{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}]) } else { json!([]) }},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn with(mut document: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value;
    document
}

/// A pod of class batch that nobody decided.
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

/// The same pod with the placement of a site.
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
    let word = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}]);
    with(pod, "/status/conditions", word)
}

impl Scene {
    /// The edge is full.
    fn new() -> Self {
        let config = Config::default();
        let mut index = Index::new(&config);
        let now = Moment(1_000 * SECOND);
        index.apply_namespace("shop", true);
        for node in [node("e", "edge", "1"), node("c", "cloud", "100")] {
            index.apply_node(node::from_json(&node.to_string()).unwrap(), now);
        }
        let mut scene = Self {
            index,
            backstop: Backstop::default(),
            config,
            now,
        };
        scene.see(&bound(
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
        scene
    }

    fn wait(&mut self, seconds: i64) {
        for _ in 0..seconds {
            self.now = Moment(self.now.0 + SECOND);
            self.index.publish(self.now);
        }
    }

    fn see(&mut self, pod: &Value) {
        let text = pod.to_string();
        let record = Pod::from_json(&text)
            .unwrap()
            .record(&text, &Keys::new("example.io"))
            .unwrap()
            .unwrap();
        self.backstop.apply(&record, self.now);
        self.index.apply_pod(&record, None, self.now);
    }

    fn gone(&mut self, uid: &str) {
        self.backstop.delete(uid);
        self.index.delete_pod(uid);
    }

    fn survey(&mut self) -> (Survey, Snapshot) {
        let link = Link {
            state: LinkState::Healthy,
            rtt: Some(Micros::from_millis(10)),
            loss: None,
            as_of: self.now,
        };
        self.index.set_link("cloud", Some(link));
        crate::cluster::index::Kind::ALL
            .into_iter()
            .for_each(|kind| self.index.heard(kind, self.now));
        let snapshot = self.index.publish(self.now);
        self.backstop.wake();
        self.now = self.backstop.next_change().unwrap().max(self.now);
        (self.backstop.survey(&self.index, self.now).unwrap(), snapshot)
    }

    /// What is found: each pod and the site where it would go.
    fn found(&mut self) -> Vec<(String, String)> {
        let (survey, snapshot) = self.survey();
        let now = Now {
            moment: self.now,
            wall: jiff::Timestamp::UNIX_EPOCH,
        };
        let look = survey.look(None, &snapshot, &Ledger::default(), &self.config, now);
        look.findings
            .iter()
            .map(|found| (found.suspect.pod.name.to_string(), found.site.clone()))
            .collect()
    }
}

fn is(pods: &[(&str, &str)]) -> Vec<(String, String)> {
    pods.iter()
        .map(|(pod, site)| ((*pod).to_owned(), (*site).to_owned()))
        .collect()
}

#[test]
fn a_pod_is_found_when_it_was_stuck_for_long_and_has_a_place_elsewhere() {
    let mut scene = Scene::new();
    scene.see(&unschedulable(pod("undecided", 500)));
    scene.see(&unschedulable(placed(pod("decided", 500), "edge", "edge_no_capacity")));
    scene.wait(29);
    // Another word of kube-scheduler, and no word but the same.
    let mut again = unschedulable(pod("undecided", 500));
    again["status"]["conditions"][0]["message"] = json!("still no");
    scene.see(&again);
    assert_eq!(scene.found(), []);
    scene.wait(1);
    assert_eq!(scene.found(), is(&[("decided", "cloud"), ("undecided", "cloud")]));

    // A new pod has its own time, and one that was gone its own again.
    scene.gone("undecided");
    scene.see(&unschedulable(pod("undecided", 500)));
    assert_eq!(scene.found(), is(&[("decided", "cloud")]));
    scene.see(&bound(placed(pod("decided", 500), "edge", "edge_no_capacity"), "e"));
    assert_eq!(scene.found(), []);
}

#[test]
fn a_pod_is_left_where_it_is_no_worse_than_elsewhere() {
    let stuck = || unschedulable(placed(pod("p", 500), "edge", "edge_no_capacity"));
    let none = |change: &dyn Fn(&mut Scene), pod: Value| {
        let mut scene = Scene::new();
        scene.see(&pod);
        scene.wait(30);
        change(&mut scene);
        assert_eq!(scene.found(), [], "{pod}");
    };
    let nothing = |_: &mut Scene| {};
    // Pods that are not ours, or may go nowhere else.
    none(
        &nothing,
        with(
            stuck(),
            "/metadata/labels",
            json!({"scheduling.example.io/managed": "false"}),
        ),
    );
    none(
        &nothing,
        with(stuck(), "/metadata/annotations/slo.example.io~1class", Value::Null),
    );
    none(
        &nothing,
        with(
            stuck(),
            "/metadata/annotations/slo.example.io~1offloadAllowed",
            "false".into(),
        ),
    );
    none(
        &nothing,
        with(stuck(), "/metadata/deletionTimestamp", "2026-01-01T00:00:00Z".into()),
    );
    none(&nothing, with(stuck(), "/spec/schedulingGates", json!([{"name": "g"}])));
    none(&nothing, with(stuck(), "/status/nominatedNodeName", "e".into()));
    // It was held and let go, after refusals or by hand: so would be the one in its place.
    none(
        &nothing,
        with(
            unschedulable(pod("p", 500)),
            "/metadata/annotations/scheduling.example.io~1reason",
            "held_no_capacity".into(),
        ),
    );
    none(
        &nothing,
        unschedulable(placed(pod("p", 500), "edge", "edge_pinned_by_pod")),
    );
    none(
        &nothing,
        unschedulable(placed(pod("p", 200_000), "edge", "edge_too_large")),
    );
    none(&|scene| scene.index.apply_namespace("shop", false), stuck());
    none(&|scene| scene.index.delete_node("c"), stuck());
    none(&|scene| scene.config.enable_offload = false, stuck());
    none(&|scene| scene.config.excluded_namespaces.push("shop".into()), stuck());
    // The edge has room again: kube-scheduler will see.
    none(&|scene| scene.gone("filler"), stuck());
    // A picture of yesterday.
    let mut scene = Scene::new();
    scene.see(&stuck());
    scene.wait(30);
    let (survey, snapshot) = scene.survey();
    let at = |moment| Now {
        moment,
        wall: jiff::Timestamp::UNIX_EPOCH,
    };
    let found = |moment| {
        survey
            .look(None, &snapshot, &Ledger::default(), &scene.config, at(moment))
            .findings
            .len()
    };
    assert_eq!(
        [found(scene.now), found(scene.now.after(Micros::from_secs(61)))],
        [1, 0]
    );
    // Somebody paused its controller.
    let mut paused = snapshot.clone();
    Arc::make_mut(&mut paused.paused)
        .entry("shop", "rs")
        .insert_entry(Moment(i64::MAX));
    assert!(
        survey
            .look(None, &paused, &Ledger::default(), &scene.config, at(scene.now))
            .findings
            .is_empty()
    );
}

#[test]
fn a_pod_does_not_stand_in_its_own_way() {
    // It waits for something that we do not evaluate, and so closes the edge: to others, which go to the cloud, and not to
    // itself, for there would be nobody to close it.
    let mut scene = Scene::new();
    scene.gone("filler");
    let spread = |uid: &str| unschedulable(placed(pod(uid, 300), "edge", "edge_feasible_slo_met"));
    scene.see(&spread("one"));
    scene.wait(30);
    assert_eq!(scene.found(), []);
    scene.see(&spread("two"));
    scene.wait(30);
    assert_eq!(scene.found(), is(&[("one", "cloud"), ("two", "cloud")]));

    // Its own place in the queue is not ahead of it: at the edge it would be in time.
    let mut scene = Scene::new();
    let urgent = |uid: &str| {
        let pod = with(
            pod(uid, 500),
            "/metadata/annotations/slo.example.io~1deadlineMs",
            "2000".into(),
        );
        unschedulable(placed(pod, "cloud", "cloud_best_effort"))
    };
    scene.see(&urgent("c1"));
    scene.index.delete_node("c");
    scene.wait(30);
    let (survey, _) = scene.survey();
    let lifted = |snapshot: &Snapshot| {
        let suspect = &survey.suspects[0];
        let snapshot = suspect.footprint.lifted_from(snapshot, &suspect.pod.workload);
        snapshot
            .sites
            .iter()
            .flat_map(|site| site.queues.clone())
            .map(|queue| (queue.waiting, queue.pending))
            .collect::<Vec<_>>()
    };
    assert_eq!(lifted(&scene.index.publish(scene.now)), [(0, 0)]);
}

#[test]
fn without_a_placement_the_edge_is_where_a_pod_stands() {
    // It fits the edge, and kube-scheduler does not take it there for a reason of its own.
    let mut scene = Scene::new();
    scene.gone("filler");
    scene.see(&unschedulable(pod("p", 300)));
    scene.wait(30);
    assert_eq!(scene.found(), []);
    // It fits nothing as it is, and the edge once it tolerates what the edge's nodes are tainted with.
    let mut scene = Scene::new();
    scene.gone("filler");
    let tainted = json!([{"key": "edge", "value": "edge", "effect": "NoSchedule"}]);
    let node = with(node("e", "edge", "1"), "/spec/taints", tainted.clone());
    scene
        .index
        .apply_node(node::from_json(&node.to_string()).unwrap(), scene.now);
    let edge = json!({"sites": [
        {"name": "edge", "kind": "edge", "tolerations": tainted},
        {"name": "cloud", "kind": "cloud"},
    ]});
    let config = Config::read(&edge).unwrap();
    let mut index = Index::new(&config);
    index.apply_namespace("shop", true);
    index.apply_node(node::from_json(&node.to_string()).unwrap(), scene.now);
    (scene.index, scene.config) = (index, config);
    scene.see(&unschedulable(pod("p", 300)));
    scene.wait(30);
    assert_eq!(scene.found(), is(&[("p", "edge")]));
}

#[test]
fn no_place_is_found_twice() {
    let mut scene = Scene::new();
    scene.index.apply_node(
        node::from_json(&node("c", "cloud", "1").to_string()).unwrap(),
        scene.now,
    );
    for uid in ["a", "b", "c", "d"] {
        scene.see(&unschedulable(pod(uid, 400)));
    }
    scene.see(&unschedulable(pod("small", 150)));
    scene.wait(30);
    assert_eq!(scene.found(), is(&[("a", "cloud"), ("b", "cloud"), ("small", "cloud")]));
}

#[test]
fn only_pods_that_are_replaced_say_so() {
    let mut scene = Scene::new();
    let owned = |uid: &str, api_version: &str, kind: &str| {
        unschedulable(with(
            pod(uid, 100),
            "/metadata/ownerReferences",
            json!([owner(api_version, kind)]),
        ))
    };
    scene.see(&owned("rs", "apps/v1", "ReplicaSet"));
    scene.see(&owned("sts", "apps/v1", "StatefulSet"));
    scene.see(&owned("job", "batch/v1", "Job"));
    scene.see(&owned("like", "acme.dev/v1", "ReplicaSet"));
    let bare = with(pod("bare", 100), "/metadata/ownerReferences", json!([]));
    scene.see(&unschedulable(bare.clone()));
    let mut loose = owner("apps/v1", "ReplicaSet");
    loose["controller"] = json!(false);
    scene.see(&unschedulable(with(bare, "/metadata/uid", "loose".into())));
    scene.wait(30);
    let (survey, _) = scene.survey();
    let mut replaced: Vec<_> = survey
        .suspects
        .iter()
        .filter(|suspect| suspect.pod.is_replaced)
        .map(|suspect| (&*suspect.pod.name, suspect.siblings))
        .collect();
    replaced.sort_unstable();
    // The filler is of the same owner.
    assert_eq!(replaced, [("rs", 5), ("sts", 5)]);
    assert_eq!(survey.suspects.len(), 6);
}

#[test]
fn bound_without_a_decision_counts_once_others_were_decided() {
    let mut scene = Scene::new();
    let at = |pod: Value, second: u32| {
        with(
            pod,
            "/metadata/creationTimestamp",
            format!("2026-01-01T00:00:{second:02}Z").into(),
        )
    };
    scene.see(&bound(at(pod("before", 1), 0), "e"));
    scene.see(&bound(at(pod("missed", 1), 30), "e"));
    scene.see(&at(pod("waits", 1), 30));
    scene.see(&bound(
        with(
            at(pod("out", 1), 30),
            "/metadata/labels",
            json!({"scheduling.example.io/managed": "false"}),
        ),
        "e",
    ));
    scene.see(&bound(
        with(
            at(pod("daemon", 1), 30),
            "/metadata/ownerReferences",
            json!([owner("apps/v1", "DaemonSet")]),
        ),
        "e",
    ));
    scene.see(&bound(
        with(at(pod("plain", 1), 30), "/metadata/annotations", json!({})),
        "e",
    ));
    scene.see(&with(
        bound(at(pod("over", 1), 30), "e"),
        "/status/phase",
        "Succeeded".into(),
    ));
    scene.see(&with(
        bound(at(pod("let go", 1), 30), "e"),
        "/metadata/annotations/scheduling.example.io~1reason",
        "held_no_capacity".into(),
    ));
    let other = with(
        bound(at(pod("other", 1), 30), "e"),
        "/metadata/namespace",
        "till".into(),
    );
    scene.see(&other);
    assert_eq!(scene.survey().0.bound, 1);
    // There it is not known that the webhook was ever called, until a pod says so.
    scene.index.apply_namespace("till", true);
    assert_eq!(scene.survey().0.bound, 1);
    let decided = with(
        bound(at(placed(pod("decided", 1), "edge", "edge_feasible_slo_met"), 20), "e"),
        "/metadata/namespace",
        "till".into(),
    );
    scene.see(&decided);
    assert_eq!(scene.survey().0.bound, 2);
    // What is known stays known,
    scene.gone("decided");
    assert_eq!(scene.survey().0.bound, 2);
    scene.gone("missed");
    // but not of a namespace that was opted out meanwhile.
    scene.backstop.opted_out("till");
    assert_eq!(scene.survey().0.bound, 0);
    scene.see(&decided);
    assert_eq!(scene.survey().0.bound, 1);
    scene.see(&with(other, "/status/phase", "Failed".into()));
    assert_eq!(scene.survey().0.bound, 0);
}

#[test]
fn a_look_takes_so_many_decisions_and_the_next_one_goes_on() {
    let mut scene = Scene::new();
    let name = |i: usize| format!("p{i:03}");
    // Each asks for another amount, so that no two are alike; none fits the cloud but the last.
    let count = 2 * BUDGET + 50;
    for i in 0..count {
        let millicores = if i + 1 == count { 500 } else { 200_000 + i };
        scene.see(&unschedulable(pod(&name(i), u32::try_from(millicores).unwrap())));
    }
    scene.wait(30);
    let (mut survey, snapshot) = scene.survey();
    let now = Now {
        moment: scene.now,
        wall: jiff::Timestamp::UNIX_EPOCH,
    };
    let look =
        |survey: &Survey, after: Option<&Mark>| survey.look(after, &snapshot, &Ledger::default(), &scene.config, now);
    let first = look(&survey, None);
    assert_eq!((first.findings.len(), first.seen), (0, 0..BUDGET));
    // Who comes and goes meanwhile is in nobody's way, and neither is the one at which it stopped.
    survey.suspects.drain(BUDGET - 10..BUDGET);
    let second = look(&survey, first.stopped_at.as_ref());
    assert_eq!((second.findings.len(), second.seen), (0, BUDGET - 10..2 * BUDGET - 10));
    let third = look(&survey, second.stopped_at.as_ref());
    assert_eq!((third.findings.len(), third.seen), (1, 2 * BUDGET - 10..count - 10));
    assert_eq!(third.stopped_at, None);
    // All that were left are gone: it begins anew.
    survey.suspects.truncate(BUDGET);
    assert_eq!(look(&survey, second.stopped_at.as_ref()).seen, 0..BUDGET);

    // What is alike is decided once.
    let like = survey.suspects[0].clone();
    survey.suspects = vec![like; 2 * BUDGET];
    let all = look(&survey, None);
    assert_eq!((all.seen, all.stopped_at), (0..2 * BUDGET, None));
}

#[test]
fn surveys_are_made_when_there_is_something_to_see_and_not_too_often() {
    let mut scene = Scene::new();
    let due_in = |scene: &Scene| scene.backstop.next_change().map(|at| (at.0 - scene.now.0) / SECOND);
    let suspects = |scene: &mut Scene| {
        let survey = scene.backstop.survey(&scene.index, scene.now);
        survey.map(|survey| survey.suspects.len())
    };
    scene.wait(100);
    scene.survey();
    assert_eq!(due_in(&scene), None);
    scene.see(&unschedulable(pod("p", 500)));
    assert_eq!(due_in(&scene), Some(5));
    assert_eq!(suspects(&mut scene), None);
    scene.wait(5);
    assert_eq!(suspects(&mut scene), Some(0));
    assert_eq!(due_in(&scene), Some(25));
    scene.wait(25);
    assert_eq!(suspects(&mut scene), Some(1));
    assert_eq!(due_in(&scene), Some(5));
    scene.gone("p");
    scene.wait(5);
    assert_eq!(suspects(&mut scene), Some(0));
    assert_eq!(due_in(&scene), None);
    scene.see(&unschedulable(pod("q", 500)));
    scene.backstop.retain(|_| false);
    scene.wait(40);
    assert_eq!(suspects(&mut scene), Some(0));
}
