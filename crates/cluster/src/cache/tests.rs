mod events;
mod full_clouds;
mod long_constraints;
mod unbound;

use serde_json::{Value, json};

use super::*;
use crate::telemetry::{Measurement, Telemetry, Work};
use edgeward_decision::config::{DegradedLinks, Input, Prometheus, ScorerMode, SitePolicy};
use edgeward_decision::keys::Keys;
use edgeward_decision::model::link::{Bandwidth, Link, LinkState};
use edgeward_decision::model::priority_caps::PriorityCaps;
use edgeward_decision::model::report::{Report, Source, Total};
use edgeward_decision::model::slo::Class;
use edgeward_decision::model::snapshot::{JobTimes, ProcessingTime};
use edgeward_decision::placement::decide::decide;
use edgeward_decision::placement::room::Room;
use edgeward_decision::pod::Pod;
use edgeward_decision::testkit;
use edgeward_decision::testkit::{NOW, with};
use edgeward_kube::node;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Bytes, Micros, Millicores, Permille};

const SECOND: i64 = 1_000_000;

/// A cache of an edge and a cloud, fed with JSON.
struct Fixture {
    cache: Cache,
    now: Moment,
    /// The publication that the next delta is compared with.
    before: Snapshot,
}

impl Fixture {
    fn new() -> Self {
        let mut cache = Cache::new(Arc::default());
        cache.apply_namespace("shop", true);
        Self {
            cache,
            now: Moment(1_000 * SECOND),
            before: Snapshot::default(),
        }
    }

    fn wait(&mut self, seconds: i64) {
        self.now = Moment(self.now.0 + seconds * SECOND);
    }

    fn node(&mut self, node: &Value) {
        self.cache.apply_node(node::from_json(&node.to_string()).unwrap());
    }

    fn pod(&mut self, pod: &Value) {
        self.pod_with(pod, None);
    }

    fn pod_with(&mut self, pod: &Value, reserved_node: Option<NodeId>) {
        let record = crate::testkit::record(pod, &Keys::new("example.io"));
        self.cache.apply_pod(&record, reserved_node, NOW.at(self.now));
    }

    fn publish(&mut self) -> Snapshot {
        self.cache.publish(self.now)
    }

    /// Publishes, and returns what changed since the last call.
    fn delta(&mut self) -> RoomDelta {
        let snapshot = self.publish();
        let delta = RoomDelta::between(&self.before, &snapshot, self.cache.config(), self.now);
        self.before = snapshot;
        delta
    }

    fn configure(&mut self, config: Config) {
        self.cache.configure(Arc::new(config));
    }

    /// Advances the clock and publishes whenever a publication is due.
    fn pass(&mut self, seconds: i64) {
        let end = self.now.after(Micros::from_secs(seconds.unsigned_abs()));
        while let Some(due) = self.cache.next_change().filter(|due| *due <= end) {
            self.now = due;
            self.publish();
            assert_ne!(self.cache.next_change(), Some(due), "nothing was done");
        }
        self.now = end;
    }

    /// Used millicores of each edge node.
    fn used(&mut self) -> Vec<i64> {
        self.publish().sites[0]
            .nodes()
            .map(|node| node.charges.used.cpu.0)
            .collect()
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

/// A pod of class batch with the edge's selector and this CPU request.
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

fn bound(pod: Value, node: &str) -> Value {
    with(pod, "/spec/nodeName", node.into())
}

fn terminating(pod: Value) -> Value {
    with(pod, "/metadata/deletionTimestamp", "2026-01-01T00:00:00Z".into())
}

fn unschedulable(pod: Value, message: &str) -> Value {
    let conditions =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]);
    with(pod, "/status/conditions", conditions)
}

#[test]
fn node_is_young_until_its_time_is_over() {
    let mut fixture = Fixture::new();
    let until = fixture.now.after(Micros::from_secs(20));
    let mut young = node::from_json(&edge_node("a", 4000).to_string()).unwrap();
    young.state.young_until = Some(until);
    fixture.cache.apply_node(young);
    let is_young = |snapshot: Snapshot| snapshot.sites[0].nodes[0].state.young_until.is_some();
    assert!(is_young(fixture.publish()));
    assert_eq!(fixture.cache.next_change(), Some(until));
    fixture.delta();
    fixture.wait(20);
    assert!(fixture.delta().sites, "gated pods are decided again");
    assert!(!is_young(fixture.publish()));
    assert_eq!(fixture.cache.next_change(), None);
}

#[test]
fn bound_pod_charges_its_node_until_it_ends() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    fixture.node(&edge_node("b", 4000));
    fixture.pod(&bound(pod("1", 500), "b"));
    fixture.pod(&bound(pod("2", 700), "c"));
    assert_eq!(fixture.used(), [0, 500]);
    // A pod may be seen before its node.
    fixture.node(&edge_node("c", 1000));
    assert_eq!(fixture.used(), [0, 500, 700]);
    // Terminating pods count until they are gone.
    fixture.pod(&terminating(bound(pod("1", 500), "b")));
    assert_eq!(fixture.used(), [0, 500, 700]);
    fixture.pod(&with(bound(pod("1", 500), "b"), "/status/phase", "Succeeded".into()));
    fixture.cache.delete_pod("2");
    assert_eq!(fixture.used(), [0, 0, 0]);
}

#[test]
fn resized_pod_charges_its_largest_feasible_request() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
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
        // The node can never grant the resize, so the pod keeps its current amount.
        (resized(9000, "500m", "500m", "Infeasible"), 500),
    ] {
        fixture.pod(&pod);
        assert_eq!(fixture.used(), [used]);
    }
}

#[test]
fn assumed_pod_charges_node_that_scheduler_would_choose() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    fixture.node(&edge_node("b", 4000));
    fixture.pod(&bound(pod("1", 1000), "a"));
    fixture.pod(&pod("2", 500));
    assert_eq!(fixture.used(), [1000, 500]);
    // The node was chosen once. The pod stays there, although `a` now has more free.
    fixture.pod(&bound(pod("3", 2000), "b"));
    fixture.cache.delete_pod("1");
    assert_eq!(fixture.used(), [0, 2500]);
    // The pod no longer fits on that node.
    fixture.pod(&bound(pod("4", 1800), "b"));
    assert_eq!(fixture.used(), [500, 3800]);
    // kube-scheduler bound it to the other node after all.
    fixture.pod(&bound(pod("2", 500), "b"));
    assert_eq!(fixture.used(), [0, 4300]);
    // Gated and finished pods charge nothing. A nominated pod charges its node, even if it does not fit.
    fixture.pod(&with(pod("5", 500), "/spec/schedulingGates", json!([{"name": "x"}])));
    fixture.pod(&with(pod("6", 500), "/status/phase", "Failed".into()));
    assert_eq!(fixture.used(), [0, 4300]);
    fixture.pod(&with(pod("7", 500), "/status/nominatedNodeName", "b".into()));
    assert_eq!(fixture.used(), [0, 4800]);
}

#[test]
fn terminating_pod_without_node_charges_and_closes_nothing() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 1000));
    let leaving = terminating(pod("1", 500));
    fixture.pod(&unschedulable(leaving, "volumes"));
    fixture.wait(60);
    assert_eq!(
        (fixture.used(), fixture.waiting(), fixture.closed().len()),
        (vec![0], 0, 0)
    );
    // A finished pod does not add its node to the known names.
    fixture.pod(&with(bound(pod("2", 500), "gone"), "/status/phase", "Succeeded".into()));
    assert!(!fixture.cache.nodes.ids.contains_key("gone"));
}

#[test]
fn unschedulable_pod_waits_while_large_enough_nodes_are_full() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 1000));
    fixture.pod(&bound(pod("1", 800), "a"));
    fixture.pod(&pod("2", 500));
    // kube-scheduler has not reported the pod as unschedulable yet.
    assert_eq!((fixture.used(), fixture.waiting()), (vec![800], 0));
    fixture.pod(&unschedulable(pod("2", 500), "0/1 nodes"));
    assert_eq!((fixture.used(), fixture.waiting()), (vec![800], 1));
    fixture.pod(&unschedulable(pod("3", 600), "0/1 nodes"));
    assert_eq!(fixture.waiting(), 2);
    // There is room for both, but kube-scheduler refused them. They charge nothing, and their site is closed to their
    // controller.
    fixture.cache.delete_pod("1");
    assert_eq!(
        (fixture.used(), fixture.waiting(), fixture.closed()),
        (vec![0], 0, vec!["shop/rs: 2".into()])
    );
    assert_eq!(fixture.cache.next_change(), None);
    // A pod that fits no node at all delays no other pod, until a large enough node appears.
    fixture.pod(&unschedulable(pod("4", 1200), "0/1 nodes"));
    assert_eq!((fixture.used(), fixture.waiting()), (vec![0], 0));
    fixture.pod(&bound(pod("5", 1600), "b"));
    fixture.node(&edge_node("b", 2000));
    assert_eq!(fixture.waiting(), 1);
    fixture.node(&with(edge_node("b", 2000), "/spec", json!({"unschedulable": true})));
    assert_eq!(fixture.waiting(), 1, "a cordon passes");
    fixture.cache.delete_node("b");
    assert_eq!(fixture.waiting(), 0);
    fixture.node(&edge_node("b", 2000));
    assert_eq!(fixture.waiting(), 1);
    let slo_priorities = |fixture: &mut Fixture| -> BTreeSet<u8> {
        let queues = &fixture.publish().sites[0].queues;
        queues.iter().map(|group| group.slo_priority).collect()
    };
    assert_eq!(slo_priorities(&mut fixture), BTreeSet::from([5]));
    let mut config = Config {
        priority_caps: PriorityCaps([("guests".into(), 9), ("*".into(), 3)].into()),
        ..Config::default()
    };
    fixture.configure(config.clone());
    assert_eq!(slo_priorities(&mut fixture), BTreeSet::from([3]), "it is not listed");
    config.priority_caps = PriorityCaps([("shop".into(), 4)].into());
    fixture.configure(config.clone());
    assert_eq!(slo_priorities(&mut fixture), BTreeSet::from([4]));
    // When a namespace opts out, its pods leave the queues.
    fixture.cache.apply_namespace("shop", false);
    assert_eq!(fixture.waiting(), 0);
}

#[test]
fn scheduler_error_keeps_pod_charged_and_site_open() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 1000));
    fixture.pod(&pod("1", 500));
    assert_eq!(fixture.used(), [500]);
    fixture.wait(1);
    fixture.pod(&with(
        unschedulable(pod("1", 500), "a plugin failed"),
        "/status/conditions/0/reason",
        "SchedulerError".into(),
    ));
    assert_eq!((fixture.used(), fixture.closed().len()), (vec![500], 0));
}

#[test]
fn requests_beyond_any_node_leave_nothing_behind() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    let huge = json!({"memory": i64::MAX.to_string(), "example.com/gpu": i64::MAX.to_string()});
    for uid in ["1", "2"] {
        let pod = with(pod(uid, 0), "/spec/containers/0/resources/requests", huge.clone());
        fixture.pod(&bound(pod, "a"));
    }
    fixture.cache.delete_pod("1");
    let node = Arc::clone(&fixture.publish().sites[0].nodes[0]);
    assert!(node.charges.used.memory > node.allocatable.memory && node.charges.pods == 1);
    fixture.cache.delete_pod("2");
    let node = Arc::clone(&fixture.publish().sites[0].nodes[0]);
    assert_eq!(
        (&node.charges.used, node.charges.pods, &*node.charges.by_priority),
        (&Amounts::default(), 0, &[][..])
    );
}

/// Sets the pod's scheduler.
fn of(scheduler: &str, pod: Value) -> Value {
    with(pod, "/spec/schedulerName", scheduler.into())
}

#[test]
fn controller_pods_are_counted_per_site_under_spread_only() {
    let counted = |fixture: &mut Fixture| {
        let snapshot = fixture.publish();
        let of = |site: &Site| {
            site.pods_of
                .iter()
                .map(|(_, uid, pods)| format!("{uid}: {pods}"))
                .collect::<Vec<_>>()
        };
        [0, 1].map(|at: usize| of(&snapshot.sites[at]).join(", "))
    };
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    fixture.node(&with(
        edge_node("c", 4000),
        "/metadata/labels",
        json!({"node.role/cloud": "true"}),
    ));
    let in_cloud = |pod: Value| with(pod, "/spec/nodeSelector", json!({"node.role/cloud": "true"}));
    fixture.pod(&bound(pod("p1", 100), "a"));
    fixture.pod(&pod("p2", 100));
    fixture.pod(&in_cloud(pod("p3", 100)));
    fixture.pod(&in_cloud(with(pod("p4", 100), "/metadata/ownerReferences", json!([]))));
    assert_eq!(counted(&mut fixture), ["", ""]);
    let spread = Config {
        site_policy: SitePolicy::Spread,
        ..Config::default()
    };
    fixture.configure(spread);
    assert_eq!(counted(&mut fixture), ["rs: 2", "rs: 1"]);
    // Pods that are finished, terminating or gated do not count.
    fixture.pod(&with(bound(pod("p1", 100), "a"), "/status/phase", json!("Succeeded")));
    fixture.pod(&terminating(in_cloud(pod("p3", 100))));
    fixture.pod(&with(pod("p5", 100), "/spec/schedulingGates", json!([{"name": "g"}])));
    assert_eq!(counted(&mut fixture), ["rs: 1", ""]);
    // When a node changes its site, its pods change theirs.
    fixture.pod(&bound(pod("p2", 100), "a"));
    fixture.node(&with(
        edge_node("a", 4000),
        "/metadata/labels",
        json!({"node.role/cloud": "true"}),
    ));
    assert_eq!(counted(&mut fixture), ["", "rs: 1"]);
    fixture.configure(Config::default());
    assert_eq!(counted(&mut fixture), ["", ""]);
}

#[test]
fn scorer_counts_pods_apart_from_spread() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    fixture.pod(&bound(pod("p1", 100), "a"));
    let spread = with(
        pod("p2", 100),
        "/metadata/annotations/slo.example.io~1spread",
        json!("sites"),
    );
    fixture.pod(&bound(spread, "a"));
    let mut counted = |mode| {
        let mut config = Config::default();
        config.scorer.mode = mode;
        fixture.configure(config);
        let site = fixture.publish().sites[0].clone();
        [&site.pods_of, &site.owned].map(|counts| counts.iter().map(|(_, _, pods)| *pods).sum::<u64>())
    };
    let [off, shadow] = [ScorerMode::Off, ScorerMode::Shadow].map(&mut counted);
    assert_eq!((off, shadow), ([1, 0], [1, 2]));
}

#[test]
fn refused_pod_that_fits_closes_its_site_until_it_is_bound() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 1000));
    fixture.pod(&unschedulable(pod("1", 500), "anti-affinity"));
    assert_eq!((fixture.used(), fixture.closed()), (vec![0], vec!["shop/rs: 1".into()]));
    assert_eq!(fixture.waiting(), 0);
    // While there is no room for it, the pod waits for room and its site is open.
    fixture.pod(&bound(pod("2", 600), "a"));
    assert_eq!((fixture.closed().len(), fixture.waiting()), (0, 1));
    fixture.cache.delete_pod("2");
    fixture.wait(60);
    fixture.pod(&unschedulable(pod("1", 500), "other words"));
    assert_eq!((fixture.used(), fixture.closed().len()), (vec![0], 1));
    fixture.pod(&bound(pod("1", 500), "a"));
    assert_eq!((fixture.used(), fixture.closed().len()), (vec![500], 0));
}

#[test]
fn site_stays_closed_after_a_refused_pod_is_gone() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 1000));
    let go = |fixture: &mut Fixture, uid: &str| {
        fixture.pod(&unschedulable(pod(uid, 500), "volume limits"));
        assert_eq!(fixture.closed(), ["shop/rs: 1"]);
        fixture.cache.pod_gone(uid, fixture.now);
        assert_eq!(fixture.closed(), ["shop/rs: 0"]);
    };
    go(&mut fixture, "0");
    fixture.wait(600);
    assert_eq!(fixture.closed(), Vec::<String>::new());
    // A pod that is deleted before it has a node counts as gone.
    let refused = unschedulable(pod("1", 500), "volume limits");
    fixture.pod(&refused);
    fixture.publish();
    fixture.pod(&terminating(refused));
    assert_eq!(fixture.closed(), ["shop/rs: 0"]);
    fixture.wait(599);
    assert_eq!(fixture.closed(), ["shop/rs: 0"]);
    fixture.wait(1);
    assert_eq!(fixture.cache.next_change(), Some(fixture.now));
    assert_eq!(fixture.closed(), Vec::<String>::new());
    // A pod of the same controller that starts there opens the site.
    go(&mut fixture, "2");
    fixture.pod(&bound(pod("3", 500), "a"));
    assert_eq!(fixture.closed(), ["shop/rs: 0"]);
    fixture.pod(&with(bound(pod("3", 500), "a"), "/status/phase", "Running".into()));
    assert_eq!(fixture.closed(), Vec::<String>::new());
    assert_eq!(fixture.cache.next_change(), None);
    // A younger pod that started while the refused pod existed also opens it. A pod that ran before, or a replica of the same
    // age, does not.
    for (uid, begins_before, created, closed) in [
        ("4", true, "2026-01-01T00:00:01Z", &["shop/rs: 0"][..]),
        ("5", false, "2026-01-01T00:00:00Z", &["shop/rs: 0"]),
        ("6", false, "2026-01-01T00:00:01Z", &[]),
    ] {
        let begin = |fixture: &mut Fixture| {
            let sibling = bound(pod("sibling", 100), "a");
            let sibling = with(sibling, "/metadata/creationTimestamp", created.into());
            fixture.pod(&sibling);
            fixture.pod(&with(sibling, "/status/phase", "Running".into()));
        };
        fixture.cache.delete_pod("sibling");
        if begins_before {
            begin(&mut fixture);
        }
        fixture.pod(&unschedulable(pod(uid, 100), "volume limits"));
        assert_eq!(fixture.closed(), ["shop/rs: 1"]);
        if !begins_before {
            begin(&mut fixture);
        }
        fixture.cache.pod_gone(uid, fixture.now);
        assert_eq!(fixture.closed(), closed, "{uid}");
        fixture.wait(600);
    }
}

#[test]
fn unchanged_site_stays_closed_after_reconfiguration() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 1000));
    fixture.pod(&unschedulable(pod("1", 500), "volume limits"));
    fixture.publish();
    fixture.cache.pod_gone("1", fixture.now);
    let edge = |selector: &str| json!({"name": "edge", "kind": "edge", "nodeSelector": {selector: "true"}});
    let cloud = |name: &str| json!({"name": name, "kind": "cloud", "nodeSelector": {"cloud": name}});
    let own = "node.role/edge";
    for (sites, closed) in [
        (json!([edge(own), cloud("far")]), &["shop/rs: 0"][..]),
        (json!([cloud("other"), edge(own)]), &["shop/rs: 0"]),
        (json!([edge("another"), cloud("other")]), &[]),
    ] {
        fixture.configure(Config::read(&json!({ "sites": sites })).unwrap());
        assert_eq!(fixture.closed(), closed, "{sites}");
    }
}

#[test]
fn pods_with_labels_are_counted_at_their_site() {
    let counted = |fixture: &mut Fixture| {
        let snapshot = fixture.publish();
        let labelled = snapshot.sites[0].labelled.iter();
        labelled
            .map(|(_, labels, pods)| format!("{labels}: {pods}"))
            .collect::<Vec<_>>()
    };
    let labelled = |uid: &str| with(pod(uid, 100), "/metadata/labels", json!({"tier": "back", "app": "db"}));
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 1000));
    fixture.pod(&bound(labelled("1"), "a"));
    fixture.pod(&labelled("2"));
    fixture.pod(&bound(pod("without", 100), "a"));
    fixture.pod(&with(
        labelled("gated"),
        "/spec/schedulingGates",
        json!([{"name": "theirs"}]),
    ));
    fixture.pod(&with(
        labelled("elsewhere"),
        "/spec/nodeSelector",
        json!({"node.role/cloud": "true"}),
    ));
    assert_eq!(counted(&mut fixture), ["app=db,tier=back: 2"]);
    assert!(fixture.delta().pods);
    // A refused pod does not count, because it may never be bound.
    fixture.pod(&unschedulable(labelled("2"), "volume limits"));
    assert_eq!(counted(&mut fixture), ["app=db,tier=back: 1"]);
    fixture.pod(&with(bound(labelled("1"), "a"), "/status/phase", "Succeeded".into()));
    assert_eq!(counted(&mut fixture), Vec::<String>::new());
    fixture.delta();
    fixture.node(&edge_node("b", 1000));
    assert!(!fixture.delta().pods);
}

#[test]
fn anti_affinity_replicas_charge_one_node_each_or_wait() {
    let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"});
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let replica = |uid: &str| {
        let pod = with(pod(uid, 100), "/spec/affinity", affinity.clone());
        with(pod, "/metadata/labels", json!({"app": "web"}))
    };
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 8000));
    fixture.node(&edge_node("b", 1000));
    fixture.pod(&replica("1"));
    fixture.pod(&replica("2"));
    assert_eq!(fixture.used(), [100, 100]);
    fixture.pod(&unschedulable(replica("3"), "didn't match pod anti-affinity rules"));
    assert_eq!((fixture.closed().len(), fixture.waiting()), (0, 1));
    fixture.delta();
    // Another pod takes the same amount, so the node frees nothing except the anti-affinity conflict.
    fixture.cache.delete_pod("1");
    fixture.pod(&bound(pod("4", 100), "a"));
    let a = fixture.cache.nodes.ids["a"];
    assert!(fixture.delta().gained.contains(&a));
    assert_eq!((fixture.closed().len(), fixture.waiting()), (1, 0));
    let used = &fixture.publish().sites[0].nodes[0].charges.used;
    assert!(used.apart.is_empty(), "{used:?}");
}

#[test]
fn node_matching_two_sites_belongs_to_first_cloud() {
    let mut fixture = Fixture::new();
    let names = |snapshot: &Snapshot| {
        let of = |at: usize| {
            snapshot.sites[at]
                .nodes()
                .map(|node| node.name.to_string())
                .collect::<Vec<_>>()
        };
        (of(0), of(1))
    };
    fixture.node(&edge_node("b", 1));
    fixture.node(&edge_node("a", 1));
    let both = with(edge_node("c", 1), "/metadata/labels/node.role~1cloud", "true".into());
    fixture.node(&both);
    let of = |edge: &[&str], cloud: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        (names(edge), names(cloud))
    };
    assert_eq!(names(&fixture.publish()), of(&["a", "b"], &["c"]));
    let fault = fixture.cache.faults().next().unwrap().clone();
    assert_eq!(
        fault.to_string(),
        "node c carries the selectors of edge and cloud; it counts to the first cloud of them"
    );
    assert_eq!(fixture.publish().sites[0].foreign, ["c".into()]);
    // The provider sets labels on its virtual nodes.
    fixture.node(&with(
        edge_node("c", 1),
        "/metadata/labels/liqo.io~1type",
        "virtual-node".into(),
    ));
    assert_eq!(names(&fixture.publish()), of(&["a", "b"], &[]));
    let fault = fixture.cache.faults().next().unwrap().to_string();
    assert_eq!(
        fault,
        "virtual node c carries the selector of edge; it counts to no site"
    );
    assert_eq!(fixture.publish().sites[0].foreign, ["c".into()]);
    fixture.node(&edge_node("c", 1));
    assert_eq!(fixture.publish().sites[0].foreign, []);
    assert_eq!(names(&fixture.publish()), of(&["a", "b", "c"], &[]));
    assert_eq!(fixture.cache.faults().count(), 0);
    fixture.cache.delete_node("b");
    assert_eq!(names(&fixture.publish()), of(&["a", "c"], &[]));
}

#[test]
fn new_list_replaces_old_list_once_complete() {
    let mut fixture = Fixture::new();
    assert!(!fixture.cache.is_listed(Kind::Pods));
    for kind in Kind::REQUIRED {
        fixture.cache.list_began(kind);
    }
    fixture.node(&edge_node("a", 1000));
    fixture.node(&edge_node("b", 1000));
    fixture.pod(&bound(pod("1", 100), "a"));
    fixture.pod(&bound(pod("2", 100), "a"));
    for kind in Kind::REQUIRED {
        fixture.cache.list_ended(kind);
    }
    assert!(Kind::REQUIRED.iter().all(|kind| fixture.cache.is_listed(*kind)));
    assert_eq!(fixture.used(), [200, 0]);
    fixture.cache.list_began(Kind::Pods);
    fixture.pod(&bound(pod("2", 100), "a"));
    assert_eq!(fixture.used(), [200, 0], "nothing is gone before the list is complete");
    fixture.cache.list_ended(Kind::Pods);
    assert_eq!(fixture.used(), [100, 0]);
    fixture.cache.list_began(Kind::Nodes);
    fixture.node(&edge_node("b", 1000));
    fixture.cache.list_ended(Kind::Nodes);
    assert_eq!(fixture.used(), [0]);
}

#[test]
fn snapshot_age_is_that_of_its_oldest_source() {
    let mut fixture = Fixture::new();
    fixture.cache.record_event(Kind::Nodes, Moment(5));
    assert_eq!(fixture.publish().kubernetes_as_of, Moment(i64::MIN));
    fixture.cache.record_event(Kind::Pods, Moment(3));
    fixture.cache.record_event(Kind::Pods, Moment(2));
    let snapshot = fixture.publish();
    assert_eq!(snapshot.kubernetes_as_of, Moment(3));
    assert_eq!(snapshot.revision, 2);
}

#[test]
fn data_is_as_old_as_the_quietest_of_its_watches() {
    let mut fixture = Fixture::new();
    let (first, later) = (Moment(1), Moment(2));
    for kind in Kind::OF_DATA {
        assert_eq!(fixture.cache.listed_as_of(Kind::OF_DATA), None);
        fixture.cache.list_ended(kind);
        fixture.cache.record_event(kind, first);
    }
    fixture.cache.record_event(Kind::Claims, later);
    fixture.cache.record_event(Kind::Classes, later);
    assert_eq!(fixture.cache.listed_as_of(Kind::OF_DATA), Some(first));
}

/// Names of the nodes that gained and lost room since the last call, and whether anything else is new.
fn delta(fixture: &mut Fixture) -> (String, String, bool) {
    let RoomDelta {
        gained, lost, sites, ..
    } = fixture.delta();
    let names = |ids: BTreeSet<NodeId>| {
        let names = ids.iter().map(|id| &*fixture.cache.nodes.by_id[id].node.name);
        names.collect::<Vec<_>>().join(" ")
    };
    (names(gained), names(lost), sites)
}

fn is(gained: &str, lost: &str) -> (String, String, bool) {
    (gained.to_owned(), lost.to_owned(), false)
}

#[test]
fn delta_contains_only_nodes_with_changed_free_room() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    fixture.node(&edge_node("b", 4000));
    assert_eq!(
        delta(&mut fixture),
        ("a b".to_owned(), String::new(), true),
        "and a namespace"
    );
    fixture.node(&edge_node("a", 4000));
    assert_eq!(delta(&mut fixture), is("", ""));
    fixture.pod(&bound(pod("1", 500), "a"));
    assert_eq!(delta(&mut fixture), is("", "a"));
    let ready = json!([{"type": "Ready", "status": "True"}]);
    fixture.pod(&with(bound(pod("1", 500), "a"), "/status/conditions", ready));
    assert_eq!(delta(&mut fixture), is("", ""), "a word about its status");
    // A pod that comes and goes between two plans leaves only its net change.
    fixture.pod(&bound(pod("2", 500), "a"));
    fixture.cache.delete_pod("2");
    assert_eq!(delta(&mut fixture), is("", ""));
    fixture.pod(&bound(pod("2", 500), "a"));
    fixture.cache.delete_pod("1");
    assert_eq!(delta(&mut fixture), is("", ""));
    let assumed = pod("3", 500);
    fixture.pod(&assumed);
    assert_eq!(delta(&mut fixture), is("", "b"));
    fixture.pod(&bound(assumed, "b"));
    assert_eq!(delta(&mut fixture), is("", ""));
    let deleted = |at: &str| with(bound(pod("2", 500), "a"), "/metadata/deletionTimestamp", at.into());
    fixture.pod(&deleted("2026-01-01T00:00:30Z"));
    assert_eq!(delta(&mut fixture), is("a", ""), "it leaves");
    fixture.pod(&deleted("2026-01-01T00:00:30Z"));
    assert_eq!(delta(&mut fixture), is("", ""));
    fixture.cache.delete_pod("2");
    assert_eq!(delta(&mut fixture), is("a", ""));
    fixture.node(&edge_node("b", 3000));
    assert_eq!(
        delta(&mut fixture),
        ("b".to_owned(), String::new(), true),
        "a node that changed"
    );
    // The node belongs to no site.
    fixture.node(&with(edge_node("c", 1000), "/metadata/labels", json!({})));
    delta(&mut fixture);
    fixture.pod(&bound(pod("4", 500), "c"));
    fixture.cache.delete_pod("4");
    assert_eq!(delta(&mut fixture), is("", ""));
}

#[test]
fn link_is_delta_when_its_state_changes_or_it_was_stale() {
    let mut fixture = Fixture::new();
    let virtual_node = json!({"node.role/cloud": "true"});
    fixture.node(&with(edge_node("v", 4000), "/metadata/labels", virtual_node));
    let link_of = |fixture: &mut Fixture, state, rtt: u64| {
        let link = testkit::link(state, rtt, fixture.now);
        fixture.cache.apply_link("cloud", Some(link));
        delta(fixture).0
    };
    let link = |fixture: &mut Fixture, rtt: u64| link_of(fixture, LinkState::Healthy, rtt);
    link(&mut fixture, 20);
    fixture.wait(5);
    assert_eq!(link(&mut fixture, 20), "");
    assert_eq!(link(&mut fixture, 21), "", "a time is no room");
    fixture.wait(61);
    assert_eq!(link(&mut fixture, 21), "v", "it was too old");
    assert_eq!(link_of(&mut fixture, LinkState::Degraded, 120), "v");
    fixture.configure(Config {
        degraded_links: DegradedLinks::Estimate,
        ..Config::default()
    });
    let mut lossy = |loss| {
        let link = testkit::link(LinkState::Degraded, 120, fixture.now);
        let loss = Some(Permille(loss));
        fixture.cache.apply_link("cloud", Some(Link { loss, ..link }));
        delta(&mut fixture).0
    };
    lossy(600);
    assert_eq!(lossy(499), "v", "it can be estimated now");
    assert_eq!(lossy(300), "");
    fixture.cache.apply_link("cloud", None);
    assert_eq!(delta(&mut fixture).0, "v");
}

#[test]
fn cloud_is_away_without_a_healthy_wan_and_a_usable_node() {
    use edgeward_decision::model::link::LinkState::{Degraded, Healthy, Unreachable};
    let mut fixture = Fixture::new();
    let began = fixture.now;
    let mut away_for = |state, ready: bool| {
        let link = testkit::link(state, 20, fixture.now);
        fixture.cache.apply_link("cloud", Some(link));
        let mut node = edge_node("c", 4000);
        node["metadata"]["labels"] = json!({"node.role/cloud": "true"});
        node["status"]["conditions"][0]["status"] = json!(if ready { "True" } else { "False" });
        fixture.node(&node);
        let since = fixture.publish().sites[1].away_since;
        fixture.wait(1);
        since.map(|since| since.since(began))
    };
    let second = |seconds| Some(Micros::from_secs(seconds));
    assert_eq!([away_for(Healthy, false), away_for(Healthy, true)], [second(0), None]);
    assert_eq!([away_for(Degraded, true), away_for(Unreachable, false)], [second(2); 2]);
    assert_eq!(
        [away_for(Healthy, true), away_for(Unreachable, true)],
        [None, second(5)]
    );
}

#[test]
fn measured_traits_and_links_are_delta() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    let settings =
        json!({"prometheus": {"url": "http://p", "traits": [{"name": "Fresh", "query": "age", "atMost": 60}]}});
    let traits = Config::read(&settings).unwrap().prometheus.unwrap().traits;
    let mut telemetry = Telemetry::new(vec![], &traits);
    let (now, staleness) = (fixture.now, Micros::from_secs(60));
    let until = now.after(staleness);
    let delta = |fixture: &mut Fixture, telemetry: &Telemetry| {
        fixture.cache.set_telemetry(telemetry.clone());
        let delta = fixture.delta();
        (delta.gained.len(), delta.distances)
    };
    assert_eq!(delta(&mut fixture, &telemetry), (1, false));
    for (age, gained) in [(30, 1), (31, 0), (61, 1)] {
        telemetry.record_trait("Fresh", &[("edge", (1_000 * age, now))].into(), staleness);
        assert_eq!(delta(&mut fixture, &telemetry), (gained, false), "{age}");
    }
    telemetry.record_links(Input::LinkRtt, &[(("edge", "cloud"), 5)], until, Micros(0));
    assert_eq!(delta(&mut fixture, &telemetry), (0, true));
    telemetry.record_links(Input::LinkBandwidth, &[(("cloud", "edge"), 5_000)], until, Micros(0));
    assert_eq!(delta(&mut fixture, &telemetry), (0, false));
    assert_eq!(fixture.before.sites[1].uplink, Some(Bandwidth(5_000)));
    let cloud_node = with(
        edge_node("c", 4000),
        "/metadata/labels",
        json!({"node.role/cloud": "true"}),
    );
    fixture.node(&cloud_node);
    fixture.delta();
    for (pair, bits, gained) in [
        (("cloud", "edge"), 6_000, 1),
        (("cloud", "edge"), 5_000, 0),
        (("edge", "cloud"), 5_000, 1),
        (("edge", "cloud"), 4_000, 0),
    ] {
        telemetry.record_links(Input::LinkBandwidth, &[(pair, bits)], until, Micros(0));
        assert_eq!(delta(&mut fixture, &telemetry), (gained, false), "{pair:?} {bits}");
    }
    // Without another answer, the next publication is due when these are stale.
    let stale = until.after(Micros(1));
    assert_eq!(fixture.cache.next_change(), Some(stale));
    fixture.now = stale;
    assert!(fixture.delta().distances);
    assert_eq!(fixture.cache.next_change(), None);
    assert!(fixture.before.links.is_empty());
}

#[test]
fn measured_processing_mean_causes_no_delta() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    let mean = |fixture: &mut Fixture, seconds: u64| {
        let mut telemetry = Telemetry::default();
        let work = Work {
            namespace: "".into(),
            class: Class::Batch,
            is_p95: false,
        };
        let mean = Measurement::processing("edge", work, Micros::from_secs(seconds));
        let until = fixture.now.after(Micros::from_secs(60));
        telemetry.record(mean, fixture.now, until, &Config::default());
        fixture.cache.set_telemetry(telemetry);
        let gained = delta(fixture).0;
        (gained, fixture.publish().sites[0].observed[Class::Batch])
    };
    mean(&mut fixture, 1);
    let two_seconds = Some(ProcessingTime::all(Micros::from_secs(2)));
    assert_eq!(mean(&mut fixture, 2), (String::new(), two_seconds));
}

#[test]
fn measured_free_cpu_increase_is_gain_and_decrease_is_loss() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    let free = |fixture: &mut Fixture, millicores: Option<u64>| {
        let mut telemetry = Telemetry::default();
        if let Some(millicores) = millicores {
            let until = fixture.now.after(Micros::from_secs(60));
            let free = Measurement::new(Input::EdgeFreeCpu, "", millicores);
            telemetry.record(free, fixture.now, until, &Config::default());
        }
        fixture.cache.set_telemetry(telemetry);
        delta(fixture)
    };
    delta(&mut fixture);
    assert_eq!(free(&mut fixture, Some(1000)), is("", "a"), "it was unbounded");
    assert_eq!(free(&mut fixture, Some(1000)), is("", ""));
    assert_eq!(free(&mut fixture, Some(1500)), is("a", ""));
    assert_eq!(free(&mut fixture, Some(500)), is("", "a"));
    assert_eq!(free(&mut fixture, None), is("a", ""));
}

#[test]
fn measured_room_shrinks_by_pods_started_since_the_sample() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    fixture.node(&edge_node("b", 4000));
    let sample = |fixture: &mut Fixture, seconds_ago: i64| {
        let as_of = Moment(fixture.now.0 - seconds_ago * SECOND);
        let mut telemetry = Telemetry::default();
        let free = Measurement::new(Input::EdgeFreeCpu, "", 3000);
        telemetry.record(free, as_of, as_of.after(Micros::from_secs(60)), &Config::default());
        fixture.cache.set_telemetry(telemetry);
    };
    let free = |fixture: &mut Fixture| fixture.publish().sites[0].free.cpu.map(|cpu| cpu.0);
    fixture.configure(Config {
        prometheus: Some(Prometheus {
            url: "http://localhost:9090".into(),
            staleness: Micros::from_secs(60),
            queries: [(Input::EdgeFreeCpu, "free".into())].into(),
            ..Prometheus::default()
        }),
        ..Config::default()
    });
    fixture.pod(&bound(pod("before", 500), "a"));
    fixture.cache.list_ended(Kind::Pods);
    fixture.wait(5);
    sample(&mut fixture, 8);
    assert_eq!(
        free(&mut fixture),
        Some(3000),
        "what the first list names was there before"
    );
    sample(&mut fixture, 1);
    assert_eq!(free(&mut fixture), Some(3000));
    fixture.pod(&pod("since", 700));
    assert_eq!(free(&mut fixture), Some(2300));
    // Binding the pod does not count it twice. Deleting another pod uncounts it.
    fixture.wait(1);
    fixture.pod(&bound(pod("since", 700), "a"));
    fixture.pod(&bound(pod("short", 100), "a"));
    assert_eq!(free(&mut fixture), Some(2200));
    fixture.cache.delete_pod("short");
    assert_eq!(free(&mut fixture), Some(2300));
    // A newer sample includes the pod.
    fixture.wait(1);
    sample(&mut fixture, 0);
    assert_eq!(free(&mut fixture), Some(3000));
    fixture.wait(61);
    assert_eq!(free(&mut fixture), None, "the sample is stale");
    // A pod that starts while there is no sample is not in a sample that was taken earlier and read later.
    fixture.pod(&bound(pod("unmeasured", 400), "a"));
    assert_eq!(free(&mut fixture), None);
    fixture.wait(10);
    sample(&mut fixture, 20);
    assert_eq!(free(&mut fixture), Some(2600));
    fixture.wait(40);
    assert_eq!(free(&mut fixture), Some(2600));
}

#[test]
fn report_counts_for_30_s_less_pods_that_it_does_not_show() {
    let mut fixture = Fixture::new();
    let sites = json!({"sites": [
        {"name": "edge", "kind": "edge"},
        {"name": "cloud", "kind": "cloud", "report": {"kubeconfigSecretRef": {"name": "s"}}},
    ]});
    fixture.configure(Config::read(&sites).unwrap());
    fixture.node(&with(
        edge_node("c", 64_000),
        "/metadata/labels",
        json!({"node.role/cloud": "true"}),
    ));
    let offloaded = |fixture: &mut Fixture, uid: &str| {
        let running = json!([{"name": "main", "state": {"running": {}}}]);
        fixture.pod(&with(bound(pod(uid, 1000), "c"), "/status/containerStatuses", running));
    };
    let report = |fixture: &mut Fixture| {
        let room = json!({"room": [{"cpu": "4", "memory": "8Gi", "pods": 9, "nodes": 1}]});
        let report = Arc::new(serde_json::from_value(room).unwrap());
        fixture.cache.apply_report("cloud", Some(&report), fixture.now);
    };
    let free = |fixture: &mut Fixture| {
        let snapshot = fixture.publish();
        snapshot.sites[1]
            .report
            .as_ref()
            .and_then(|report| report.room.largest("cpu"))
    };
    offloaded(&mut fixture, "listed");
    fixture.cache.list_ended(Kind::Pods);
    offloaded(&mut fixture, "shown");
    fixture.wait(6);
    offloaded(&mut fixture, "hidden");
    fixture.wait(5);
    assert_eq!(free(&mut fixture), None);
    report(&mut fixture);
    assert_eq!(free(&mut fixture), Some(3000));
    offloaded(&mut fixture, "new");
    assert_eq!(free(&mut fixture), Some(2000));
    assert!(!fixture.delta().lost.is_empty());
    fixture.cache.delete_pod("hidden");
    assert_eq!(free(&mut fixture), Some(3000));
    fixture.wait(11);
    report(&mut fixture);
    assert_eq!(free(&mut fixture), Some(4000), "the report shows the pod");
    fixture.pod(&bound(pod("silent", 1000), "c"));
    fixture.wait(11);
    report(&mut fixture);
    assert_eq!(free(&mut fixture), Some(3000), "its container has not begun");
    fixture.pass(30);
    assert_eq!(free(&mut fixture), Some(4000), "it has waited too long to count");
    fixture.delta();
    fixture.pass(1);
    let delta = fixture.delta();
    assert_eq!(free(&mut fixture), None, "the report is old");
    assert!(!delta.gained.is_empty());
    fixture.configure(Config::default());
    report(&mut fixture);
    assert_eq!(free(&mut fixture), None, "the site does not ask for it");
}

#[test]
fn karmada_reports_about_a_cloud_that_does_not_report_itself() {
    let mut fixture = Fixture::new();
    let clouds = json!({"sites": [
        {"name": "edge", "kind": "edge"},
        {"name": "cloud", "kind": "cloud", "report": {"kubeconfigSecretRef": {"name": "s"}}},
    ]});
    fixture.configure(Config::read(&clouds).unwrap());
    let report = |fixture: &mut Fixture, source, cpu| {
        let total = Total {
            cpu: Millicores(cpu),
            memory: Bytes(1),
            pods: 1,
        };
        let report = Report {
            room: total.into(),
            source,
            ..Report::default()
        };
        fixture
            .cache
            .apply_report("cloud", Some(&Arc::new(report)), fixture.now);
    };
    let free = |fixture: &mut Fixture| Some(fixture.publish().sites[1].report.as_ref()?.room.largest("cpu"));
    report(&mut fixture, Source::Karmada, 1_000);
    assert_eq!(free(&mut fixture), Some(Some(1_000)));
    report(&mut fixture, Source::Report, 2_000);
    report(&mut fixture, Source::Karmada, 3_000);
    assert_eq!(free(&mut fixture), Some(Some(2_000)), "its own report is fresh");
    fixture.wait(31);
    report(&mut fixture, Source::Karmada, 4_000);
    fixture.configure(Config::default());
    assert_eq!(free(&mut fixture), Some(Some(4_000)), "Karmada reports about any cloud");
    fixture.wait(31);
    assert_eq!(free(&mut fixture), None);
}

/// A Job's pod in this namespace that ran on node `a` for ten minutes, until half an hour ago.
fn done(uid: &str, namespace: &str) -> Value {
    let finished = NOW.wall - jiff::SignedDuration::from_mins(30);
    let started = finished - jiff::SignedDuration::from_mins(10);
    let owners = json!([{"kind": "Job", "uid": "nightly", "controller": true}]);
    let run = json!([{"name": "main", "state": {"terminated": {
        "startedAt": started.to_string(), "finishedAt": finished.to_string(),
    }}}]);
    let mut pod = bound(pod(uid, 1), "a");
    pod["metadata"]["namespace"] = namespace.into();
    pod["metadata"]["ownerReferences"] = owners;
    pod["status"] = json!({"phase": "Succeeded", "containerStatuses": run});
    pod
}

#[test]
fn five_finished_jobs_set_estimate_of_class_and_controller() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    for uid in ["1", "2", "3", "4"] {
        fixture.pod(&done(uid, "shop"));
        fixture.pod(&done(uid, "shop"));
    }
    let times = |fixture: &mut Fixture| (*fixture.publish().sites[0].job_times).clone();
    assert_eq!(times(&mut fixture), JobTimes::default(), "each counts once");
    fixture.pod(&done("5", "shop"));
    let ten_minutes = Some(ProcessingTime::all(Micros::from_secs(600)));
    let known = times(&mut fixture);
    assert_eq!(
        known.classes["shop"][Class::Batch].map(|of_jobs| of_jobs.time),
        ten_minutes
    );
    assert_eq!(
        known.of_jobs.get("shop", "nightly").map(|of_jobs| of_jobs.time),
        ten_minutes
    );
    assert_eq!(*fixture.publish().sites[1].job_times, JobTimes::default());
    fixture.wait(1_799);
    assert_eq!(times(&mut fixture), known);
    fixture.wait(1);
    assert_eq!(times(&mut fixture), JobTimes::default(), "an hour ago");
}

#[test]
fn jobs_of_other_namespaces_change_no_estimate() {
    let config = Config::default();
    let eta = |jobs: &[&str]| {
        let mut fixture = Fixture::new();
        fixture.node(&edge_node("a", 4000));
        fixture.cache.apply_namespace("other", true);
        for namespace in jobs {
            (0..5).for_each(|i| fixture.pod(&done(&format!("{namespace}-{i}"), namespace)));
        }
        let snapshot = fixture.publish();
        let workload = testkit::workload(&pod("new", 200), &config.keys);
        let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW.at(fixture.now));
        let known = snapshot.sites[0].job_times.classes.keys().map(ToString::to_string);
        (verdict.sites[0].estimate.processing, known.collect::<Vec<_>>())
    };
    let (model, _) = eta(&[]);
    assert_eq!(eta(&["never-opted-in"]), (model, vec![]));
    assert_eq!(eta(&["other"]), (model, vec!["other".to_owned()]));
    assert_eq!(eta(&["shop"]).0, Micros::from_secs(600));
}

/// A placeholder pod that reserves headroom on a node: low priority and no SLO.
fn placeholder(uid: &str, millicores: u32, priority: i32) -> Value {
    let pod = with(pod(uid, millicores), "/metadata/annotations", json!({}));
    let pod = with(pod, "/spec/terminationGracePeriodSeconds", json!(0));
    with(pod, "/spec/priority", json!(priority))
}

/// CPU used by placeholders on the first edge node, by priority.
fn placeholders(fixture: &mut Fixture) -> Vec<(i32, i64)> {
    let snapshot = fixture.publish();
    let placeholders = snapshot.sites[0].nodes().next().unwrap().charges.placeholders.iter();
    placeholders
        .map(|(kind, share)| (kind.priority, share.amounts.cpu.0))
        .collect()
}

#[test]
fn pods_of_low_priority_without_a_class_are_placeholders() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    fixture.pod(&bound(placeholder("1", 500, -10), "a"));
    fixture.pod(&bound(placeholder("2", 300, -10), "a"));
    fixture.pod(&bound(placeholder("3", 200, 0), "a"));
    // The pod states a class, so it is no placeholder.
    fixture.pod(&bound(with(pod("4", 100), "/spec/priority", json!(-10)), "a"));
    assert_eq!(placeholders(&mut fixture), [(-10, 800)]);
    fixture.cache.delete_pod("1");
    assert_eq!(placeholders(&mut fixture), [(-10, 300)]);
    let mut config = Config::default();
    config.headroom_below.0 = 1;
    fixture.configure(config.clone());
    assert_eq!(placeholders(&mut fixture), [(-10, 300), (0, 200)]);
    config.headroom_below.0 = -10;
    fixture.configure(config.clone());
    assert_eq!(placeholders(&mut fixture), []);
    assert_eq!(fixture.used(), [600]);
}

#[test]
fn pod_evicting_placeholders_is_assumed_on_their_node() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 1000));
    fixture.pod(&bound(placeholder("warm", 1000, -10), "a"));
    fixture.pod(&with(pod("modest", 600), "/spec/preemptionPolicy", json!("Never")));
    assert_eq!(fixture.used(), [1000]);
    // kube-scheduler will nominate the pod. Until the placeholder is gone, the sum exceeds the node's capacity.
    fixture.pod(&pod("1", 600));
    assert_eq!(fixture.used(), [1600]);
    // The remaining headroom is too small for this pod.
    fixture.pod(&unschedulable(pod("2", 600), "no"));
    assert_eq!((fixture.used(), fixture.waiting()), (vec![1600], 1));
    fixture.pod(&with(
        unschedulable(pod("1", 600), "no"),
        "/status/nominatedNodeName",
        "a".into(),
    ));
    fixture.pod(&terminating(bound(placeholder("warm", 1000, -10), "a")));
    fixture.pod(&pod("3", 400));
    assert_eq!(fixture.used(), [2000]);
    fixture.cache.delete_pod("warm");
    fixture.pod(&bound(pod("1", 600), "a"));
    assert_eq!((fixture.used(), fixture.waiting()), (vec![1000], 1));
    assert_eq!(fixture.closed(), Vec::<String>::new());

    // The pod evicts nothing while another node has room.
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    fixture.node(&edge_node("b", 1000));
    fixture.pod(&bound(placeholder("warm", 4000, -10), "a"));
    fixture.pod(&pod("1", 600));
    fixture.pod(&pod("2", 600));
    assert_eq!(fixture.used(), [4600, 600]);
}

#[test]
fn unbound_placeholder_yields_its_room_to_a_pod() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 1000));
    fixture.pod(&placeholder("warm", 600, -10));
    assert_eq!(
        (placeholders(&mut fixture), fixture.used()),
        (vec![(-10, 600)], vec![600])
    );
    fixture.pod(&pod("1", 600));
    assert_eq!((placeholders(&mut fixture), fixture.used()), (vec![], vec![600]));
    // When the pod is gone, the placeholder has room again.
    fixture.cache.delete_pod("1");
    assert_eq!(placeholders(&mut fixture), [(-10, 600)]);
}

#[test]
fn controller_termination_time_is_learned_from_three_pods() {
    let mut fixture = Fixture::new();
    fixture.node(&edge_node("a", 4000));
    let terminating = |uid: &str| {
        let pod = bound(pod(uid, 500), "a");
        with(pod, "/metadata/deletionTimestamp", "2026-01-01T00:01:00Z".into())
    };
    let known = |fixture: &mut Fixture| {
        let snapshot = fixture.publish();
        let known = snapshot.sites[0].nodes[0].charges.terminating.iter();
        let known: Vec<_> = known
            .map(|(termination, _)| (termination.since, termination.takes))
            .collect();
        known
    };
    let terminates = |fixture: &mut Fixture, uid: &str, seconds: i64| {
        fixture.pod(&bound(pod(uid, 500), "a"));
        fixture.pod(&terminating(uid));
        let since = fixture.now;
        fixture.wait(seconds);
        // The termination is still the same one.
        fixture.pod(&terminating(uid));
        let [(seen_since, takes)] = known(fixture)[..] else {
            panic!("{uid}")
        };
        assert_eq!(seen_since, Some(since), "{uid}");
        match uid {
            // A finished pod has left its node before it is deleted.
            "2" => fixture.pod(&with(terminating(uid), "/status/phase", "Succeeded".into())),
            _ => fixture.cache.pod_gone(uid, fixture.now),
        }
        fixture.cache.delete_pod(uid);
        takes
    };
    let seconds = |seconds| Some(Micros::from_secs(seconds));
    for (uid, took) in [("1", 60), ("2", 50), ("3", 70)] {
        assert_eq!(terminates(&mut fixture, uid, took), None);
    }
    assert_eq!(terminates(&mut fixture, "4", 1), seconds(50));
    assert_eq!(terminates(&mut fixture, "5", 1), seconds(1));
    fixture.wait(3_600);
    assert_eq!(terminates(&mut fixture, "6", 1), None, "an hour later");
}
