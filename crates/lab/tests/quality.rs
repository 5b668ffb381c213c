//! The quality of the decisions on the example scenarios: at least the figures of `docs/guide/simulate.md`.

// Failures of tests panic. Clippy exempts test functions only, not their helpers.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use edgeward_decision::config::DegradedLinks;
use edgeward_decision::model::slo::Class;
use edgeward_lab::experiment::{Plan, carry_out};
use edgeward_lab::policy::Policy;
use edgeward_lab::scenario::{Scenario, read};

fn scenario(name: &str) -> Scenario {
    // Read at run time, because several checkouts may share the compiled test.
    let folder = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join("../../examples/scenarios");
    let text = fs::read_to_string(folder.join(name)).unwrap();
    let document = serde_saphyr::from_str(&text).unwrap();
    read(&document, &|name| Err(format!("{name}: there are no files"))).unwrap_or_else(|faults| panic!("{faults}"))
}

/// Returns the attainment of each policy in percent, over two seeds.
fn attained(name: &str, policies: &[Policy]) -> BTreeMap<Policy, f64> {
    let plan = Plan {
        policies: policies.to_vec(),
        seeds: vec![1, 2],
        threads: 2,
    };
    let results = carry_out(&scenario(name), &plan, &AtomicBool::new(false), |_, _| {}).unwrap();
    let attained = results.runs.iter().map(|(policy, runs)| {
        let runs = runs.values().map(|run| run.attained());
        let (met, asked) = runs.fold((0, 0), |(met, asked), run| (met + run.met, asked + run.asked));
        (*policy, 100.0 * met as f64 / asked as f64)
    });
    attained.collect()
}

/// During rollouts, pods of a service wait for the edge, which serves them better.
#[test]
fn rolling_updates_leave_services_at_the_edge() {
    let policies = [Policy::EdgeOnly, Policy::Edgeward, Policy::Clairvoyant];
    let found = attained("rolling-updates.yaml", &policies);
    assert!(found[&Policy::Edgeward] >= 98.0, "{found:?}");
    assert!(found[&Policy::Edgeward] >= found[&Policy::EdgeOnly] - 1.0, "{found:?}");
    // It judges a service by the p95 of its requests and not by one request.
    assert!(
        found[&Policy::Clairvoyant] >= found[&Policy::Edgeward] - 1.0,
        "{found:?}"
    );
}

/// A cloud that loses one probe in 500 by chance is still used. After an outage, pods that are already late do not
/// delay other pods.
#[test]
fn full_and_failing_cloud_keeps_attainment() {
    let found = attained("full-cloud.yaml", &[Policy::Edgeward, Policy::Clairvoyant]);
    assert!(found[&Policy::Edgeward] >= 97.5, "{found:?}");
    assert!(
        found[&Policy::Edgeward] >= found[&Policy::Clairvoyant] - 2.0,
        "{found:?}"
    );
}

/// With a WAN that stays poor, kube-scheduler assigns the room at the edge as it would without a cloud.
#[test]
fn full_edge_and_poor_wan_keep_edge_only_attainment() {
    let found = attained("overloaded-edge-poor-wan.yaml", &[Policy::EdgeOnly, Policy::Edgeward]);
    assert!(found[&Policy::Edgeward] >= 82.0, "{found:?}");
    assert!(found[&Policy::Edgeward] >= found[&Policy::EdgeOnly] - 3.0, "{found:?}");
}

/// By the estimate, a poor WAN takes the pods with time to spare. Services stay at the edge and are served as well as without it.
#[test]
fn estimate_uses_a_poor_wan() {
    let avoiding = scenario("overloaded-edge-poor-wan.yaml");
    let mut estimating = scenario("overloaded-edge-poor-wan.yaml");
    Arc::make_mut(&mut estimating.config).degraded_links = DegradedLinks::Estimate;
    let plan = Plan {
        policies: vec![Policy::Edgeward],
        seeds: vec![1, 2],
        threads: 2,
    };
    let [avoiding, estimating] = [avoiding, estimating].map(|scenario| {
        let results = carry_out(&scenario, &plan, &AtomicBool::new(false), |_, _| {}).unwrap();
        let runs = &results.runs[&Policy::Edgeward];
        Class::ALL.map(|class| {
            let met: u64 = runs.values().map(|run| run.attainment[class].met).sum();
            let asked: u64 = runs.values().map(|run| run.attainment[class].asked).sum();
            1_000 * met / asked
        })
    });
    let [latency, throughput, batch] = estimating;
    assert!(latency >= avoiding[0], "{avoiding:?} {estimating:?}");
    assert!(throughput >= 990 && batch >= 990, "{avoiding:?} {estimating:?}");
}

/// With a higher confidence, a profile sends only Jobs to a slower cloud that are in time there.
#[test]
fn confidence_keeps_jobs_in_time_under_a_profile() {
    let [mean, sure] = ["0.5", "0.9"].map(|confidence| {
        let mut scenario = scenario("greener-jobs.yaml");
        Arc::make_mut(&mut scenario.config).confidence = serde_json::from_str(confidence).unwrap();
        let plan = Plan {
            policies: vec![Policy::EdgewardProfile],
            seeds: vec![1, 2],
            threads: 2,
        };
        let results = carry_out(&scenario, &plan, &AtomicBool::new(false), |_, _| {}).unwrap();
        let runs = &results.runs[&Policy::EdgewardProfile];
        let in_clouds = runs.values().map(|run| run.cloud_fraction().unwrap()).sum::<f64>() / 2.0;
        let attained = runs.values().map(|run| run.attained());
        let (met, asked) = attained.fold((0, 0), |(met, asked), run| (met + run.met, asked + run.asked));
        (100.0 * met as f64 / asked as f64, in_clouds)
    });
    assert!(mean.0 < 92.0 && mean.1 > 0.8, "{mean:?}");
    assert!(sure.0 > 94.0 && sure.1 > 0.3, "{sure:?}");
}

/// The short work of a namespace is told from the long work by its CronJob.
#[test]
fn times_of_cron_jobs_are_told_apart() {
    let [alone, together] = [false, true].map(|is_cron_job| {
        let mut scenario = scenario("cron-jobs.yaml");
        scenario
            .workloads
            .iter_mut()
            .for_each(|workload| workload.is_cron_job = is_cron_job);
        let plan = Plan {
            policies: vec![Policy::Edgeward],
            seeds: (1..=4).collect(),
            threads: 2,
        };
        let results = carry_out(&scenario, &plan, &AtomicBool::new(false), |_, _| {}).unwrap();
        let runs = results.runs[&Policy::Edgeward].values().map(|run| run.attained());
        runs.map(|run| run.asked - run.met).sum::<u64>()
    });
    assert!(together < alone, "missed: {together} together, {alone} alone");
}

/// A performance profile moves pods to the greener site. The WAN costs latency targets, but no deadlines.
#[test]
fn greener_cloud_costs_only_latency_targets() {
    let scenario = scenario("greener-cloud.yaml");
    let plan = Plan {
        policies: Policy::of(&scenario).collect(),
        seeds: vec![1, 2],
        threads: 2,
    };
    let results = carry_out(&scenario, &plan, &AtomicBool::new(false), |_, _| {}).unwrap();
    let of = |policy: Policy, class: Class| {
        let runs = results.runs[&policy].values().map(|run| run.attainment[class]);
        let (met, asked) = runs.fold((0, 0), |(met, asked), run| (met + run.met, asked + run.asked));
        100.0 * met as f64 / asked as f64
    };
    let in_clouds = |policy: Policy| results.runs[&policy].values().map(|run| run.cloud_fraction().unwrap());
    assert!(in_clouds(Policy::Edgeward).all(|fraction| fraction < 0.05));
    assert!(in_clouds(Policy::EdgewardProfile).all(|fraction| fraction > 0.5));
    for class in [Class::Throughput, Class::Batch] {
        assert!(of(Policy::EdgewardProfile, class) >= of(Policy::Edgeward, class) - 0.5);
    }
    let latency = of(Policy::EdgewardProfile, Class::Latency);
    assert!(latency >= of(Policy::CloudOnly, Class::Latency) - 0.5, "{latency}");
    assert!(latency < of(Policy::Edgeward, Class::Latency), "{latency}");
}

/// Moves bring the pods of a burst home: at most half the cloud cost, nearly the attainment, and at most one move per pod.
#[test]
fn moves_halve_the_cost_of_a_burst() {
    let policies = [Policy::Edgeward, Policy::EdgewardMoves];
    let plan = Plan {
        policies: policies.to_vec(),
        seeds: vec![1],
        threads: 2,
    };
    let results = carry_out(
        &scenario("burst-then-quiet.yaml"),
        &plan,
        &AtomicBool::new(false),
        |_, _| {},
    )
    .unwrap();
    let [without, with] = policies.map(|policy| results.runs[&policy].values().next().unwrap());
    let attained = |run: &edgeward_lab::outcome::Outcome| run.attained().share().unwrap();
    assert!(with.cost <= 0.5 * without.cost, "{} {}", with.cost, without.cost);
    assert!(
        attained(with) >= attained(without) - 0.005,
        "{} {}",
        attained(with),
        attained(without)
    );
    // The service grows by 12 pods during the burst.
    assert!((1..=12).contains(&with.moved) && without.moved == 0, "{}", with.moved);
}
