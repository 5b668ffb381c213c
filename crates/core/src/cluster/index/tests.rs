mod events;

use serde_json::{Value, json};

use super::*;
use crate::cluster::telemetry::{Measurement, Telemetry};
use crate::config::{Input, Prometheus, Query};
use crate::keys::Keys;
use crate::model::slo::Class;
use crate::units::{Micros, Millicores};
use crate::wire::node;
use crate::wire::pod::Pod;

const SECOND: i64 = 1_000_000;

/// An index of an edge and a cloud, fed with JSON.
struct Scene {
    index: Index,
    now: Moment,
}

impl Scene {
    fn new() -> Self {
        let mut index = Index::new(&Config::default());
        index.apply_namespace("shop", true);
        Self {
            index,
            now: Moment(1_000 * SECOND),
        }
    }

    fn wait(&mut self, seconds: i64) {
        self.now = Moment(self.now.0 + seconds * SECOND);
    }

    fn node(&mut self, node: &Value) {
        self.index
            .apply_node(node::from_json(&node.to_string()).unwrap(), self.now);
    }

    fn pod(&mut self, pod: &Value) {
        self.pod_with(pod, None);
    }

    fn pod_with(&mut self, pod: &Value, inherited: Option<NodeId>) {
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let record = pod.record(&text, &Keys::new("example.io")).unwrap().unwrap();
        self.index.apply_pod(&record, inherited, self.now);
    }

    fn publish(&mut self) -> Snapshot {
        self.index.publish(self.now)
    }

    /// Millicores taken of each edge node.
    fn used(&mut self) -> Vec<i64> {
        self.publish().sites[0].nodes().map(|node| node.used.cpu.0).collect()
    }

    fn waiting(&mut self) -> u64 {
        self.publish().sites[0].queues.iter().map(|group| group.waiting).sum()
    }

    fn closed(&mut self) -> Vec<String> {
        let snapshot = self.publish();
        let closed = snapshot.sites[0].closed.iter();
        closed
            .map(|(namespace, uid, pods)| format!("{namespace}/{uid}: {pods}"))
            .collect()
    }
}

fn edge_node(name: &str, millicores: u32) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"node.role/edge": "true"}},
        "status": {
            "allocatable": {"cpu": format!("{millicores}m"), "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

/// A pod of class batch that carries the edge's selector and asks for so much.
fn pod(uid: &str, millicores: u32) -> Value {
    json!({
        "metadata": {
            "uid": uid, "namespace": "shop", "name": uid, "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"},
            "ownerReferences": [{"kind": "ReplicaSet", "uid": "rs", "controller": true}],
        },
        "spec": {
            "nodeSelector": {"node.role/edge": "true"},
            "containers": [{"name": "main", "resources": {"requests": {"cpu": format!("{millicores}m")}}}],
        },
        "status": {"phase": "Pending"},
    })
}

fn with(mut document: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[key.replace("~1", "/")] = value;
    document
}

fn bound(pod: Value, node: &str) -> Value {
    with(pod, "/spec/nodeName", node.into())
}

fn unschedulable(pod: Value, message: &str) -> Value {
    let word = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]);
    with(pod, "/status/conditions", word)
}

#[test]
fn a_bound_pod_charges_its_node_until_it_ends() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 4000));
    scene.node(&edge_node("b", 4000));
    scene.pod(&bound(pod("1", 500), "b"));
    scene.pod(&bound(pod("2", 700), "c"));
    assert_eq!(scene.used(), [0, 500]);
    // The node of a pod may be seen after the pod.
    scene.node(&edge_node("c", 1000));
    assert_eq!(scene.used(), [0, 500, 700]);
    // Terminating pods count until they are gone.
    scene.pod(&with(
        bound(pod("1", 500), "b"),
        "/metadata/deletionTimestamp",
        "2026-01-01T00:00:00Z".into(),
    ));
    assert_eq!(scene.used(), [0, 500, 700]);
    scene.pod(&with(bound(pod("1", 500), "b"), "/status/phase", "Succeeded".into()));
    scene.index.delete_pod("2");
    assert_eq!(scene.used(), [0, 0, 0]);
}

#[test]
fn a_resize_in_place_charges_the_most_of_it() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 4000));
    let resized = |stated: u32, allocated: &str, actual: &str, reason: &str| {
        let status = json!([{
            "name": "main",
            "allocatedResources": {"cpu": allocated},
            "resources": {"requests": {"cpu": actual}},
        }]);
        let pod = with(bound(pod("1", stated), "a"), "/status/containerStatuses", status);
        with(
            pod,
            "/status/conditions",
            json!([{"type": "PodResizePending", "status": "True", "reason": reason}]),
        )
    };
    for (pod, used) in [
        (resized(500, "500m", "500m", ""), 500),
        (resized(900, "500m", "500m", "Deferred"), 900),
        (resized(200, "500m", "400m", "Deferred"), 500),
        (resized(200, "200m", "400m", ""), 400),
        // The node can never give it: it stays with what it has.
        (resized(9000, "500m", "500m", "Infeasible"), 500),
    ] {
        scene.pod(&pod);
        assert_eq!(scene.used(), [used]);
    }
}

#[test]
fn a_pod_on_its_way_charges_the_node_that_the_scheduler_would_take() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 4000));
    scene.node(&edge_node("b", 4000));
    scene.pod(&bound(pod("1", 1000), "a"));
    scene.pod(&pod("2", 500));
    assert_eq!(scene.used(), [1000, 500]);
    // Chosen once: it stays where it is although `a` is emptier now.
    scene.pod(&bound(pod("3", 2000), "b"));
    scene.index.delete_pod("1");
    assert_eq!(scene.used(), [0, 2500]);
    // It no longer fits there.
    scene.pod(&bound(pod("4", 1800), "b"));
    assert_eq!(scene.used(), [500, 3800]);
    // It was bound to another one after all.
    scene.pod(&bound(pod("2", 500), "b"));
    assert_eq!(scene.used(), [0, 4300]);
    // Gates and ends charge nothing; a nomination charges its node, fit or not.
    scene.pod(&with(pod("5", 500), "/spec/schedulingGates", json!([{"name": "x"}])));
    scene.pod(&with(pod("6", 500), "/status/phase", "Failed".into()));
    assert_eq!(scene.used(), [0, 4300]);
    scene.pod(&with(pod("7", 500), "/status/nominatedNodeName", "b".into()));
    assert_eq!(scene.used(), [0, 4800]);
}

#[test]
fn a_pod_that_leaves_before_it_has_a_node_is_in_nobodys_way() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 1000));
    let leaving = with(
        pod("1", 500),
        "/metadata/deletionTimestamp",
        "2026-01-01T00:00:00Z".into(),
    );
    scene.pod(&unschedulable(leaving, "volumes"));
    scene.wait(60);
    assert_eq!((scene.used(), scene.waiting(), scene.closed().len()), (vec![0], 0, 0));
    // One that is over makes no node known.
    scene.pod(&with(bound(pod("2", 500), "gone"), "/status/phase", "Succeeded".into()));
    assert!(!scene.index.names.contains_key("gone"));
}

#[test]
fn the_node_of_a_reservation_is_inherited() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 4000));
    scene.node(&edge_node("b", 4000));
    let b = scene.publish().sites[0].nodes[1].id;
    scene.pod_with(&pod("1", 500), Some(b));
    assert_eq!(scene.used(), [0, 500]);
}

#[test]
fn a_pod_that_fits_nowhere_waits_for_room() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 1000));
    scene.pod(&bound(pod("1", 800), "a"));
    scene.pod(&pod("2", 500));
    // kube-scheduler has not said so yet.
    assert_eq!((scene.used(), scene.waiting()), (vec![800], 0));
    scene.pod(&unschedulable(pod("2", 500), "0/1 nodes"));
    assert_eq!((scene.used(), scene.waiting()), (vec![800], 1));
    scene.pod(&unschedulable(pod("3", 600), "0/1 nodes"));
    assert_eq!(scene.waiting(), 2);
    // Room for one of the two: it begins to fit, and is on its way for a while.
    scene.index.delete_pod("1");
    assert_eq!((scene.used(), scene.waiting()), (vec![500], 1));
    assert!(scene.closed().is_empty());
    // Neither is taken: something else is in their way. The second one has had its chance beside the first.
    assert_eq!(scene.index.next_change(), Some(scene.now.after(Micros::from_secs(15))));
    scene.wait(15);
    assert_eq!(
        (scene.used(), scene.waiting(), scene.closed()),
        (vec![0], 0, vec!["shop/rs: 2".into()])
    );
    assert_eq!(scene.index.next_change(), None);
    scene.pod(&unschedulable(pod("4", 1200), "0/1 nodes"));
    assert_eq!(scene.waiting(), 1);
    // A namespace that leaves takes its pods out of the queues.
    scene.index.apply_namespace("shop", false);
    assert_eq!(scene.waiting(), 0);
}

#[test]
fn a_pod_that_fits_and_is_not_taken_closes_its_site() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 1000));
    scene.pod(&pod("1", 500));
    assert_eq!((scene.used(), scene.closed().len()), (vec![500], 0));
    scene.wait(1);
    scene.pod(&unschedulable(pod("1", 500), "anti-affinity"));
    assert_eq!((scene.used(), scene.closed()), (vec![0], vec!["shop/rs: 1".into()]));
    assert_eq!(scene.waiting(), 0);
    // A changed node is a chance, until kube-scheduler says something new.
    scene.wait(60);
    scene.node(&with(edge_node("a", 1000), "/metadata/labels/zone", "x".into()));
    assert_eq!((scene.used(), scene.closed().len()), (vec![500], 0));
    scene.wait(1);
    scene.pod(&unschedulable(pod("1", 500), "other words"));
    assert_eq!((scene.used(), scene.closed().len()), (vec![0], 1));
    // The same words again say nothing new.
    scene.wait(1);
    scene.node(&edge_node("a", 1000));
    scene.pod(&unschedulable(pod("1", 500), "other words"));
    assert_eq!((scene.used(), scene.closed().len()), (vec![500], 0));
    scene.wait(20);
    assert_eq!((scene.used(), scene.closed().len()), (vec![0], 1));
    scene.pod(&bound(pod("1", 500), "a"));
    assert_eq!((scene.used(), scene.closed().len()), (vec![500], 0));
}

#[test]
fn what_was_before_we_came_is_no_verdict() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 1000));
    scene.pod(&unschedulable(pod("1", 500), "long ago"));
    assert_eq!((scene.used(), scene.closed().len()), (vec![500], 0));
    scene.wait(15);
    assert_eq!((scene.used(), scene.closed().len()), (vec![0], 1));
}

#[test]
fn a_node_is_of_one_site() {
    let mut scene = Scene::new();
    let names = |snapshot: &Snapshot| {
        let of = |at: usize| {
            snapshot.sites[at]
                .nodes()
                .map(|node| node.name.to_string())
                .collect::<Vec<_>>()
        };
        (of(0), of(1))
    };
    scene.node(&edge_node("b", 1));
    scene.node(&edge_node("a", 1));
    let both = with(edge_node("c", 1), "/metadata/labels/node.role~1cloud", "true".into());
    scene.node(&both);
    let of = |edge: &[&str], cloud: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        (names(edge), names(cloud))
    };
    assert_eq!(names(&scene.publish()), of(&["a", "b"], &["c"]));
    let fault = scene.index.faults().next().unwrap().clone();
    assert_eq!(
        (&*fault.node, &fault.sites[..]),
        ("c", &["edge".to_owned(), "cloud".to_owned()][..])
    );
    scene.node(&edge_node("c", 1));
    assert_eq!(names(&scene.publish()), of(&["a", "b", "c"], &[]));
    assert_eq!(scene.index.faults().count(), 0);
    scene.index.delete_node("b");
    assert_eq!(names(&scene.publish()), of(&["a", "c"], &[]));
}

#[test]
fn a_new_list_replaces_the_old() {
    let mut scene = Scene::new();
    assert!(!scene.index.is_listed(Kind::Pods));
    for kind in Kind::ALL {
        scene.index.list_began(kind);
    }
    scene.node(&edge_node("a", 1000));
    scene.node(&edge_node("b", 1000));
    scene.pod(&bound(pod("1", 100), "a"));
    scene.pod(&bound(pod("2", 100), "a"));
    for kind in Kind::ALL {
        scene.index.list_ended(kind);
    }
    assert!(Kind::ALL.iter().all(|kind| scene.index.is_listed(*kind)));
    assert_eq!(scene.used(), [200, 0]);
    scene.index.list_began(Kind::Pods);
    scene.pod(&bound(pod("2", 100), "a"));
    assert_eq!(scene.used(), [200, 0], "nothing is gone before the list is complete");
    scene.index.list_ended(Kind::Pods);
    assert_eq!(scene.used(), [100, 0]);
    scene.index.list_began(Kind::Nodes);
    scene.node(&edge_node("b", 1000));
    scene.index.list_ended(Kind::Nodes);
    assert_eq!(scene.used(), [0]);
}

#[test]
fn the_oldest_source_tells_the_age() {
    let mut scene = Scene::new();
    scene.index.heard(Kind::Nodes, Moment(5));
    assert_eq!(scene.publish().kubernetes_as_of, Moment(i64::MIN));
    scene.index.heard(Kind::Pods, Moment(3));
    scene.index.heard(Kind::Pods, Moment(2));
    let snapshot = scene.publish();
    assert_eq!(snapshot.kubernetes_as_of, Moment(3));
    assert_eq!(snapshot.revision, 2);
}

/// Names of the nodes that gained and that lost room since this was last asked, and whether something else is new.
fn news(scene: &mut Scene) -> (String, String, bool) {
    scene.publish();
    let News { gained, lost, other } = scene.index.take_news();
    let names = |ids: BTreeSet<NodeId>| {
        let names = ids.into_iter().filter_map(|id| scene.index.node_name(id));
        names.collect::<Vec<_>>().join(" ")
    };
    (names(gained), names(lost), other)
}

fn is(gained: &str, lost: &str) -> (String, String, bool) {
    (gained.to_owned(), lost.to_owned(), false)
}

#[test]
fn only_room_is_news_for_those_that_wait() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 4000));
    scene.node(&edge_node("b", 4000));
    assert_eq!(
        news(&mut scene),
        ("a b".to_owned(), String::new(), true),
        "and a namespace"
    );
    scene.node(&edge_node("a", 4000));
    assert_eq!(news(&mut scene), is("", ""));
    scene.pod(&bound(pod("1", 500), "a"));
    assert_eq!(news(&mut scene), is("", "a"));
    let ready = json!([{"type": "Ready", "status": "True"}]);
    scene.pod(&with(bound(pod("1", 500), "a"), "/status/conditions", ready));
    assert_eq!(news(&mut scene), is("", ""), "a word about its status");
    // Of what comes and goes between two plans, only what is left of it.
    scene.pod(&bound(pod("2", 500), "a"));
    scene.index.delete_pod("2");
    assert_eq!(news(&mut scene), is("", ""));
    scene.pod(&bound(pod("2", 500), "a"));
    scene.index.delete_pod("1");
    assert_eq!(news(&mut scene), is("", ""));
    let on_its_way = pod("3", 500);
    scene.pod(&on_its_way);
    assert_eq!(news(&mut scene), is("", "b"));
    // Those on their way crowd others out until they have arrived.
    scene.pod(&bound(on_its_way, "b"));
    assert_eq!(news(&mut scene), is("b", ""));
    let deleted = |at: &str| with(bound(pod("2", 500), "a"), "/metadata/deletionTimestamp", at.into());
    scene.pod(&deleted("2026-01-01T00:00:30Z"));
    assert_eq!(news(&mut scene), is("a", ""), "it leaves");
    scene.pod(&deleted("2026-01-01T00:00:30Z"));
    assert_eq!(news(&mut scene), is("", ""));
    scene.index.delete_pod("2");
    assert_eq!(news(&mut scene), is("a", ""));
    scene.node(&edge_node("b", 3000));
    assert_eq!(news(&mut scene), is("b", ""), "a node that changed");
    // Of no site.
    scene.node(&with(edge_node("c", 1000), "/metadata/labels", json!({})));
    news(&mut scene);
    scene.pod(&bound(pod("4", 500), "c"));
    scene.index.delete_pod("4");
    assert_eq!(news(&mut scene), is("", ""));
}

#[test]
fn a_measurement_is_news_when_it_says_something_else_or_says_it_again() {
    let mut scene = Scene::new();
    let virtual_node = json!({"node.role/cloud": "true"});
    scene.node(&with(edge_node("v", 4000), "/metadata/labels", virtual_node));
    let link = |scene: &mut Scene, rtt: u64| {
        let link = Link {
            state: crate::model::link::LinkState::Healthy,
            rtt: Some(Micros::from_millis(rtt)),
            loss: None,
            as_of: scene.now,
        };
        scene.index.set_link("cloud", Some(link));
        news(scene).0
    };
    link(&mut scene, 20);
    scene.wait(5);
    assert_eq!(link(&mut scene, 20), "");
    assert_eq!(link(&mut scene, 21), "v");
    scene.wait(61);
    assert_eq!(link(&mut scene, 21), "v", "it was too old");
    scene.index.set_link("cloud", None);
    assert_eq!(news(&mut scene).0, "v");
}

#[test]
fn snapshots_share_what_did_not_change() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 1000));
    scene.node(&edge_node("b", 1000));
    let before = scene.publish();
    scene.pod(&bound(pod("1", 100), "a"));
    let after = scene.publish();
    let same = |at: usize| Arc::ptr_eq(&before.sites[0].nodes[at], &after.sites[0].nodes[at]);
    assert!(!same(0) && same(1));
    assert_eq!(before.sites[0].nodes[0].pods, 0);
    assert!(Arc::ptr_eq(&after.sites[0].nodes, &scene.publish().sites[0].nodes));
}

#[test]
fn measured_room_shrinks_by_what_began_since_the_sample() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 4000));
    scene.node(&edge_node("b", 4000));
    let sample = |scene: &mut Scene, seconds_ago: i64| {
        let as_of = Moment(scene.now.0 - seconds_ago * SECOND);
        let mut telemetry = Telemetry::default();
        let free = Measurement::EdgeFreeCpu(Millicores(3000));
        telemetry.record(free, as_of, as_of.after(Micros::from_secs(60)), &Config::default());
        scene.index.set_telemetry(telemetry);
    };
    let free = |scene: &mut Scene| scene.publish().sites[0].free.cpu.map(|cpu| cpu.0);
    scene.index.configure(&Config {
        prometheus: Some(Prometheus {
            url: "http://localhost:9090".into(),
            required: false,
            token_file: None,
            ca_file: None,
            queries: vec![Query {
                input: Input::EdgeFreeCpu,
                promql: "free".into(),
                period: Micros::from_secs(15),
                timeout: Micros::from_secs(5),
                staleness: Micros::from_secs(60),
            }],
        }),
        ..Config::default()
    });
    scene.pod(&bound(pod("before", 500), "a"));
    scene.index.list_ended(Kind::Pods);
    scene.wait(5);
    sample(&mut scene, 8);
    assert_eq!(
        free(&mut scene),
        Some(3000),
        "what the first list names was there before"
    );
    sample(&mut scene, 1);
    assert_eq!(free(&mut scene), Some(3000));
    scene.pod(&pod("since", 700));
    assert_eq!(free(&mut scene), Some(2300));
    // It is bound: that is no second pod. Another one is gone again.
    scene.wait(1);
    scene.pod(&bound(pod("since", 700), "a"));
    scene.pod(&bound(pod("short", 100), "a"));
    assert_eq!(free(&mut scene), Some(2200));
    scene.index.delete_pod("short");
    assert_eq!(free(&mut scene), Some(2300));
    // A newer sample knows of it.
    scene.wait(1);
    sample(&mut scene, 0);
    assert_eq!(free(&mut scene), Some(3000));
    scene.wait(61);
    assert_eq!(free(&mut scene), None, "the sample is stale");
    // What begins while there is none is not in one that is made before and told after.
    scene.pod(&pod("unmeasured", 400));
    assert_eq!(free(&mut scene), None);
    scene.wait(10);
    sample(&mut scene, 20);
    assert_eq!(free(&mut scene), Some(2600));
    scene.wait(40);
    assert_eq!(free(&mut scene), Some(2600));
}

#[test]
fn finished_jobs_teach_how_long_work_takes() {
    let mut scene = Scene::new();
    scene.node(&edge_node("a", 4000));
    let done = |uid: &str| {
        let owners = json!([{"kind": "Job", "uid": "nightly", "controller": true}]);
        let pod = with(bound(pod(uid, 100), "a"), "/metadata/ownerReferences", owners);
        let run = json!([{"name": "main", "state": {"terminated": {
            "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:30Z",
        }}}]);
        with(
            with(pod, "/status/containerStatuses", run),
            "/status/phase",
            "Succeeded".into(),
        )
    };
    for uid in ["1", "2", "3", "4"] {
        scene.pod(&done(uid));
        scene.pod(&done(uid));
    }
    assert_eq!(
        scene.publish().sites[0].observed[Class::Batch],
        None,
        "each counts once"
    );
    scene.pod(&done("5"));
    let snapshot = scene.publish();
    let half_a_minute = Some(Micros::from_secs(30));
    assert_eq!(snapshot.sites[0].observed[Class::Batch], half_a_minute);
    assert_eq!(
        snapshot.sites[0].observed_of.get("shop", "nightly").copied(),
        half_a_minute
    );
    assert_eq!(snapshot.sites[1].observed[Class::Batch], None);
}
