//! Laws of every simulation: queueing theory, conservation of pods, and the bound that no policy exceeds.

// Failures of tests panic. Clippy exempts test functions only, not their helpers.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use edgeward_decision::model::scorer::{FEATURES, Features, Ranker, Scores};
use edgeward_lab::experiment::{AtLoad, Experiment, Plan, Results, carry_out};
use edgeward_lab::load::Load;
use edgeward_lab::outcome::Outcome;
use edgeward_lab::policy::Policy;
use edgeward_lab::report;
use edgeward_lab::run::{paths, run};
use edgeward_lab::scenario::{Scenario, read};
use serde_json::{Value, json};

fn scenario(document: &Value) -> Scenario {
    read(document, &|name| Err(format!("{name}: there are no files"))).unwrap_or_else(|faults| panic!("{faults}"))
}

fn outcome(scenario: &Scenario, seed: u64, policy: Policy) -> Outcome {
    let (load, paths) = (Load::new(scenario, seed), paths(scenario, seed));
    run(scenario, &load, &paths, seed, policy, &AtomicBool::new(false)).unwrap()
}

fn results(scenario: &Scenario, policies: &[Policy], seeds: u64, threads: usize) -> Results {
    let plan = Plan {
        policies: policies.to_vec(),
        seeds: (1..=seeds).collect(),
        threads,
    };
    carry_out(scenario, &plan, &AtomicBool::new(false), |_, _| {}).unwrap()
}

/// A scenario with every feature: services with autoscaling and rollouts, Jobs, priorities, quotas, an unknown
/// scheduler, two clouds, a flapping WAN, and failures of nodes and of a cloud.
fn everything() -> Value {
    json!({
        "name": "everything",
        "warmupSeconds": 30, "durationSeconds": 450, "drainSeconds": 150,
        "sites": [
            {"name": "edge", "kind": "edge", "nodes": [{"count": 3, "allocatable": {"cpu": "4", "memory": "8Gi"}}]},
            {"name": "far", "kind": "cloud", "speed": 1.5, "costPerCpuHour": 0.05,
             "nodes": [{"allocatable": {"cpu": "32", "memory": "128Gi", "pods": 200}}],
             "wan": {"rttMs": {"logNormal": {"medianMs": 60, "sigma": 0.1}}, "lossPct": 0.5,
                     "flapping": {"everySeconds": 120, "downSeconds": 20}}},
            {"name": "near", "kind": "cloud", "costPerCpuHour": 0.2,
             "nodes": [{"allocatable": {"cpu": "4", "memory": "16Gi"}}],
             "wan": {"rttMs": 10, "congestion": {"everySeconds": 200, "lastingSeconds": 30, "addedMs": 200, "lossPct": 5}}},
        ],
        "workloads": [
            {"name": "web", "class": "latency", "latencyTargetMs": 150, "sloPriority": 8,
             "requests": {"cpu": "250m", "memory": "128Mi"},
             "serviceMs": {"logNormal": {"medianMs": 60, "sigma": 0.5}}, "correlation": 0.3,
             "deployment": {"scaling": {"demand": {"diurnal": {"perSecond": 80, "amplitude": 0.8, "periodSeconds": 300}},
                                        "perReplica": 10, "max": 20, "stabilisationSeconds": 60},
                            "rolloutsAtSeconds": [200], "maxSurge": 2}},
            {"name": "reports", "class": "batch", "deadlineMs": 90_000, "requests": {"cpu": "1", "memory": "512Mi"},
             "serviceMs": {"pareto": {"leastMs": 5000, "exponent": 1.5, "mostMs": 100_000}}, "correlation": 0.5,
             "jobs": {"poisson": {"bursty": {"perSecond": 0.1, "burstPerSecond": 1.5, "everySeconds": 60, "lastingSeconds": 20}},
                      "pods": 2}},
            {"name": "vip", "class": "throughput", "deadlineMs": 30_000, "priority": 100,
             "requests": {"cpu": "2", "memory": "1Gi"}, "serviceMs": {"uniform": {"fromMs": 2000, "toMs": 9000}},
             "jobs": {"poisson": {"perSecond": 0.05}}},
            {"name": "local", "class": "batch", "deadlineMs": 200_000, "offloadAllowed": false,
             "requests": {"cpu": "500m"}, "serviceMs": 10_000, "jobs": {"poisson": {"perSecond": 0.1}}},
            {"name": "blocked", "class": "latency", "deadlineMs": 500, "quotaBlocked": true, "requests": {"cpu": "1"},
             "serviceMs": 100, "jobs": {"poisson": {"perSecond": 0.5}}},
            {"name": "ghost", "requests": {"cpu": "1"}, "unknownScheduler": true, "serviceMs": 1,
             "jobs": {"poisson": {"perSecond": 0.05}}},
            {"name": "plain", "requests": {"cpu": "100m"}, "serviceMs": 5_000, "jobs": {"poisson": {"perSecond": 0.3}}},
        ],
        "failures": [
            {"atSeconds": 40, "lastingSeconds": 370, "nodes": ["edge-1"]},
            {"atSeconds": 200, "lastingSeconds": 20, "nodes": ["edge-0"]},
            {"atSeconds": 250, "lastingSeconds": 100, "site": "near"},
        ],
    })
}

/// Returns the probability to wait and the mean wait in a queue with this many servers. `offered` is the offered load
/// in Erlang.
fn erlang_c(servers: u32, offered: f64, service: f64) -> (f64, f64) {
    let (mut term, mut sum) = (1.0, 0.0);
    for busy in 0..servers {
        sum += term;
        term *= offered / f64::from(busy + 1);
    }
    let last = term * f64::from(servers) / (f64::from(servers) - offered);
    let waits = last / (sum + last);
    (waits, waits * service / (f64::from(servers) - offered))
}

/// With Poisson arrivals, exponential service times and room for six pods, the cluster is an M/M/6 queue. The order
/// among equal pods does not matter.
#[test]
fn waiting_times_match_erlang_c() {
    let (servers, service) = (6, 100.0);
    for load in [0.6, 0.85] {
        let offered = load * f64::from(servers);
        let document = json!({
            "name": "M/M/6",
            "warmupSeconds": 5_000, "durationSeconds": 105_000, "drainSeconds": 20_000,
            "delays": {"persistMs": 0.001, "cycleMs": 0.01, "bindMs": 0.01, "startMs": 0.01},
            // Three nodes with room for two pods each.
            "sites": [{"name": "edge", "kind": "edge", "nodes": [{"count": 3, "allocatable": {"cpu": "2", "memory": "4Gi"}}]}],
            "workloads": [{
                "name": "job", "class": "batch", "requests": {"cpu": "1"}, "serviceMs": {"exponential": {"meanMs": service * 1e3}},
                "jobs": {"poisson": {"perSecond": (offered / service * 1e3_f64).round() / 1e3}},
            }],
        });
        let arrivals = (offered / service * 1e3).round() / 1e3;
        let (waits, mean) = erlang_c(servers, arrivals * service, service);
        let scenario = scenario(&document);
        let runs: Vec<_> = (1..=12)
            .map(|seed| outcome(&scenario, seed, Policy::EdgeOnly).waits)
            .collect();
        let share = |run: &Vec<f64>| run.iter().filter(|wait| **wait > 0.5).count() as f64 / run.len() as f64;
        let average = |run: &Vec<f64>| run.iter().sum::<f64>() / run.len() as f64;
        for (name, expected, found) in [
            ("probability to wait", waits, runs.iter().map(share).collect::<Vec<_>>()),
            ("mean wait", mean, runs.iter().map(average).collect()),
        ] {
            let estimate = edgeward_lab::statistics::estimate(&found).unwrap();
            // The bound is twice the 95 % interval. A correct simulation exceeds it in one of a few thousand cases.
            let (mean, half) = (estimate.mean, estimate.half_width.unwrap());
            assert!(
                (mean - expected).abs() <= 2.0 * half,
                "{name} at {load}: {mean} ± {half}, not {expected}"
            );
            assert!(
                half < 0.25 * expected,
                "{name} at {load}: known too badly, {mean} ± {half}"
            );
        }
    }
}

#[test]
fn pod_states_sum_to_created_pods() {
    let scenario = scenario(&everything());
    for policy in Policy::ALL {
        let pods = outcome(&scenario, 1, policy).pods;
        let sum = pods.blocked + pods.done + pods.deleted + pods.running + pods.pending + pods.gated;
        assert_eq!(pods.created, sum, "{policy}: {pods:?}");
        assert!(pods.blocked > 150 && pods.done > 150, "{policy}: {pods:?}");
    }
}

/// Ranks the cheapest cloud first.
#[derive(Debug)]
struct Cheapest;

impl Ranker for Cheapest {
    fn scores(&self, clouds: &[Features]) -> Scores {
        let cost = FEATURES.iter().position(|name| *name == "costOverDearest").unwrap();
        Scores {
            of: clouds.iter().map(|features| -features[cost]).collect(),
            ..Scores::default()
        }
    }
}

/// The rewards of a training are made of these shares.
#[test]
fn shares_of_pods_sum_to_reported_results() {
    let mut scenario = scenario(&everything());
    scenario.scorer = Some(Arc::new(Cheapest));
    for policy in Policy::ALL {
        let run = outcome(&scenario, 1, policy);
        let met: u64 = run.shares.iter().map(|share| share.met).sum();
        assert_eq!(met, run.attained().met, "{policy}");
        let cost: f64 = run.shares.iter().map(|share| share.cost).sum();
        assert!(
            (cost - run.cost).abs() <= 1e-6 * run.cost + 1e-12,
            "{policy}: {cost} {}",
            run.cost
        );
        assert_eq!(run.choices.is_empty(), policy != Policy::EdgewardLearned, "{policy}");
    }
    let choices = outcome(&scenario, 1, Policy::EdgewardLearned).choices;
    let pods: BTreeSet<_> = choices.iter().map(|choice| choice.pod).collect();
    assert!(pods.len() == choices.len() && pods.len() > 20, "{}", choices.len());
    // The clouds in order: far, near. The far one is cheaper.
    assert!(
        choices
            .iter()
            .all(|choice| choice.good == [true, true] && choice.chosen == 0)
    );
}

/// Every run checks that the policy does not exceed the bound `relaxed`.
#[test]
fn policies_get_equal_demand_and_stay_within_bound() {
    let scenario = scenario(&everything());
    let results = results(&scenario, &Policy::ALL, 2, 2);
    for (policy, runs) in &results.runs {
        for (seed, run) in runs {
            let bound = &results.relaxed[seed];
            for class in edgeward_decision::model::slo::Class::ALL {
                let (run, bound) = (run.attainment[class], bound[class]);
                assert_eq!(run.asked, bound.asked, "{policy}, {seed}");
                assert!(run.met <= bound.met, "{policy}, {seed}");
            }
        }
    }
    let met: BTreeSet<_> = results.runs.values().map(|runs| runs[&1].attained().met).collect();
    assert!(met.len() > 4, "the policies do the same: {met:?}");
}

#[test]
fn same_seed_repeats_run_beside_other_policies() {
    let scenario = scenario(&everything());
    let policies = [Policy::Edgeward, Policy::LeastLoaded];
    let text = |results: Results| {
        let at_load = AtLoad {
            factor: 1.0,
            scenario: scenario.clone(),
            results,
        };
        let experiment = Experiment {
            loads: vec![at_load],
            is_incomplete: false,
        };
        report::json(&experiment).to_string()
    };
    let once = text(results(&scenario, &policies, 2, 1));
    assert_eq!(once, text(results(&scenario, &policies, 2, 2)));
    let alone = results(&scenario, &policies[..1], 2, 1);
    let alone: Value = serde_json::from_str(&text(alone)).unwrap();
    let both: Value = serde_json::from_str(&once).unwrap();
    let of = |results: &Value| {
        let mut policies = results["loads"][0]["policies"].as_array().unwrap().iter();
        policies.find(|found| found["policy"] == "edgeward").cloned()
    };
    assert!(of(&alone).is_some());
    assert_eq!(of(&alone), of(&both));
}
