use arc_swap::ArcSwap;
use edgeward_cluster::engine::SharedState;
use edgeward_decision::config::Config;
use edgeward_decision::testkit::{self, with};
use edgeward_kube::units::Moment;
use serde_json::{Value, json};

use super::*;
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;

const UID: &str = "705ab4f5-6393-11e8-b7cc-42010a800002";

/// An edge of 4 CPUs with this much used, and a cloud.
fn reviewer(used: &str, config: Value) -> Arc<Reviewer> {
    let fleet = json!({
        "sites": [{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud", "wan": {"rttMs": 25, "lossPct": 0}}],
        "nodes": [
            {"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 4, "pods": 9}, "used": {"cpu": used}},
            {"name": "c", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": 64, "pods": 99},
             "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}]},
        ],
    });
    let mut snapshot = testkit::snapshot(&fleet);
    let later = |moment: &mut Moment| *moment = moment.after(Micros::from_secs(100_000));
    later(&mut snapshot.kubernetes_as_of);
    let links = snapshot.sites.iter_mut().filter_map(|site| site.link.as_mut());
    links.for_each(|link| later(&mut link.as_of));
    let config = Config::read(&config).unwrap();
    Arc::new(Reviewer {
        policies: Arc::default(),
        shared: Arc::new(SharedState::new(Arc::new(snapshot), config.reservation_ttl)),
        config: Arc::new(ArcSwap::from_pointee(config)),
        metrics: Arc::new(Metrics::new()),
        clock: Clock::start(),
        log_limit: LogLimit::new(Clock::start()),
    })
}

fn enabled() -> Value {
    json!({"extender": {"enabled": true}})
}

fn pod() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "shop", "uid": UID, "annotations": {"slo.example.io/class": "batch"}},
        "spec": {
            "containers": [{"resources": {"requests": {"cpu": "1"}}}],
            "tolerations": [{"key": "cloud", "operator": "Exists"}],
        },
    })
}

fn args(pod: &Value, nodes: &[&str]) -> String {
    json!({"Pod": pod, "Nodes": null, "NodeNames": nodes}).to_string()
}

fn call(reviewer: &Arc<Reviewer>, verb: Verb, body: &str) -> Value {
    let extender = Extender {
        verb,
        reviewer: Arc::clone(reviewer),
    };
    let bytes = extender.review(body.as_bytes(), &Responder::start()).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// The nodes that are kept of `e`, `c` and `other`.
fn kept(reviewer: &Arc<Reviewer>, pod: &Value) -> Value {
    call(reviewer, Verb::Filter, &args(pod, &["e", "c", "other"]))["NodeNames"].take()
}

#[test]
fn filter_keeps_nodes_of_chosen_site_and_says_why() {
    let edge = json!({
        "NodeNames": ["e"],
        "FailedAndUnresolvableNodes": {
            "c": "edgeward chose edge (edge_no_slo_target)",
            "other": "edgeward chose edge (edge_no_slo_target)",
        },
    });
    let body = args(&pod(), &["e", "c", "other"]);
    assert_eq!(call(&reviewer("0", enabled()), Verb::Filter, &body), edge);
    assert_eq!(kept(&reviewer("4", enabled()), &pod()), json!(["c"]));
}

#[test]
fn prioritize_prefers_nodes_of_chosen_site() {
    let scores = json!([{"Host": "e", "Score": 10}, {"Host": "c", "Score": 0}]);
    let body = args(&pod(), &["c", "e"]);
    assert_eq!(call(&reviewer("0", enabled()), Verb::Prioritize, &body), scores);
}

#[test]
fn pod_that_does_not_tolerate_the_cloud_stays_at_the_edge() {
    let pod = with(pod(), "/spec/tolerations", json!([]));
    let full = reviewer("4", enabled());
    assert_eq!(kept(&full, &pod), json!(["e"]));
}

#[test]
fn pods_that_are_not_decided_keep_all_nodes() {
    let all = json!(["e", "c", "other"]);
    let reviewer = reviewer("0", enabled());
    let placement = json!({
        "slo.example.io/class": "batch",
        "scheduling.example.io/decision": "edge",
        "scheduling.example.io/site": "edge",
        "scheduling.example.io/decision-id": UID,
        "scheduling.example.io/timestamp": "2025-01-01T00:00:00Z",
    });
    let placed = with(pod(), "/spec/nodeSelector", json!({"node.role/edge": "true"}));
    for pod in [
        with(pod(), "/metadata/annotations", json!({})),
        with(pod(), "/metadata/namespace", json!("kube-system")),
        with(pod(), "/spec/nodeSelector", json!({"node.role/none": "true"})),
        with(pod(), "/spec/containers", json!(7)),
        with(placed, "/metadata/annotations", placement),
    ] {
        assert_eq!(kept(&reviewer, &pod), all, "{pod}");
    }
    assert_eq!(reviewer.shared.ledger().open(), 0);
}

#[test]
fn pod_waits_while_no_site_is_good_and_until_its_limit() {
    let reviewer = reviewer(
        "4",
        json!({"extender": {"enabled": true}, "holdLimits": {"batch": "120s"}}),
    );
    let offered = |seconds: i64| {
        let created = reviewer.clock.now().wall - jiff::SignedDuration::from_secs(seconds);
        let pod = with(pod(), "/metadata/creationTimestamp", json!(created.to_string()));
        call(&reviewer, Verb::Filter, &args(&pod, &["e"]))
    };
    let young = offered(0);
    assert_eq!(young["NodeNames"], json!([]), "{young}");
    assert_eq!(
        young["FailedAndUnresolvableNodes"]["e"],
        "edgeward waits (held_no_capacity)"
    );
    assert_eq!(offered(200)["NodeNames"], json!(["e"]));
}

#[test]
fn invalid_slo_keeps_no_node_where_it_is_denied() {
    let reviewer = reviewer("0", json!({"extender": {"enabled": true}, "invalidSlo": "deny"}));
    let pod = with(pod(), "/metadata/annotations/slo.example.io~1class", json!("fast"));
    let answer = call(&reviewer, Verb::Filter, &args(&pod, &["e"]));
    assert_eq!(answer["NodeNames"], json!([]));
    let why = answer["FailedAndUnresolvableNodes"]["e"].as_str().unwrap();
    assert!(why.starts_with("edgeward: invalid SLO: slo.example.io/class"), "{why}");
}

#[test]
fn site_without_an_offered_node_is_full() {
    let reviewer = reviewer("0", enabled());
    let offered = |nodes: &[&str]| call(&reviewer, Verb::Filter, &args(&pod(), nodes))["NodeNames"].take();
    assert_eq!(offered(&["c", "other"]), json!(["c"]));
    assert_eq!(offered(&["other"]), json!([]));
    // A pod that may not leave the edge waits for it.
    let tied = with(
        pod(),
        "/metadata/annotations/slo.example.io~1offloadAllowed",
        json!("false"),
    );
    let answer = call(&reviewer, Verb::Filter, &args(&tied, &["c"]));
    assert_eq!(answer["NodeNames"], json!([]), "{answer}");
}

#[test]
fn room_is_reserved_once_and_only_for_a_wanted_answer() {
    let reviewer = reviewer("0", enabled());
    let open = || reviewer.shared.ledger().open();
    let body = args(&pod(), &["e", "c"]);
    let late = Responder::start();
    assert!(late.take());
    let extender = Extender {
        verb: Verb::Filter,
        reviewer: Arc::clone(&reviewer),
    };
    extender.review(body.as_bytes(), &late).unwrap();
    assert_eq!(open(), 0);
    for verb in [Verb::Filter, Verb::Prioritize, Verb::Filter] {
        call(&reviewer, verb, &body);
        assert_eq!(open(), 1);
    }
    // The pod's own reservation of 4 CPUs leaves it room at the edge, and other pods none.
    let large = with(pod(), "/spec/containers/0/resources/requests/cpu", json!("4"));
    assert_eq!(kept(&reviewer, &large), json!(["e"]));
    assert_eq!(kept(&reviewer, &large), json!(["e"]));
    let other = with(pod(), "/metadata/uid", json!("705ab4f5-6393-11e8-b7cc-42010a800003"));
    assert_eq!(kept(&reviewer, &other), json!(["c"]));
    let metrics = reviewer.metrics.encode();
    let line = "edgeward_extender_calls_total{verb=\"prioritize\",verdict=\"edge\",reason=\"edge_no_slo_target\"} 1";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn answer_without_a_decision_keeps_all_nodes() {
    let reviewer = reviewer("0", enabled());
    let body = args(&pod(), &["e", "c"]);
    let extender = |verb| Extender {
        verb,
        reviewer: Arc::clone(&reviewer),
    };
    let answer = |verb| {
        let bytes = extender(verb).no_opinion(body.as_bytes(), Reason::Deadline, TIMEOUT);
        serde_json::from_slice::<Value>(&bytes.unwrap()).unwrap()
    };
    assert_eq!(
        answer(Verb::Filter),
        json!({"NodeNames": ["e", "c"], "FailedAndUnresolvableNodes": {}})
    );
    assert_eq!(
        answer(Verb::Prioritize),
        json!([{"Host": "e", "Score": 10}, {"Host": "c", "Score": 10}])
    );
}

#[test]
fn call_with_whole_nodes_or_without_uid_is_an_error() {
    let reviewer = reviewer("0", enabled());
    let extender = Extender {
        verb: Verb::Filter,
        reviewer,
    };
    let error = |body: &str| {
        let error = extender.review(body.as_bytes(), &Responder::start()).unwrap_err();
        error.to_string()
    };
    let whole = json!({"Pod": pod(), "Nodes": {"items": []}, "NodeNames": null}).to_string();
    assert_eq!(
        error(&whole),
        "no NodeNames: configure the extender with nodeCacheCapable: true"
    );
    let unnamed = with(pod(), "/metadata/uid", json!("x"));
    assert_eq!(error(&args(&unnamed, &["e"])), "the pod's uid is no UUID");
    let many = vec!["e"; MAX_ELEMENTS + 1];
    assert_eq!(error(&args(&pod(), &many)), "NodeNames has more than 20000 entries");
    assert!(error("[]").starts_with("not the arguments of an extender: "));
}

#[test]
fn pod_with_too_many_elements_keeps_all_nodes_unread() {
    let reviewer = reviewer("0", enabled());
    let large = with(pod(), "/spec/containers", json!(vec![json!(7); MAX_ELEMENTS + 2]));
    assert_eq!(kept(&reviewer, &large), json!(["e", "c", "other"]));
    let metrics = reviewer.metrics.encode();
    assert!(metrics.contains("reason=\"passthrough_too_large\"} 1"), "{metrics}");
}

#[test]
fn paths_are_served_only_while_enabled() {
    let reviewer = reviewer("0", json!({}));
    let routes = routes(&reviewer);
    let served = || routes.each_ref().map(|route| (route.path, route.answer.is_served()));
    assert_eq!(served(), [("/extender/filter", false), ("/extender/prioritize", false)]);
    reviewer.config.store(Arc::new(Config::read(&enabled()).unwrap()));
    assert!(served().iter().all(|(_, is_served)| *is_served));
}
