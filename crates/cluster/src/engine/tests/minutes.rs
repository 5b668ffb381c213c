//! Rules about seconds and minutes, in virtual time. Each change is published when it becomes due.

mod devices;
mod full_clouds;

use std::cell::OnceCell;

use serde_json::{Value, json};

use super::*;
use crate::pod_record::GatedPod;
use crate::queue::PlanAction;
use edgeward_decision::model::link::LinkState;
use edgeward_decision::placement::verdict::Reason;
use edgeward_decision::pod::Pod;

/// An engine that has seen a cluster: an edge node of one core, a virtual node, and an opted-in namespace.
struct Cluster {
    config: Arc<Config>,
    shared: Arc<SharedState>,
    engine: Engine,
    now: Now,
}

impl Cluster {
    fn new() -> Self {
        let nodes = [
            node("edge-0", json!({"node.role/edge": "true"}), "1"),
            node("cloud-0", json!({"node.role/cloud": "true"}), "8"),
        ];
        Self::of(Arc::default(), &nodes)
    }

    fn of(config: Arc<Config>, nodes: &[Change]) -> Self {
        let shared = Arc::new(SharedState::new(Arc::default(), config.reservation_ttl));
        let mut cluster = Self {
            engine: Engine::new(Arc::clone(&config), Arc::clone(&shared)),
            config,
            shared,
            now: NOW,
        };
        nodes.iter().for_each(|node| cluster.sees(node));
        cluster.sees(&Change::Namespace("shop".into(), true));
        Kind::REQUIRED
            .into_iter()
            .for_each(|kind| cluster.sees(&Change::ListEnded(kind)));
        cluster.has_a_link(LinkState::Healthy);
        cluster.engine.publish(NOW);
        cluster
    }

    fn sees(&mut self, change: &Change) {
        self.engine.apply(change, self.now);
    }

    fn has_a_link(&mut self, state: LinkState) {
        let link = testkit::link(state, 10, self.now.moment);
        self.sees(&Change::Link("cloud".into(), Some(link)));
    }

    /// Publishes everything that becomes due within these seconds. Returns each publication with its second. If `is_heard`, the
    /// watches of nodes and pods stay alive all the time.
    fn pass(&mut self, seconds: u64, is_heard: bool) -> Vec<(u64, Publication)> {
        let end = self.now.moment.after(Micros::from_secs(seconds));
        let mut published = vec![];
        while let Some(due) = self.engine.next_change().filter(|due| *due <= end) {
            self.now = NOW.at(due.max(self.now.moment.after(Micros(1))));
            if is_heard {
                [Kind::Nodes, Kind::Pods]
                    .into_iter()
                    .for_each(|kind| self.sees(&Change::WatchAlive(kind)));
            }
            let second = self.now.moment.since(NOW.moment).0 / 1_000_000;
            published.push((second, self.engine.publish(self.now)));
        }
        self.now = NOW.at(end);
        published
    }

    fn context(&self, id: u128) -> DecisionContext<'_> {
        DecisionContext {
            config: &self.config,
            id: DecisionId(id),
            now: self.now,
        }
    }

    fn review(&self, id: u128, pod: &Value) -> (Reason, Option<String>) {
        let namespace = pod["metadata"]["namespace"].as_str().unwrap();
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let workload = pod.workload(namespace.into(), &self.config.keys);
        let read = OnceCell::new();
        let verdict = self.shared.review(&read, &workload, self.context(id), || true);
        (verdict.reason, verdict.site().map(|site| site.name().to_owned()))
    }

    fn release(&self, gated: &GatedPod, since: Moment) -> (Reason, Option<String>) {
        let read = OnceCell::new();
        let waited = self.now.moment.since(since);
        let (verdict, _) = self.shared.release(
            &read,
            gated,
            gated.workload.clone().unwrap(),
            waited,
            None,
            self.context(1_000),
        );
        (verdict.reason, verdict.site().map(|site| site.name().to_owned()))
    }
}

fn pod(name: &str, class: &str, cpu: &str, spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1",
            "creationTimestamp": NOW.wall.to_string(),
            "annotations": {"slo.example.io/class": class, "slo.example.io/deadlineMs": "600000",
                            "scheduling.example.io/timestamp": NOW.wall.to_string()},
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
    });
    pod["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    pod
}

#[test]
fn pod_without_a_site_is_released_when_a_node_comes_or_goes() {
    let gates = json!([{"name": "scheduling.example.io/awaiting-capacity"}]);
    let spec = json!({"schedulingGates": gates, "nodeSelector": {"disk": "ssd"}});
    let mut gated = pod("gated", "batch", "500m", spec);
    gated["metadata"]["annotations"]["slo.example.io/sites"] = json!("edge");
    let other = node("edge-0", json!({"node.role/edge": "true"}), "1");
    let ssd = node("edge-1", json!({"node.role/edge": "true", "disk": "ssd"}), "1");
    // The edge has no nodes now, but a node that matches the pod's selector may join.
    for change in [ssd, Change::NodeGone("edge-0".into())] {
        let mut cluster = Cluster::of(Arc::default(), std::slice::from_ref(&other));
        cluster.sees(&record(&gated));
        let actions = |published: Vec<(u64, Publication)>| {
            let plans = published.into_iter().filter_map(|(_, publication)| publication.plan);
            let steps = plans.flat_map(|plan| plan.entries);
            steps.map(|step| step.action).collect::<Vec<_>>()
        };
        let waits = PlanAction::UpdateReason(Reason::HeldSiteAway);
        assert_eq!(actions(cluster.pass(1, true)), [waits]);
        cluster.sees(&change);
        assert_eq!(
            actions(vec![(0, cluster.engine.publish(cluster.now))]),
            [PlanAction::Release]
        );
    }
}

#[test]
fn gated_pod_claims_node_after_60_s_and_leaves_at_class_limit() {
    let mut cluster = Cluster::new();
    let full = pod("full", "batch", "800m", json!({"nodeName": "edge-0"}));
    cluster.sees(&record(&full));
    cluster.has_a_link(LinkState::Unreachable);
    let gates = json!({"schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}]});
    let mut gated = pod("gated", "batch", "500m", gates);
    gated["metadata"]["annotations"]["scheduling.example.io/reason"] = json!("held_no_capacity");
    cluster.sees(&record(&gated));
    cluster.engine.publish(cluster.now);

    let claims = |cluster: &Cluster| cluster.shared.snapshot().queue_claims.iter().count();
    let steps = |published: Vec<(u64, Publication)>| -> Vec<_> {
        let plans = published
            .into_iter()
            .filter_map(|(at, publication)| Some((at, publication.plan?)));
        plans
            .flat_map(|(at, plan)| plan.entries.into_iter().map(move |step| (at, step)))
            .collect()
    };
    assert!(steps(cluster.pass(59, true)).is_empty());
    assert_eq!(claims(&cluster), 0);
    assert!(steps(cluster.pass(2, true)).is_empty());
    assert_eq!(claims(&cluster), 1);
    assert!(steps(cluster.pass(238, true)).is_empty());
    let steps = steps(cluster.pass(2, true));
    let [(at, step)] = &*steps else { panic!("{steps:?}") };
    assert_eq!((*at, step.action), (300, PlanAction::Release));
    assert_eq!(
        cluster.release(&step.pod, step.since),
        (Reason::ReleasedTimeout, Some("edge".to_owned()))
    );
}

#[test]
fn backstop_finds_pods_released_at_limit_once_wan_is_back() {
    let mut cluster = Cluster::new();
    cluster.sees(&record(&pod("full", "batch", "1", json!({"nodeName": "edge-0"}))));
    cluster.has_a_link(LinkState::Unreachable);
    let mut gated = ["a", "b", "c", "d"].map(|name| {
        let gates = json!({"schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}]});
        let mut gated = pod(name, "latency", "500m", gates);
        gated["metadata"]["annotations"]["scheduling.example.io/reason"] = json!("held_no_capacity");
        gated
    });
    gated.iter().for_each(|pod| cluster.sees(&record(pod)));
    cluster.engine.publish(cluster.now);

    let published = cluster.pass(31, true);
    let plans = published.into_iter().filter_map(|(_, publication)| publication.plan);
    let steps: Vec<_> = plans.flat_map(|plan| plan.entries).collect();
    assert_eq!(steps.len(), 4);
    for step in steps {
        let (reason, site) = cluster.release(&step.pod, step.since);
        assert_eq!((reason, site.as_deref()), (Reason::ReleasedTimeout, Some("edge")));
        let pod = gated
            .iter_mut()
            .find(|pod| pod["metadata"]["name"] == *step.pod.name)
            .unwrap();
        pod["spec"]["schedulingGates"] = json!([]);
        pod["spec"]["nodeSelector"] = json!({"node.role/edge": "true"});
        let id = DecisionId(1_000).to_string();
        for (name, value) in [("site", "edge"), ("reason", reason.as_str()), ("decision-id", &*id)] {
            pod["metadata"]["annotations"][format!("scheduling.example.io/{name}")] = json!(value);
        }
        pod["status"] = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"},
        ]});
        cluster.sees(&record(pod));
    }
    cluster.pass(9, true);
    cluster.has_a_link(LinkState::Healthy);
    let mut reports = cluster
        .pass(60, true)
        .into_iter()
        .filter_map(|(at, publication)| Some((at, publication.report?)));
    let (at, report) = reports.find(|(_, report)| !report.candidates.is_empty()).unwrap();
    let (snapshot, ledger) = (cluster.shared.snapshot(), cluster.shared.ledger());
    cluster.now = NOW.at(NOW.moment.after(Micros::from_secs(at)));
    let found = report.evaluate(&snapshot, &ledger, &cluster.config, cluster.now);
    let found = found.iter().map(|found| {
        (
            &*found.candidate.pod.name,
            found.candidate.pod.reason.as_deref(),
            &*found.site,
        )
    });
    let expected = ["a", "b", "c", "d"].map(|name| (name, Some("released_timeout"), "cloud"));
    assert_eq!((at, found.collect::<Vec<_>>()), (61, expected.to_vec()));
}

#[test]
fn pods_go_to_edge_after_60_s_without_api_server_events() {
    let mut cluster = Cluster::new();
    let full = pod("full", "batch", "800m", json!({"nodeName": "edge-0"}));
    cluster.sees(&record(&full));
    let half = pod("half", "batch", "500m", json!({}));
    let large = pod("large", "batch", "4", json!({}));
    cluster.pass(60, false);
    cluster.has_a_link(LinkState::Healthy);
    cluster.engine.publish(cluster.now);
    assert_eq!(cluster.review(1, &half).1.as_deref(), Some("cloud"));
    cluster.pass(1, false);
    assert_eq!(
        cluster.review(2, &half),
        (Reason::EdgeTelemetryStale, Some("edge".to_owned()))
    );
    // Only the cloud can hold this pod.
    assert_eq!(cluster.review(3, &large).1.as_deref(), Some("cloud"));
}

#[test]
fn unused_reservations_take_at_most_half_from_other_namespaces() {
    let mut cluster = Cluster::new();
    let pod_in = |namespace: &str, owner: u128, millicores: u32| {
        let mut pod = pod("small", "batch", &format!("{millicores}m"), json!({}));
        pod["metadata"]["namespace"] = json!(namespace);
        pod["metadata"]["ownerReferences"] =
            json!([{"kind": "ReplicaSet", "uid": owner.to_string(), "controller": true}]);
        pod
    };
    let edge = || Some("edge".to_owned());
    let cloud = || Some("cloud".to_owned());
    for round in 0..20 {
        // Each review has another owner, and no pod is ever created. The namespace's third review of 400 m finds the edge full.
        let id = 10 * round;
        let found =
            |cluster: &Cluster, id, namespace, millicores| cluster.review(id, &pod_in(namespace, id, millicores)).1;
        assert_eq!(found(&cluster, id, "shop", 400), edge());
        assert_eq!(found(&cluster, id + 1, "shop", 400), edge());
        assert_eq!(found(&cluster, id + 2, "shop", 400), cloud());
        // The other namespace may use half of the room. A reservation beyond the first namespace's share does not count against
        // it.
        assert_eq!(found(&cluster, id + 3, "bank", 600), edge());
        cluster.shared.forget(DecisionId(id + 3), "bank");
        assert_eq!(found(&cluster, id + 4, "bank", 601), cloud());
        cluster.pass(3, true);
        for kind in [Kind::Nodes, Kind::Pods] {
            cluster.sees(&Change::WatchAlive(kind));
        }
        cluster.has_a_link(LinkState::Healthy);
        cluster.engine.publish(cluster.now);
        assert_eq!(cluster.shared.ledger().open(), 0);
    }
}

#[test]
fn reservation_moves_when_another_pod_takes_its_node() {
    let nodes = [("edge-0", "edge"), ("edge-1", "edge"), ("cloud-0", "cloud")];
    let nodes = nodes.map(|(name, site)| node(name, json!({format!("node.role/{site}"): "true"}), "1"));
    let mut cluster = Cluster::of(Arc::default(), &nodes);
    let asks = |name: &str, spec: Value| pod(name, "batch", "1", spec);
    for id in [1, 2] {
        let (_, site) = cluster.review(id, &asks("new", json!({})));
        assert_eq!(site.as_deref(), Some("edge"));
    }
    // edgeward expects one pod on each node. kube-scheduler binds the first pod to the other node.
    let spec = json!({"nodeName": "edge-1", "nodeSelector": {"node.role/edge": "true"}});
    let mut bound = asks("first", spec);
    bound["metadata"]["annotations"]["scheduling.example.io/decision-id"] = json!(DecisionId(1).to_string());
    bound["metadata"]["annotations"]["scheduling.example.io/site"] = json!("edge");
    cluster.sees(&record(&bound));
    cluster.engine.publish(cluster.now);
    assert_eq!(cluster.shared.ledger().open(), 1);
    let (reason, _) = cluster.review(3, &asks("new", json!({})));
    assert_eq!(reason, Reason::CloudEdgeNoCapacity);
}

#[test]
fn placed_pod_with_other_gates_charges_once_ungated() {
    let mut cluster = Cluster::new();
    let large = pod("large", "batch", "800m", json!({}));
    let placed = json!({
        "nodeSelector": {"node.role/edge": "true"}, "schedulingGates": [{"name": "queue.example/admission"}],
    });
    let mut gated = pod("gated", "batch", "800m", placed);
    let id = DecisionId(1).to_string();
    for (name, value) in [("decision", "edge"), ("site", "edge"), ("decision-id", &id)] {
        gated["metadata"]["annotations"][format!("scheduling.example.io/{name}")] = json!(value);
    }
    let edge = (Reason::EdgeFeasibleSloMet, Some("edge".to_owned()));
    assert_eq!(cluster.review(1, &large), edge);
    assert_eq!(
        cluster.review(2, &large).1.as_deref(),
        Some("cloud"),
        "the room is reserved"
    );
    cluster.shared.forget(DecisionId(2), "shop");

    // The pod was not reviewed a second time.
    cluster.sees(&record(&gated));
    cluster.engine.publish(cluster.now);
    cluster.pass(10, true);
    let ledger = || {
        let ledger = cluster.shared.ledger();
        (ledger.open(), ledger.expired())
    };
    assert_eq!(ledger(), (0, 0));
    assert_eq!(cluster.review(3, &large), edge, "a gated pod takes nothing");
    cluster.shared.forget(DecisionId(3), "shop");

    gated["spec"].as_object_mut().unwrap().remove("schedulingGates");
    cluster.sees(&record(&gated));
    cluster.engine.publish(cluster.now);
    assert_eq!(cluster.review(4, &large).1.as_deref(), Some("cloud"));
}
