use edgeward_decision::testkit;
use edgeward_decision::testkit::NOW;
use serde_json::{Value, json};

use super::*;

/// Two edge nodes, one of which is full to the half, a cloud node behind 25 ms, and a site behind no WAN.
fn fleet() -> Value {
    let node = |name: &str, site: &str, used: u32| json!({"name": name, "labels": {"s": site, "example.com/carbon": "200"}, "allocatable": {"cpu": 4, "memory": "8Gi", "pods": 10}, "used": {"cpu": used, "pods": used}});
    json!({
        "sites": [
            {"name": "edge", "kind": "edge", "nodeSelector": {"s": "edge"}, "costPerHour": 0.5, "queues": [{"class": "batch", "waiting": 2}]},
            {"name": "cloud", "kind": "cloud", "nodeSelector": {"s": "cloud"}, "wan": {"rttMs": 25, "lossPct": 0.5, "ageSeconds": 10}},
            {"name": "dark", "kind": "cloud", "nodeSelector": {"s": "dark"}},
        ],
        "nodes": [node("e1", "edge", 0), node("e2", "edge", 2), node("c1", "cloud", 0), node("d1", "dark", 0)],
    })
}

fn series(labels: &[(&str, &str)], value: f64, age: u64) -> Series {
    Series {
        labels: labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        value,
        at: NOW.moment.before(Micros::from_secs(age)),
    }
}

fn evaluated(fleet: &Value, equation: &str, metrics: Value, series: &[Series]) -> Evaluation {
    let spec = json!({"better": "lower", "equation": equation, "metrics": metrics, "staleness": "60s"});
    let profile = Profile::read(&spec).unwrap();
    let mut snapshot = testkit::snapshot(fleet);
    let with_addresses = |node: &mut Arc<Node>| {
        let address = format!("10.0.0.{}", &node.name[1..]);
        Arc::make_mut(node).profiled.addresses = vec![address.into(), "fd00::1".into()];
    };
    Arc::make_mut(&mut snapshot.sites[0].nodes)
        .iter_mut()
        .for_each(with_addresses);
    score(
        &profile,
        &snapshot,
        &Config::default(),
        |_| Some((series, None)),
        NOW.moment,
    )
}

/// The score of a site for a pod that misses no trait, or why there is none.
fn of(evaluation: &Evaluation, site: &str) -> String {
    let score = evaluation.scores.get(site).map(|score| score.by_missing[0].to_string());
    score
        .or_else(|| evaluation.unscored.get(site).cloned())
        .unwrap_or_default()
}

fn metric(over: Value) -> Value {
    let mut metric = json!({"name": "a", "normMin": 0, "normMax": 100});
    for (name, value) in over.as_object().unwrap() {
        metric[name] = value.clone();
    }
    json!([metric])
}

#[test]
fn built_in_metrics_are_scored_per_site() {
    for (built_in, most, edge, cloud, dark) in [
        ("rtt_ms", 100, "0", "0.25", "a: nothing is known of its WAN"),
        ("loss_pct", 1, "0", "0.5", "a: nothing is known of its WAN"),
        (
            "cost_per_hour",
            1,
            "0.5",
            "a: its cost is not stated (costPerHour)",
            "a: its cost is not stated (costPerHour)",
        ),
        // Of nodes, by their mean: 4 and 2 cores.
        ("free_cpu", 4, "0.75", "1", "1"),
        ("pods", 10, "0.1", "0", "0"),
        ("missing_optional_traits", 16, "0", "0", "0"),
    ] {
        let found = evaluated(
            &fleet(),
            "cm_normalized_a",
            metric(json!({"builtIn": built_in, "normMax": most})),
            &[],
        );
        assert_eq!(
            ["edge", "cloud", "dark"].map(|site| of(&found, site)),
            [edge, cloud, dark],
            "{built_in}"
        );
    }
    // 2.0 ms for each of 1,000 millicores and 100 ms, three times at the edge; and 25 ms in the cloud.
    let eta = metric(json!({"builtIn": "eta_ms", "class": "batch", "normMax": 10_000}));
    let found = evaluated(&fleet(), "cm_normalized_a", eta, &[]);
    assert_eq!(
        (of(&found, "edge"), of(&found, "cloud")),
        ("0.63".to_owned(), "0.213".to_owned())
    );
    assert_eq!(found.scores["cloud"].as_of, NOW.moment.before(Micros::from_secs(10)));
    assert_eq!(found.scores["edge"].as_of, NOW.moment);
}

#[test]
fn energy_is_scored_where_it_is_stated_and_measured() {
    let mut fleet = fleet();
    let traffic =
        |source: &str, target: &str, bytes: u64| json!({"source": source, "target": target, "bytesPerSecond": bytes});
    let score = |fleet: &Value, built_in: &str| {
        let found = evaluated(
            fleet,
            "cm_normalized_a",
            metric(json!({"builtIn": built_in, "normMax": 1_000})),
            &[],
        );
        ["edge", "cloud", "dark"].map(|site| of(&found, site))
    };
    let unknown = "a: the energy is not stated (energy), or the traffic not measured";
    fleet["links"] = json!([
        traffic("edge", "cloud", 1_000_000_000),
        traffic("edge", "dark", 500_000_000)
    ]);
    assert_eq!(score(&fleet, "network_watts"), [unknown; 3]);
    assert_eq!(score(&fleet, "link_watts"), ["0", unknown, unknown]);
    fleet["sites"][0]["energy"] = json!({"joulesPerGigabyte": 100});
    fleet["sites"][1]["energy"] = json!({"joulesPerGigabyte": 300, "joulesPerMillionPackets": 10, "idleWatts": 5});
    assert_eq!(score(&fleet, "network_watts"), ["0.15", unknown, unknown]);
    let back = json!({"source": "cloud", "target": "edge", "bytesPerSecond": 0, "packetsPerSecond": 2_000_000});
    fleet["links"].as_array_mut().unwrap().push(back);
    assert_eq!(score(&fleet, "network_watts"), ["0.15", "0.025", unknown]);
    assert_eq!(score(&fleet, "link_watts"), ["0", "0.125", unknown]);
    assert_eq!(score(&fleet, "flow_joules_per_gigabyte"), ["0", "0.42", unknown]);
}

#[test]
fn series_are_assigned_to_sites_and_nodes() {
    let by = |by: &str, series: &[Series]| {
        let found = evaluated(
            &fleet(),
            "cm_normalized_a",
            metric(json!({"promQL": "x", "by": by})),
            series,
        );
        ["edge", "cloud"].map(|site| of(&found, site))
    };
    let site = |name: &str, value| series(&[("site", name)], value, 1);
    assert_eq!(
        by("site", &[site("edge", 40.0), site("cloud", 250.0), site("moon", 1.0)]),
        ["0.4", "1"]
    );
    assert_eq!(
        by("site", &[site("edge", -3.0)]),
        ["0", "a: no series with its label site"]
    );
    assert_eq!(
        by("site", &[site("edge", 1.0), site("edge", 1.0)])[0],
        "a: ambiguous: several series"
    );
    assert_eq!(
        by("site", &[site("edge", f64::NAN), site("cloud", f64::INFINITY)]),
        ["a: NaN is no number", "a: inf is no number"]
    );
    let old = series(&[("site", "edge")], 40.0, 61);
    assert_eq!(by("site", &[old])[0], "a: 61 s old, and stale");
    let node = |name: &str, value| series(&[("node", name)], value, 1);
    assert_eq!(
        by("node", &[node("e1", 10.0), node("e2", 30.0), node("c1", 5.0)]),
        ["0.2", "0.05"]
    );
    assert_eq!(
        by("node", &[node("e1", 10.0)])[0],
        "a: no series with its label node for node e2"
    );
    let instance = |name: &str, value| series(&[("instance", name)], value, 1);
    assert_eq!(
        by(
            "instance",
            &[
                instance("10.0.0.1:9100", 10.0),
                instance("10.0.0.2", 30.0),
                instance("c1:1", 7.0)
            ]
        ),
        ["0.2", "0.07"]
    );
    // Both nodes have this address.
    let shared = [instance("[fd00::1]:9100", 10.0), instance("10.0.0.2:9100", 10.0)];
    assert_eq!(by("instance", &shared)[0], "a: ambiguous: several series for node e1");
}

#[test]
fn site_score_is_mean_or_maximum_of_its_nodes() {
    let spec = |aggregate: &str| {
        json!({"better": "lower", "equation": "cm_normalized_a", "aggregate": aggregate,
        "metrics": metric(json!({"builtIn": "pods", "normMax": 10}))})
    };
    let snapshot = testkit::snapshot(&fleet());
    let of = |aggregate: &str| {
        let profile = Profile::read(&spec(aggregate)).unwrap();
        score(&profile, &snapshot, &Config::default(), |_| None, NOW.moment).scores["edge"].by_missing[0]
    };
    assert_eq!((of("mean"), of("max")), (Score(100_000), Score(200_000)));
}

#[test]
fn unusable_node_does_not_count_and_site_needs_a_usable_one() {
    let mut fleet = fleet();
    fleet["nodes"][1]["unschedulable"] = json!(true);
    fleet["nodes"][2]["ready"] = json!(false);
    let found = evaluated(
        &fleet,
        "cm_normalized_a",
        metric(json!({"nodeLabel": "example.com/carbon", "normMax": 800})),
        &[],
    );
    assert_eq!(
        (of(&found, "edge"), of(&found, "cloud")),
        ("0.25".to_owned(), "it has no usable node".to_owned())
    );
    fleet["nodes"][0]["labels"]["example.com/carbon"] = json!("low");
    let found = evaluated(
        &fleet,
        "cm_normalized_a",
        metric(json!({"nodeLabel": "example.com/carbon"})),
        &[],
    );
    assert_eq!(
        of(&found, "edge"),
        "a: label example.com/carbon is no number for node e1"
    );
}

#[test]
fn site_has_a_score_per_number_of_missing_optional_traits() {
    let metrics = json!([
        {"name": "missing", "normMin": 0, "normMax": 16, "builtIn": "missing_optional_traits"},
        {"name": "pods", "normMin": 0, "normMax": 10, "builtIn": "pods"},
    ]);
    let found = evaluated(
        &fleet(),
        "160.0 * cm_normalized_missing + cm_normalized_pods",
        metrics,
        &[],
    );
    let scores = &found.scores["edge"].by_missing;
    assert_eq!(
        (scores.len(), scores[0], scores[1], scores[16]),
        (17, Score(100_000), Score(10_100_000), Score(160_100_000))
    );
}

#[test]
fn site_has_scores_with_and_without_the_component() {
    let metrics = json!([
        {"name": "missing", "normMin": 0, "normMax": 16, "builtIn": "missing_optional_traits"},
        {"name": "here", "normMin": 0, "normMax": 1, "builtIn": "component_present"},
    ]);
    let equation = "16.0 * cm_normalized_missing + 100.0 * cm_normalized_here";
    let found = evaluated(&fleet(), equation, metrics, &[]);
    let scores = &found.scores["edge"].by_missing;
    let millions = |at: usize| scores[at].0 / 1_000_000;
    assert_eq!(
        (scores.len(), [0, 1, 16, 17, 18, 33].map(millions)),
        (34, [100, 101, 116, 0, 1, 16])
    );
}

#[test]
fn node_without_finite_number_leaves_only_its_site_unscored() {
    let found = evaluated(
        &fleet(),
        "1.0 / cm_normalized_a",
        metric(json!({"builtIn": "pods", "normMax": 10})),
        &[],
    );
    assert_eq!(of(&found, "edge"), "the equation gives no finite number");
    let found = evaluated(
        &fleet(),
        "1.0 / (1.0 - cm_normalized_a)",
        metric(json!({"builtIn": "pods", "normMax": 2})),
        &[],
    );
    assert_eq!(
        (of(&found, "edge"), of(&found, "cloud")),
        ("the equation gives no finite number".to_owned(), "1".to_owned())
    );
}

#[test]
fn unanswered_query_states_its_cause() {
    let spec = json!({"better": "lower", "equation": "cm_normalized_a", "metrics": metric(json!({"promQL": "x", "by": "site"}))});
    let profile = Profile::read(&spec).unwrap();
    let snapshot = testkit::snapshot(&fleet());
    let why = |answer: Option<Answer<'static>>| {
        of(
            &score(&profile, &snapshot, &Config::default(), |_| answer, NOW.moment),
            "edge",
        )
    };
    assert_eq!(why(None), "a: not asked yet");
    assert_eq!(
        why(Some((&[], Some("unreachable: refused")))),
        "a: unreachable: refused"
    );
}
