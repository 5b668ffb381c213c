//! Reports of the clusters behind sites.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::decision_id::DecisionId;
use crate::model::report::{ReportSource, Shapes, SiteReport};
use crate::model::workload::QueueKey;
use crate::placement::ledger::{Ledger, Reservation};
use crate::placement::verdict::Standing;

/// How many of 50 pods of one core go to the cloud in a burst that reaches one of these replicas. The edge is full.
fn in_a_burst(replicas: u32, room: &Value) -> usize {
    let fleet = with(fleet(4000), "/sites/1/reported", json!({"room": room}));
    let snapshot = testkit::snapshot(&fleet);
    let mut ledger = Ledger::new(Config::default().reservation_ttl);
    ledger.set_replicas(replicas);
    let workload = workload(&with(
        pod(json!({})),
        "/spec/containers/0/resources/requests/cpu",
        json!("1"),
    ));
    let goes = |number| {
        let room = Room::new(&snapshot, &ledger, QueueKey::LAST, "shop").of_arrival();
        let verdict = decide(&workload, &room, &ungated(), NOW);
        let site = verdict.site().is_some_and(|site| site.name() == "cloud");
        let node = verdict.node.filter(|_| site)?;
        let reservation = Reservation::new(DecisionId(number), &workload, "cloud", node);
        ledger.reserve(reservation, NOW.moment, |_| true).then_some(())
    };
    (0..50).filter_map(goes).count()
}

#[test]
fn burst_takes_at_most_the_reported_room() {
    let room = json!([{"cpu": "4", "memory": "8Gi", "pods": 100, "nodes": 3}, {"cpu": "2500m", "memory": "8Gi", "pods": 100, "nodes": 2}]);
    assert_eq!(in_a_burst(1, &room), 16);
    assert_eq!(in_a_burst(4, &room), 4);
    assert_eq!(in_a_burst(1, &json!([])), 0);
    let slots = json!([{"cpu": "64", "memory": "8Gi", "pods": 3, "nodes": 1}]);
    assert_eq!(in_a_burst(1, &slots), 3);
}

/// Shapes, which traits are trusted, and which are reported.
type Reported = (Vec<(u32, u32, u32, u32)>, Vec<bool>, Vec<bool>);

fn reports() -> impl Strategy<Value = Reported> {
    let shape = (0_u32..80, 0_u32..300, 0_u32..4, 0_u32..3);
    let booleans = || prop::collection::vec(any::<bool>(), 3);
    (prop::collection::vec(shape, 0..6), booleans(), booleans())
}

#[test]
fn profile_prefers_the_cloud_that_has_the_component() {
    let scores = |site: &str, with: f64| {
        let scores = [[with; 17], [0.5; 17]].concat();
        json!({"site": site, "score": scores, "ageSeconds": 1})
    };
    let mut fleet = two_clouds();
    fleet["nodes"][0]["used"] = json!({"cpu": "4", "pods": 5});
    fleet["profiles"] = json!([{
        "name": "present", "better": "higher", "margin": 0.05, "stalenessSeconds": 60, "preferred": "near",
        "scores": [scores("near", 1.0), scores("far", 1.0)],
    }]);
    let of_db = pod(json!({"profile": "present", "group": "app", "component": "db"}));
    let site = |fleet: &Value, pod: &Value| outcome(fleet, pod).split(':').next().unwrap().to_owned();
    assert_eq!(site(&fleet, &of_db), "near");
    fleet["sites"][1]["components"] = json!([{"name": "db"}]);
    assert_eq!(site(&fleet, &of_db), "far");
    let of_web = pod(json!({"profile": "present", "group": "app", "component": "web"}));
    assert_eq!(site(&fleet, &of_web), "near");
    fleet["sites"][1]["groupPods"] = json!([{"namespace": "shop", "group": "app", "component": "web"}]);
    assert_eq!(site(&fleet, &of_web), "far");
}

/// The traits that generated pods ask for.
const TRAITS: [&str; 3] = ["A", "B", "C"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn report_makes_no_site_better(fleet in testkit::fleet(), pod in testkit::pod(), report in reports()) {
        let (shapes, trusted, reported) = report;
        let chosen = |of: &[bool]| -> Vec<String> {
            TRAITS.iter().zip(of).filter(|(_, is)| **is).map(|(name, _)| (*name).to_owned()).collect()
        };
        let shapes: Vec<_> = shapes.iter().map(|(cpu, memory, pods, nodes)| {
            json!({"cpu": cpu, "memory": format!("{memory}Gi"), "pods": pods, "nodes": nodes})
        }).collect();
        let room: Shapes = serde_json::from_value(json!(shapes)).unwrap();
        let without = testkit::snapshot(&fleet);
        let mut with = without.clone();
        for site in with.sites.iter_mut().filter(|site| site.kind() == SiteKind::Cloud) {
            let source: ReportSource =
                serde_json::from_value(json!({"kubeconfigSecretRef": {"name": "s"}, "trustTraits": chosen(&trusted)})).unwrap();
            Arc::make_mut(&mut site.definition).report = Some(source);
            site.report = Some(Arc::new(SiteReport {
                as_of: NOW.moment,
                room: room.clone(),
                traits: chosen(&reported),
                ..SiteReport::default()
            }));
        }
        let config = Config::default();
        let workload = testkit::workload(&pod, &config.keys);
        let standings = |snapshot: &Snapshot| -> Vec<Standing> {
            let verdict = decide(&workload, &Room::of(snapshot), &config, NOW);
            verdict.sites.iter().map(|site| site.standing()).collect()
        };
        for (without, with) in standings(&without).into_iter().zip(standings(&with)) {
            prop_assert!(with >= without, "{without:?} became {with:?}");
        }
    }
}
