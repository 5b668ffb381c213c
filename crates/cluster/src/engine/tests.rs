//! Tests run in virtual time: [`NOW`] and times computed from it.

mod data;
mod extender;
mod liqo;
mod minutes;

use serde_json::{Value, json};

use super::*;
use edgeward_decision::model::link::{Link, LinkState};
use edgeward_decision::model::slo::PerClass;
use edgeward_decision::model::snapshot::{JobTime, JobTimes, ProcessingTime};
use edgeward_decision::testkit;
use edgeward_decision::testkit::NOW;
use edgeward_kube::node;
use edgeward_kube::units::Micros;

const TTL: Micros = Micros::from_secs(3);

/// Two nodes, one of them at the edge, and a cloud.
fn sites(edge: &str) -> Arc<Config> {
    let sites = json!([
        {"name": edge, "kind": "edge", "nodeSelector": {"node": edge}},
        {"name": "cloud", "kind": "cloud"},
    ]);
    Arc::new(Config::read(&json!({ "sites": sites })).unwrap())
}

/// The change that a watch reports for a node that is Ready.
fn node(name: &str, labels: Value, cpu: &str) -> Change {
    let node = json!({
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "9"},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    });
    Change::Node(Box::new(node::from_json(&node.to_string()).unwrap()))
}

#[test]
fn changed_sites_take_effect_at_once() {
    let shared = Arc::new(SharedState::new(Arc::default(), TTL));
    let mut engine = Engine::new(sites("a"), Arc::clone(&shared));
    let link = Link {
        state: LinkState::Healthy,
        rtt: Some(Micros(1)),
        loss: None,
        as_of: NOW.moment,
        ..Link::default()
    };
    let to = |selector: &str, uid: &str| {
        record(&json!({
            "metadata": {"name": uid, "namespace": "shop", "uid": uid, "resourceVersion": "1"},
            "spec": {
                "nodeSelector": {"node": selector},
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}],
            },
        }))
    };
    let mut tell = |told: &[Change]| {
        told.iter().for_each(|change| engine.apply(change, NOW));
        engine.publish(NOW);
        let snapshot = shared.snapshot();
        let nodes = snapshot.sites[0].nodes();
        let nodes: Vec<_> = nodes
            .map(|node| format!("{} {}", node.name, node.charges.used.cpu.0))
            .collect();
        (snapshot.sites[0].name().to_owned(), nodes, snapshot.sites[1].link)
    };
    // Links are applied before the sites that they belong to.
    let link_of = |name: &str| Change::Link(name.into(), Some(link));
    let all = [
        link_of("cloud"),
        node("a", json!({"node": "a"}), "1"),
        node("b", json!({"node": "b"}), "1"),
        to("a", "1"),
        to("b", "2"),
        to("b", "3"),
    ];
    assert_eq!(tell(&all), ("a".to_owned(), vec!["a 100".to_owned()], Some(link)));
    let of_b = ("b".to_owned(), vec!["b 200".to_owned()], Some(link));
    assert_eq!(tell(&[Change::Settings(sites("b"))]), of_b);
    assert_eq!(tell(&[Change::Settings(sites("b"))]), of_b);
    assert_eq!(tell(&[Change::PodGone("2".into())]).1, ["b 100"]);
}

#[test]
fn gated_pod_age_is_independent_of_publish_time() {
    let mut engine = Engine::new(Arc::default(), Arc::default());
    let stated = NOW.wall - jiff::SignedDuration::from_secs(5);
    let pod = json!({
        "metadata": {"name": "p", "namespace": "shop", "uid": "p", "resourceVersion": "1", "creationTimestamp": stated.to_string(),
                     "annotations": {"scheduling.example.io/timestamp": stated.to_string()}},
        "spec": {"schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}]},
    });
    Kind::REQUIRED
        .into_iter()
        .for_each(|kind| engine.apply(&Change::ListEnded(kind), NOW));
    engine.apply(&record(&pod), NOW);
    let plan = engine.publish(NOW.at(NOW.moment.after(Micros::from_secs(100)))).plan;
    assert_eq!(plan.unwrap().oldest, Some(NOW.moment.before(Micros::from_secs(5))));
}

/// The change that a watch reports for a pod.
fn record(pod: &Value) -> Change {
    Change::Pod(Box::new(crate::testkit::record(pod, &Config::default().keys)))
}

#[test]
fn each_new_decision_is_reported_once() {
    let mut engine = Engine::new(Arc::default(), Arc::default());
    let ago = |seconds| NOW.wall - jiff::SignedDuration::from_secs(seconds);
    let pod = |uid: &str, decided: jiff::Timestamp, id: u32, selector: &str| {
        let pod = json!({
            "metadata": {"name": uid, "namespace": "shop", "uid": uid, "creationTimestamp": ago(1).to_string(), "annotations": {
                "scheduling.example.io/decision-id": format!("00000000-0000-4000-8000-{id:012}"),
                "scheduling.example.io/reason": "cloud_best_effort",
                "scheduling.example.io/site": "cloud",
                "scheduling.example.io/timestamp": decided.to_string(),
            }},
            "spec": {"nodeSelector": {selector: "true"}},
        });
        record(&pod)
    };
    let mut tells = |changes: Vec<Change>| {
        changes.iter().for_each(|change| engine.apply(change, NOW));
        let told = |effect| match effect {
            Effect::Decided(observed) => Some((observed.uid, observed.site.map(|(name, _)| name))),
            _ => None,
        };
        engine
            .publish(NOW)
            .effects
            .into_iter()
            .filter_map(told)
            .collect::<Vec<_>>()
    };
    let is = |uid: &str, site: Option<&str>| vec![(Box::from(uid), site.map(str::to_owned))];
    let cloud = "node.role/cloud";

    // In a namespace that has not opted in, anyone may write these annotations.
    assert_eq!(tells(vec![pod("forged", ago(0), 9, cloud)]), []);
    // The pod existed before this engine started but was decided recently. Its leader may have ended before it reported the
    // decision.
    let began = [Change::Namespace("shop".into(), true), Change::ListBegan(Kind::Pods)];
    assert_eq!(
        tells(began.into_iter().chain([pod("a", ago(2), 1, cloud)]).collect()),
        is("a", Some("cloud"))
    );
    let old = ago(3_600);
    assert_eq!(tells(vec![pod("b", old, 2, cloud), Change::ListEnded(Kind::Pods)]), []);
    assert_eq!(tells(vec![pod("a", ago(2), 1, cloud), pod("b", old, 2, cloud)]), []);
    assert_eq!(tells(vec![pod("a", ago(0), 3, cloud)]), is("a", Some("cloud")));
    // A copy of a manifest that was decided an hour ago.
    assert_eq!(tells(vec![pod("c", old, 4, cloud)]), []);
    // A decision lies in the future only within clock skew. Beyond that it is forged, and would count as recent after each
    // start.
    assert_eq!(tells(vec![pod("f", ago(-120), 7, cloud)]), []);
    assert_eq!(tells(vec![pod("g", ago(-30), 8, cloud)]), is("g", Some("cloud")));
    // The site comes from the pod's spec.
    assert_eq!(
        tells(vec![pod("d", ago(1), 5, "node.role/edge")]),
        is("d", Some("edge"))
    );
    assert_eq!(tells(vec![pod("e", ago(1), 6, "none")]), is("e", None));
}

#[test]
fn opting_out_forgets_decisions_of_the_namespace() {
    let pod = |name: &str, second: u32, annotations: Value| {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "shop", "uid": name, "annotations": annotations,
                "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            },
            "spec": {"nodeName": "n"},
        });
        record(&pod)
    };
    let bound_after = |between: &[Change]| {
        let mut engine = Engine::new(Arc::default(), Arc::default());
        let decided = json!({"scheduling.example.io/decision-id": "00000000-0000-4000-8000-000000000001"});
        let mut changes = vec![
            Change::Namespace("shop".into(), true),
            pod("decided", 0, decided),
            pod("missed", 10, json!({"slo.example.io/class": "batch"})),
        ];
        changes.extend_from_slice(between);
        changes.extend(Kind::REQUIRED.map(Change::ListEnded));
        changes.iter().for_each(|change| engine.apply(change, NOW));
        engine.publish(NOW).report.unwrap().bound
    };
    let namespace = |is_managed| Change::Namespace("shop".into(), is_managed);
    assert_eq!(bound_after(&[namespace(true)]), 1);
    assert_eq!(bound_after(&[namespace(false), namespace(true)]), 0);
}

#[test]
fn one_pod_finds_out_whether_a_slow_cloud_has_become_faster() {
    let fleet = json!({
        "sites": [{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud", "wan": {"rttMs": 25, "lossPct": 0}}],
        "nodes": [
            {"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": "1", "pods": 9}, "used": {"cpu": "1"}},
            {"name": "c", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": "64", "memory": "64Gi", "pods": 99}},
        ],
    });
    let mut snapshot = testkit::snapshot(&fleet);
    let seconds = Micros::from_secs;
    let slow = JobTime {
        time: ProcessingTime::all(seconds(20)),
        as_of: Some(NOW.moment),
    };
    let classes = [("shop".into(), PerClass([Some(slow); 3]))].into();
    snapshot.sites[1].job_times = Arc::new(JobTimes {
        classes,
        ..JobTimes::default()
    });
    let shared = SharedState::new(Arc::new(snapshot), TTL);
    let config = Config::read(&json!({"telemetryCacheTTL": "24h", "onNoCapacity": "edge"})).unwrap();
    let mut ids = 0..;
    let mut site = |minute: u64, class: &str, priority: &str| {
        let annotations = json!({
            "slo.example.io/class": class, "slo.example.io/deadlineMs": "15000", "slo.example.io/priority": priority,
        });
        let pod = json!({
            "metadata": {"name": "p", "annotations": annotations},
            "spec": {"containers": [{"resources": {"requests": {"cpu": "500m"}}}]},
        });
        let context = DecisionContext {
            config: &config,
            id: edgeward_decision::model::decision_id::DecisionId(ids.next().unwrap()),
            now: NOW.at(NOW.moment.after(seconds(60 * minute))),
        };
        let read = std::cell::OnceCell::new();
        let workload = testkit::workload(&pod, &config.keys);
        let verdict = shared.review(&read, &workload, context, || true);
        let chosen = verdict.chosen().unwrap();
        (chosen.site.name().to_owned(), chosen.is_trial)
    };
    let (edge, trial) = (("edge".to_owned(), false), ("cloud".to_owned(), true));
    // In an hour, the time falls from 20 s to nothing.
    assert_eq!(site(15, "batch", "5"), edge);
    let urgent = ("cloud".to_owned(), false);
    assert_eq!(site(16, "latency", "7"), urgent);
    assert_eq!(site(16, "batch", "5"), trial);
    assert_eq!(site(17, "batch", "5"), edge);
    assert_eq!(site(17, "throughput", "5"), trial);
    assert_eq!(site(26, "batch", "5"), trial);
}
