//! Gated pods that are restricted to some sites.

use std::cell::OnceCell;

use super::*;
use crate::engine::{DecisionContext, SharedState};
use edgeward_decision::config::{OnNoCapacity, SitePolicy};
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::slo::PerClass;
use edgeward_decision::model::snapshot::Snapshot;

/// A demand on sites, and the sites of [`labelled`] that meet it.
const DEMANDS: [(&str, &[&str]); 6] = [
    ("edge", &["edge"]),
    ("far,virtual", &["far", "virtual"]),
    ("region=eu", &["edge", "far"]),
    ("region!=eu", &["cloud", "virtual"]),
    ("region in (mars)", &[]),
    ("cloud,edge", &["cloud", "edge"]),
];

fn labelled(mut fleet: Value) -> Snapshot {
    for site in fleet["sites"].as_array_mut().unwrap() {
        let is_eu = ["edge", "far"].contains(&site["name"].as_str().unwrap());
        site["labels"] = json!({"region": if is_eu { "eu" } else { "us" }});
    }
    testkit::snapshot(&fleet)
}

/// Gated pods with their demands. Some demands come from a policy.
fn pods() -> impl Strategy<Value = Vec<(Gated, usize, bool, bool)>> {
    let size = prop::sample::select(vec![100_i64, 500, 2_000, 9_000]);
    let pod = (
        size,
        0_u8..11,
        0_i64..700,
        0..DEMANDS.len(),
        any::<bool>(),
        prop::bool::weighted(0.2),
    );
    prop::collection::vec(pod, 1..5).prop_map(|pods| {
        let named = pods.into_iter().enumerate();
        let pods = named.map(|(i, (cpu, priority, seconds, demand, by_policy, is_fixed))| {
            (
                gated(&format!("p{i}"), cpu, priority, seconds),
                demand,
                by_policy,
                is_fixed,
            )
        });
        pods.collect()
    })
}

fn document((pod, demand, by_policy, is_fixed): &(Gated, usize, bool, bool)) -> Value {
    let mut document = pod.document();
    let key = if *by_policy { "policySites" } else { "sites" };
    document["metadata"]["annotations"][format!("slo.example.io/{key}")] = json!(DEMANDS[*demand].0);
    if *is_fixed {
        document["spec"]["nodeSelector"] = json!({"tier": "cloud"});
    }
    document["metadata"]["ownerReferences"] =
        json!([{"kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]);
    document
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn no_plan_and_no_release_is_outside_the_sites_of_a_pod(
        fleet in testkit::fleet(),
        pods in pods(),
        holds in any::<bool>(),
        limit in 0_u64..700,
        site_policy in prop::sample::select(SitePolicy::ALL.to_vec()),
    ) {
        let mut config = Config { site_policy, ..Config::default() };
        if !holds {
            config.gating.on_no_capacity = OnNoCapacity::Edge;
        }
        config.gating.limits = PerClass([Micros::from_secs(limit); 3]);
        let mut snapshot = labelled(fleet);
        let mut waitlist = Waitlist::default();
        pods.iter().for_each(|pod| waitlist.apply(read(&document(pod)), NOW));
        let plan = waitlist.plan(&snapshot, &Ledger::default(), &config, |_| true, NOW);
        let allowed = |uid: &str| {
            let (_, demand, ..) = pods.iter().find(|(pod, ..)| pod.name == *uid).unwrap();
            DEMANDS[*demand].1
        };
        for claim in waitlist.claims().iter() {
            prop_assert!(allowed(&claim.uid).contains(&&*claim.site), "{claim:?}");
        }
        snapshot.queue_claims = waitlist.claims();
        let shared = SharedState::new(Arc::new(snapshot), Micros::from_secs(3));
        for (at, step) in plan.entries.iter().enumerate() {
            prop_assert!(!matches!(step.action, PlanAction::RemoveGate(_)), "{:?}", step.action);
            if step.action == PlanAction::Release {
                let context = DecisionContext { config: &config, id: DecisionId(at as u128), now: NOW };
                let waited = NOW.moment.since(step.since);
                let (read, workload) = (OnceCell::new(), step.pod.workload.clone().unwrap());
                let (verdict, _) = shared.release(&read, &step.pod, workload, waited, None, context);
                prop_assert!(matches!(verdict.action, Action::Place(_) | Action::Gate), "{:?}", verdict.action);
                let site = verdict.site().map(|site| site.name());
                prop_assert!(site.is_none_or(|site| allowed(&step.pod.uid).contains(&site)), "{site:?}");
            }
        }
    }
}

#[test]
fn spread_policy_releases_pods_over_all_clouds_in_turn() {
    let cloud = |name: &str| json!({"name": name, "kind": "cloud", "nodeSelector": {"c": name}, "wan": {"rttMs": 20, "lossPct": 0}});
    let node = |name: &str| json!({"name": name, "labels": {"c": name}, "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}], "allocatable": {"cpu": 9, "memory": "9Gi", "pods": 99}});
    let mut fleet = fleet(&[1_000]);
    fleet["sites"] = json!([{"name": "edge", "kind": "edge"}, cloud("a"), cloud("b"), cloud("c")]);
    fleet["nodes"].as_array_mut().unwrap().extend(["a", "b", "c"].map(node));
    let config = Config {
        site_policy: SitePolicy::Spread,
        ..Config::default()
    };
    let shared = SharedState::new(Arc::new(testkit::snapshot(&fleet)), Micros::from_secs(3));
    let mut sites = vec![];
    for at in 0..6 {
        let pod = (gated(&format!("p{at}"), 100, 5, 1), 0, false, false);
        let mut document = document(&pod);
        document["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove("slo.example.io/sites");
        let gated = read(&document);
        let context = DecisionContext {
            config: &config,
            id: DecisionId(at),
            now: NOW,
        };
        let (read, workload) = (OnceCell::new(), gated.workload.clone().unwrap());
        let (verdict, _) = shared.release(&read, &gated, workload, Micros::from_secs(1), None, context);
        sites.push(verdict.site().unwrap().name().to_owned());
    }
    assert_eq!(sites, ["a", "b", "c", "a", "b", "c"]);
}
