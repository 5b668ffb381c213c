//! Liqo's objects come and go while pods are gated.

use std::collections::BTreeMap;

use serde_json::json;

use super::*;
use crate::queue::PlanAction;
use edgeward_decision::model::link::LinkState;
use edgeward_decision::model::liqo::{
    ApiServerStatus, Liqo, Offloading, OffloadingPhase, Offloadings, RemoteCluster, Strategy,
};

fn config() -> Arc<Config> {
    let far = json!({"name": "far", "kind": "liqo", "nodeSelector": {"liqo.io/remote-cluster-id": "far"}});
    Arc::new(Config::read(&json!({"sites": [{"name": "edge", "kind": "edge"}, far]})).unwrap())
}

/// Liqo's state of the namespace `shop` and of the cluster `far`.
fn says(strategy: Strategy, phase: OffloadingPhase, cluster: RemoteCluster) -> Change {
    let offloading = Offloading {
        strategy: Some(strategy),
        phase,
        clusters: [("far".into(), phase)].into(),
    };
    Change::Liqo(Some(Arc::new(Liqo {
        offloadings: Arc::new(Offloadings {
            is_known: true,
            namespaces: BTreeMap::from([("shop".into(), offloading)]),
        }),
        clusters: [("far".into(), cluster)].into(),
    })))
}

/// A pod behind edgeward's gate that only fits in `far`.
fn gated() -> Change {
    let pod = json!({
        "metadata": {
            "name": "gated", "namespace": "shop", "uid": "gated", "resourceVersion": "1",
            "creationTimestamp": NOW.wall.to_string(),
            "annotations": {"slo.example.io/class": "batch", "scheduling.example.io/timestamp": NOW.wall.to_string(),
                            "scheduling.example.io/reason": "held_no_capacity"},
        },
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                 "nodeSelector": {"only": "cloud"},
                 "schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}]},
    });
    record(&pod)
}

fn engine() -> (Engine, Arc<SharedState>) {
    let shared = Arc::new(SharedState::new(Arc::default(), TTL));
    let mut engine = Engine::new(config(), Arc::clone(&shared));
    let link = testkit::link(LinkState::Healthy, 10, NOW.moment);
    let told = [
        node("edge-0", json!({"node.role/edge": "true"}), "1"),
        node(
            "far-0",
            json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "far", "only": "cloud"}),
            "8",
        ),
        Change::Namespace("shop".into(), true),
        Change::Link("far".into(), Some(link)),
    ];
    for change in told.into_iter().chain(Kind::REQUIRED.map(Change::ListEnded)) {
        engine.apply(&change, NOW);
    }
    let alive = [Kind::Nodes, Kind::Pods].map(Change::WatchAlive);
    alive.iter().for_each(|change| engine.apply(change, NOW));
    (engine, shared)
}

/// The steps of the next publication's plan, if there is one. It is published one second after the previous one.
fn steps(engine: &mut Engine, second: u64, change: &Change) -> Option<Vec<PlanAction>> {
    let now = NOW.at(NOW.moment.after(Micros::from_secs(second)));
    engine.apply(change, now);
    let plan = engine.publish(now).plan?;
    Some(plan.entries.iter().map(|step| step.action).collect())
}

#[test]
fn gated_pod_waits_while_its_namespace_is_offloaded_nowhere() {
    let (mut engine, shared) = engine();
    let of = |strategy, phase| says(strategy, phase, RemoteCluster::default());
    engine.apply(&of(Strategy::Remote, OffloadingPhase::InProgress), NOW);
    assert_eq!(steps(&mut engine, 0, &gated()), Some(vec![PlanAction::Release]));
    let nothing_new = of(Strategy::Remote, OffloadingPhase::InProgress);
    assert_eq!(steps(&mut engine, 1, &nothing_new), None);
    let failed = of(Strategy::Remote, OffloadingPhase::CreationLoopBackOff);
    assert_eq!(steps(&mut engine, 2, &failed), Some(vec![]));
    let ready = of(Strategy::Remote, OffloadingPhase::Accepted);
    assert_eq!(steps(&mut engine, 3, &ready), Some(vec![PlanAction::Release]));
    assert!(shared.snapshot().is_remote("shop"));
    let ended = of(Strategy::Local, OffloadingPhase::Terminating);
    assert_eq!(steps(&mut engine, 4, &ended), Some(vec![]));
    assert_eq!(
        steps(&mut engine, 5, &Change::Liqo(None)),
        Some(vec![PlanAction::Release])
    );
}

#[test]
fn liqo_offloading_survives_a_change_of_sites() {
    let (mut engine, shared) = engine();
    engine.apply(
        &says(Strategy::Remote, OffloadingPhase::Accepted, RemoteCluster::default()),
        NOW,
    );
    let other = json!({"sites": [{"name": "here", "kind": "edge"}]});
    let other = Arc::new(Config::read(&other).unwrap());
    engine.apply(&Change::Settings(other), NOW);
    engine.publish(NOW);
    assert_eq!(shared.snapshot().sites[0].name(), "here");
    assert!(shared.snapshot().is_remote("shop"));
}

#[test]
fn liqo_status_makes_link_unreachable_or_supplies_its_rtt() {
    let (mut engine, shared) = engine();
    let mut link = |cluster: RemoteCluster, probed: Option<Link>| {
        engine.apply(&Change::Link("far".into(), probed), NOW);
        engine.apply(&says(Strategy::Local, OffloadingPhase::Accepted, cluster), NOW);
        engine.publish(NOW);
        let snapshot = shared.snapshot();
        let link = snapshot.sites[1].link;
        link.map(|link| (link.state, link.rtt.map(|rtt| rtt.0)))
    };
    let probed = |rtt| {
        Some(Link {
            state: LinkState::Healthy,
            rtt,
            loss: Some(edgeward_kube::units::Permille(0)),
            as_of: NOW.moment,
            ..Link::default()
        })
    };
    let server = |status| RemoteCluster {
        api_server: Some(status),
        latency: None,
    };
    let measured = |age: u64| RemoteCluster {
        api_server: None,
        latency: Some((Micros(700), NOW.moment.before(Micros::from_secs(age)))),
    };
    let good = Some(Micros(300));
    assert_eq!(
        link(server(ApiServerStatus::Established), probed(good)),
        Some((LinkState::Healthy, Some(300)))
    );
    for status in [ApiServerStatus::Error, ApiServerStatus::Pending, ApiServerStatus::None] {
        assert_eq!(
            link(server(status), probed(good)),
            Some((LinkState::Unreachable, Some(300)))
        );
    }
    // edgeward's own probes take precedence.
    assert_eq!(link(measured(1), probed(good)), Some((LinkState::Healthy, Some(300))));
    assert_eq!(link(measured(1), probed(None)), Some((LinkState::Healthy, Some(700))));
    assert_eq!(link(measured(61), probed(None)), Some((LinkState::Healthy, None)));
    // Without own probes there is no loss measurement.
    assert_eq!(link(measured(1), None), Some((LinkState::Degraded, Some(700))));
    assert_eq!(link(measured(61), None), None);
}
