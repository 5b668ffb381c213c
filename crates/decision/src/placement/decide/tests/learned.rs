//! The learned scorer ranks good clouds and changes nothing else.

use std::cell::Cell;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use super::*;
use crate::config::{Explain, ScorerMode};
use crate::model::scorer::{MAX_FEATURE, Network, Scorer, WIDTH};
use crate::placement::explain::explain;
use crate::placement::features::{CloudScores, features};
use crate::placement::patch::{Stamp, patch};
use crate::placement::sentences;
use crate::testkit::{of_network, scorer};
use edgeward_kube::units::Moment;

fn config(mode: ScorerMode) -> Config {
    let mut config = ungated();
    config.scorer.mode = mode;
    config
}

/// A full edge, a cheap far cloud and a dear near one.
fn clouds() -> Value {
    let fleet = with(two_clouds(), "/nodes/0/used", json!({"cpu": 4}));
    let fleet = with(fleet, "/sites/1/costPerHour", json!(0.1));
    with(fleet, "/sites/2/costPerHour", json!(0.4))
}

fn cheapest() -> Scorer {
    scorer("costOverDearest", -4_096)
}

fn with_scorer<T>(scorer: Scorer, fleet: &Value, mode: ScorerMode, read: impl FnOnce(&Verdict<'_>) -> T) -> T {
    let mut snapshot = testkit::snapshot(fleet);
    snapshot.scorer = Some(Arc::new(scorer));
    let config = config(mode);
    read(&decide_with_scores(
        &workload(&pod(json!({}))),
        &Room::of(&snapshot),
        &config,
        NOW,
    ))
}

fn placed(verdict: &Verdict<'_>) -> String {
    let site = verdict.site().map_or("-", |site| site.name());
    format!("{site}: {}", verdict.reason.as_str())
}

#[test]
fn active_scorer_ranks_good_clouds() {
    let site = |fleet: &Value, mode| with_scorer(cheapest(), fleet, mode, placed);
    assert_eq!(site(&clouds(), ScorerMode::Active), "far: cloud_learned");
    assert_eq!(site(&clouds(), ScorerMode::Shadow), "near: cloud_edge_no_capacity");
    assert_eq!(site(&clouds(), ScorerMode::Off), "near: cloud_edge_no_capacity");
    // Never the edge against a cloud, and not a full cloud.
    assert_eq!(site(&two_clouds(), ScorerMode::Active), "edge: edge_no_slo_target");
    let full = with(clouds(), "/nodes/1/used", json!({"cpu": 9}));
    assert_eq!(site(&full, ScorerMode::Active), "near: cloud_edge_no_capacity");
}

#[test]
fn difference_below_the_margin_leaves_the_choice_to_the_rules() {
    // 1 and 1/4: the lead is 3/4.
    let with_margin = |margin| {
        let scorer = Scorer { margin, ..cheapest() };
        with_scorer(scorer, &clouds(), ScorerMode::Active, placed)
    };
    assert_eq!(with_margin(3_072), "far: cloud_learned");
    assert_eq!(with_margin(3_073), "near: cloud_edge_no_capacity");
    let zero = with_scorer(of_network(Network::default()), &clouds(), ScorerMode::Active, placed);
    assert_eq!(zero, "near: cloud_edge_no_capacity");
}

#[test]
fn scores_are_explained_where_they_decide() {
    let short = |mode| {
        with_scorer(cheapest(), &clouds(), mode, |verdict| {
            explain(verdict, Explain::Short).unwrap()
        })
    };
    let explained: Value = serde_json::from_str(&short(ScorerMode::Active)).unwrap();
    assert_eq!(explained["far"]["learned"], json!(-0.25));
    assert_eq!(explained["edge"].get("learned"), None);
    assert_eq!(short(ScorerMode::Shadow), short(ScorerMode::Off));
    let line = with_scorer(cheapest(), &clouds(), ScorerMode::Shadow, |verdict| {
        sentences::learned(verdict).unwrap()
    });
    assert_eq!(line, "scorer=shadow far=-0.25 near=-1, chooses far; sitePolicy: near");
}

#[test]
fn features_are_ratios_of_what_the_snapshot_shows() {
    let fleet = with(clouds(), "/sites/2/ownedPods", json!({"shop": {"u": 3}}));
    let fleet = with(fleet, "/sites/1/ownedPods", json!({"shop": {"u": 1}}));
    let snapshot = testkit::snapshot(&fleet);
    let pod = with(
        pod(json!({"class": "batch", "deadlineMs": "1000", "priority": "10"})),
        "/metadata/ownerReferences",
        json!([{"uid": "u", "controller": true, "kind": "Job", "name": "j"}]),
    );
    let found = features(&workload(&pod), &snapshot, &Config::default(), NOW.moment).unwrap();
    let share = |part: i64, whole: i64| part * 4_096 / whole;
    // Of 9 cores, 9Gi, 16 nodes, 1 s, 100 ms and 2 %.
    let far = [
        share(500, 9_000),
        share(256, 9 * 1_024),
        share(1, 16),
        share(1_100, 1_000),
        0,
        share(80, 1_000),
        share(1_180, 1_000),
        share(80, 100),
        0,
        share(1, 4),
        share(1, 4),
        0,
        4_096,
        4_096,
        0,
        4_096,
    ];
    assert_eq!(found[0], far);
    assert_eq!([found[1][9], found[1][10]], [4_096, share(3, 4)]);
}

#[test]
fn scores_count_while_the_snapshot_has_the_same_clouds() {
    let mut snapshot = testkit::snapshot(&clouds());
    snapshot.scorer = Some(Arc::new(cheapest()));
    let (config, workload) = (config(ScorerMode::Active), workload(&pod(json!({}))));
    let before = CloudScores::of(&workload, &snapshot, &config, NOW.moment);
    let decided = |snapshot: &Snapshot| {
        let room = Room::of(snapshot).with_scores(before.as_ref());
        placed(&decide(&workload, &room, &config, NOW))
    };
    // A decision computes no scores itself.
    snapshot.scorer = None;
    snapshot.revision += 1;
    assert_eq!(decided(&snapshot), "far: cloud_learned");
    snapshot.sites.swap(1, 2);
    assert_eq!(decided(&snapshot), "near: cloud_edge_no_capacity");
}

#[test]
fn pod_that_may_not_leave_the_edge_has_no_scores() {
    let mut snapshot = testkit::snapshot(&clouds());
    snapshot.scorer = Some(Arc::new(cheapest()));
    let has_scores = |annotations: Value, mode| {
        let workload = workload(&pod(annotations));
        CloudScores::of(&workload, &snapshot, &config(mode), NOW.moment).is_some()
    };
    assert!(has_scores(json!({}), ScorerMode::Shadow));
    assert!(!has_scores(json!({}), ScorerMode::Off));
    assert!(!has_scores(json!({"offloadAllowed": "false"}), ScorerMode::Active));
}

#[test]
fn link_that_is_not_fresh_counts_as_unknown() {
    let mut snapshot = testkit::snapshot(&clouds());
    let late = snapshot.sites[1].link.as_mut().unwrap();
    late.as_of = Moment(0);
    let now = Moment(i64::try_from(Config::default().telemetry_ttl.0).unwrap() + 1);
    let found = features(&workload(&pod(json!({}))), &snapshot, &Config::default(), now).unwrap();
    // WAN, ETA, RTT and loss.
    assert_eq!(found[0][5..9], [MAX_FEATURE; 4]);
}

/// Networks with random, saturated and zero weights.
fn networks() -> impl Strategy<Value = Network> {
    let random = || prop::array::uniform16(any::<i16>());
    let random = (
        prop::array::uniform4(random()),
        prop::collection::vec(random(), 3 * WIDTH),
    );
    let random = random.prop_map(|([first_bias, second_bias, last_weights, last], rows)| {
        let rows = |from: usize| std::array::from_fn(|i| rows[from + i]);
        Network {
            first_weights: rows(0),
            first_bias,
            second_weights: rows(WIDTH),
            mean_weights: rows(2 * WIDTH),
            second_bias,
            last_weights,
            last_bias: last[0],
        }
    });
    let all = |weight: i16| Network {
        first_weights: [[weight; WIDTH]; WIDTH],
        first_bias: [weight; WIDTH],
        second_weights: [[weight; WIDTH]; WIDTH],
        mean_weights: [[weight; WIDTH]; WIDTH],
        second_bias: [weight; WIDTH],
        last_weights: [weight; WIDTH],
        last_bias: weight,
    };
    // The dearest, farthest and slowest cloud.
    let worst = scorer("etaOverBound", i16::MAX).network;
    prop_oneof![
        4 => random,
        1 => Just(all(i16::MAX)),
        1 => Just(all(i16::MIN)),
        1 => Just(Network::default()),
        1 => Just(worst),
    ]
}

/// Every byte that a verdict writes, and the choice.
fn written(verdict: &Verdict<'_>, text: &str, config: &Config) -> String {
    let pod = Pod::from_json(text).unwrap();
    let stamp = Stamp {
        at: NOW.wall,
        id: "id".into(),
    };
    let patch = json!(patch(&pod, verdict, config, &stamp));
    let full = explain(verdict, Explain::Full);
    format!(
        "{patch} {full:?} {:?} {:?} {:?}",
        verdict.reason, verdict.node, verdict.warnings
    )
}

/// Scorers with any network, a margin of at most 2, and for each feature the widest range or one value.
fn scorers() -> impl Strategy<Value = Scorer> {
    (networks(), 0..=8_192_u32, any::<[bool; WIDTH]>()).prop_map(|(network, margin, is_narrow)| {
        let scorer = of_network(network);
        let mut ranges = scorer.ranges;
        for (range, is_narrow) in ranges.iter_mut().zip(is_narrow) {
            if is_narrow {
                *range = [1_024, 1_024];
            }
        }
        Scorer {
            margin,
            ranges,
            ..scorer
        }
    })
}

/// This fleet with two more clouds that have room, and an edge that takes no pod.
fn beside_clouds(mut fleet: Value) -> Value {
    // Generated fleets have clouds with these names.
    let more = clouds()
        .to_string()
        .replace("\"far\"", "\"west\"")
        .replace("\"near\"", "\"east\"");
    let more: Value = more.parse().unwrap();
    for list in ["sites", "nodes"] {
        let own = fleet[list].as_array_mut().unwrap();
        for node in own.iter_mut().filter(|one| one["labels"]["node.role/edge"] == "true") {
            node["unschedulable"] = json!(true);
        }
        own.extend(more[list].as_array().unwrap()[1..].iter().cloned());
    }
    fleet
}

/// The choice is a good cloud, whatever the scorer is. Shadow changes no byte, and neither does a scorer without two clouds to choose
/// from. `PROPTEST_CASES` asks for more cases, as `cargo xtask soak` does.
#[test]
fn scorer_only_ranks_feasible_clouds() {
    let cases = ProptestConfig::default().cases.max(2_000);
    let (compared, chosen) = (Cell::new(0), Cell::new(0));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases));
    let inputs = (testkit::fleet(), any::<bool>(), testkit::pod(), scorers());
    let outcome = runner.run(&inputs, |(fleet, has_clouds, pod, scorer)| {
        let fleet = if has_clouds { beside_clouds(fleet) } else { fleet };
        let mut snapshot = testkit::snapshot(&fleet);
        snapshot.scorer = Some(Arc::new(scorer));
        let text = pod.to_string();
        let workload = workload(&pod);
        let [off, shadow, active] = ScorerMode::ALL.map(|mode| {
            let config = config(mode);
            let verdict = decide_with_scores(&workload, &Room::of(&snapshot), &config, NOW);
            let written = written(&verdict, &text, &config);
            (verdict, written)
        });
        prop_assert_eq!(&off.1, &shadow.1);
        let good = off.0.sites.iter().filter(|site| site.is_good() && !rank::is_edge(site));
        let good: Vec<_> = good.map(|site| site.site.name()).collect();
        match active.0.learned.as_ref().and_then(|learned| learned.choice) {
            None if active.0.learned.is_none() => prop_assert_eq!(&off.1, &active.1),
            None => prop_assert_eq!(placed(&off.0), placed(&active.0)),
            Some(choice) => {
                prop_assert!(good.len() > 1 && good.contains(&choice.name()));
                prop_assert_eq!(active.0.site().map(Site::name), Some(choice.name()));
                let kind = |verdict: &Verdict<'_>| verdict.site().map(Site::kind);
                prop_assert_eq!(kind(&off.0), kind(&active.0));
            }
        }
        if good.len() < 2 {
            prop_assert_eq!(off.1, active.1);
        }
        compared.set(compared.get() + u32::from(active.0.learned.is_some()));
        chosen.set(chosen.get() + u32::from(active.0.learned.is_some_and(|learned| learned.choice.is_some())));
        Ok(())
    });
    outcome.unwrap();
    let (compared, chosen) = (compared.get(), chosen.get());
    assert!(compared.min(chosen) > cases / 50, "{compared} and {chosen} of {cases}");
}
