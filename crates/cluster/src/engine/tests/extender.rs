//! Pods about which kube-scheduler asks.

use std::cell::OnceCell;
use std::collections::BTreeSet;

use super::*;
use edgeward_decision::model::workload::Workload;

fn id(pod: u32) -> String {
    format!("00000000-0000-4000-8000-{pod:012}")
}

/// A pod of 1 CPU that tolerates the cloud, with this node or none.
fn pod(number: u32, node: &str) -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "shop", "uid": id(number), "resourceVersion": "1",
                     "annotations": {"slo.example.io/class": "batch"}},
        "spec": {
            "nodeName": node,
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
            "tolerations": [{"key": "cloud", "operator": "Exists"}],
        },
    })
}

struct Cluster {
    engine: Engine,
    shared: Arc<SharedState>,
    config: Arc<Config>,
}

impl Cluster {
    /// An edge with this many CPUs, and a large cloud.
    fn of(cpu: &str) -> Self {
        let config = Config::read(&json!({"extender": {"enabled": true}})).unwrap();
        let (config, shared) = (Arc::new(config), Arc::new(SharedState::new(Arc::default(), TTL)));
        let mut engine = Engine::new(Arc::clone(&config), Arc::clone(&shared));
        let link = testkit::link(LinkState::Healthy, 25, NOW.moment);
        engine.apply(&Change::Link("cloud".into(), Some(link)), NOW);
        for (name, site, cpu) in [("e", "edge", cpu), ("c", "cloud", "64")] {
            let node = node::from_json(&crate::testkit::node(name, site, cpu).to_string()).unwrap();
            engine.apply(&Change::Node(Box::new(node)), NOW);
        }
        Kind::REQUIRED
            .into_iter()
            .for_each(|kind| engine.apply(&Change::ListEnded(kind), NOW));
        engine.publish(NOW);
        Self { engine, shared, config }
    }

    fn see(&mut self, pods: &[Value]) {
        self.apply(pods);
        self.engine.publish(NOW);
    }

    fn apply(&mut self, pods: &[Value]) {
        pods.iter().for_each(|pod| self.engine.apply(&record(pod), NOW));
    }

    /// The site of this pod, to which kube-scheduler offers all nodes.
    fn ask(&self, number: u32) -> String {
        self.asks(number, Outcome::Reserve)
    }

    fn asks(&self, number: u32, outcome: Outcome) -> String {
        let workload = Workload {
            unpatchable: true,
            ..testkit::workload(&pod(number, ""), &self.config.keys)
        };
        let context = DecisionContext {
            config: &self.config,
            id: DecisionId::parse(&id(number)).unwrap(),
            now: NOW,
        };
        let attempt = Attempt {
            waited: Micros(0),
            offered: BTreeSet::from(["e", "c"]),
        };
        let read = OnceCell::new();
        let verdict = self.shared.schedule(&read, &workload, &attempt, context, |_| outcome);
        verdict.site().unwrap().name().to_owned()
    }

    fn open(&self) -> usize {
        self.shared.ledger().open()
    }

    /// CPUs that the edge's node is charged, by pods and reservations.
    fn charged(&self) -> (i64, usize) {
        let snapshot = self.shared.snapshot();
        (snapshot.sites[0].nodes[0].charges.used.cpu.0, self.open())
    }
}

#[test]
fn own_charge_and_reservation_of_a_pod_do_not_count_against_it() {
    let mut cluster = Cluster::of("1");
    // It is asked about before it is seen, and again.
    assert_eq!([cluster.ask(1), cluster.ask(1)], ["edge", "edge"]);
    assert_eq!(cluster.charged(), (0, 1));
    // The reservation turns into the charge.
    cluster.see(&[pod(1, "")]);
    assert_eq!(cluster.charged(), (1_000, 0));
    assert_eq!([cluster.ask(1), cluster.ask(2)], ["edge", "cloud"]);
    // Nothing is reserved for the first pod, because its charge is at its site.
    assert_eq!(cluster.open(), 1);
    cluster.see(&[pod(1, "e"), pod(2, "c")]);
    assert_eq!(cluster.charged(), (1_000, 0));
}

#[test]
fn burst_fills_the_edge_and_no_more() {
    let mut cluster = Cluster::of("3");
    let pods: Vec<_> = (0..8).map(|number| pod(number, "")).collect();
    cluster.see(&pods);
    let sites: Vec<_> = (0..8).map(|number| cluster.ask(number)).collect();
    let edge = sites.iter().filter(|site| *site == "edge").count();
    assert_eq!(edge, 3, "{sites:?}");
    // Each pod gets a node where it was sent, and its reservation ends.
    let bound: Vec<_> = (0..8)
        .map(|number| pod(number, if sites[number as usize] == "edge" { "e" } else { "c" }))
        .collect();
    cluster.see(&bound);
    assert_eq!(cluster.charged(), (3_000, 0));
}

#[test]
fn charges_are_not_published_while_the_extender_is_off() {
    let mut cluster = Cluster::of("3");
    cluster.see(&[pod(1, "")]);
    assert_eq!(cluster.shared.snapshot().charged_by_unbound.len(), 1);
    cluster.engine.apply(&Change::Settings(Arc::default()), NOW);
    cluster.see(&[pod(2, "")]);
    assert!(cluster.shared.snapshot().charged_by_unbound.is_empty());
    let on = Change::Settings(Arc::clone(&cluster.config));
    cluster.engine.apply(&on, NOW);
    cluster.engine.publish(NOW);
    assert_eq!(cluster.shared.snapshot().charged_by_unbound.len(), 2);
}

#[test]
fn pod_that_is_seen_but_not_published_counts_once() {
    // The largest node is at the edge, so the pod counts there.
    let mut cluster = Cluster::of("100");
    cluster.apply(&[pod(1, "")]);
    assert_eq!(cluster.ask(1), "edge");
    assert_eq!(cluster.charged(), (0, 1));
    cluster.engine.publish(NOW);
    assert_eq!(cluster.charged(), (1_000, 0));
}

#[test]
fn late_answer_keeps_the_reservation_of_an_earlier_one() {
    let cluster = Cluster::of("1");
    let freed = || cluster.shared.ledger().freed();
    let before = freed();
    assert_eq!(
        [cluster.ask(1), cluster.asks(1, Outcome::Leave), cluster.ask(1)],
        ["edge"; 3]
    );
    assert_eq!((cluster.open(), freed()), (1, before));
    assert_eq!(cluster.ask(2), "cloud");
    // A pod that keeps no node holds no room.
    cluster.asks(1, Outcome::Free);
    assert_eq!(freed(), before + 1);
    assert_eq!(cluster.ask(3), "edge");
}

#[test]
fn reservations_count_once_with_several_replicas() {
    let cluster = Cluster::of("3");
    cluster.shared.ledger().set_replicas(2);
    let sites: Vec<_> = (0..4).map(|number| cluster.ask(number)).collect();
    assert_eq!(sites, ["edge", "edge", "edge", "cloud"]);
}
