//! Evaluations of policies.

use crate::gym::{Baseline, Protocol, RewardKind, Settings};
use crate::learning::{Algorithm, Plan, Policy, Training, Trial, json, tables};

fn plan(algorithm: Algorithm, reward: RewardKind, seed: u64) -> Plan {
    Plan {
        algorithm,
        settings: Settings {
            reward,
            ..Settings::default()
        },
        seed,
        environment_seed: None,
        steps: 1,
    }
}

fn trained(plan: Plan) -> Policy {
    let mut training = Training::new(plan).unwrap();
    training.advance().unwrap();
    training.policy().unwrap()
}

fn trial(clusters: &[usize]) -> Trial {
    Trial {
        clusters: clusters.to_vec(),
        seeds: vec![42],
        episodes: 2,
        protocol: Protocol::TwoResets,
        baselines: vec![Baseline::MinCost],
    }
}

#[test]
fn trainings_with_other_seeds_are_averaged() {
    use Algorithm::{DeepsetsPpo, MlpA2c};
    use RewardKind::{Cost, Latency};
    let plans = [
        plan(DeepsetsPpo, Cost, 1),
        plan(DeepsetsPpo, Cost, 2),
        plan(MlpA2c, Cost, 1),
        plan(DeepsetsPpo, Latency, 1),
    ];
    let mut policies: Vec<_> = plans.map(trained).into();
    let sections = trial(&[]).run(&mut policies).unwrap();
    let document = json(&sections);
    let names = |at: usize| {
        let rows = document[at]["policies"].as_array().unwrap();
        rows.iter()
            .map(|row| row["policy"].as_str().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(sections.len(), 2);
    let both = [
        "deepsets-ppo, seed 1",
        "deepsets-ppo, seed 2",
        "deepsets-ppo",
        "mlp-a2c",
        "min-cost",
    ];
    assert_eq!(names(0), both);
    assert_eq!(names(1), ["deepsets-ppo", "min-cost"]);
    let reward = |row: usize, part: &str| document[0]["policies"][row]["reward"][part].as_f64().unwrap();
    let (first, second) = (reward(0, "mean"), reward(1, "mean"));
    assert!((reward(2, "mean") - (first + second) / 2.0).abs() < 1e-9);
    assert!((reward(2, "deviation") - (first - second).abs() / 2.0).abs() < 1e-9);
    let text = tables(&sections);
    assert!(text.contains("deepsets-ppo: 2 trainings, ±"), "{text}");
    assert!(
        text.contains("1150.89 ± 289.90") && text.contains("92.64 ± 7.11"),
        "{text}"
    );

    let mut twice = vec![trained(plan(DeepsetsPpo, Cost, 1))];
    twice.push(trained(plan(DeepsetsPpo, Cost, 1)));
    let error = trial(&[]).run(&mut twice).unwrap_err().to_string();
    let expected = "deepsets-ppo, seed 1 and deepsets-ppo, seed 1 have the same plan, and both have the seed 1";
    assert_eq!(error, expected);
}

/// Most of these trainings have equal seeds and environments. Only the rest of the plan distinguishes them.
#[test]
fn trainings_of_different_plans_have_separate_rows() {
    let first = plan(Algorithm::DeepsetsDqn, RewardKind::Cost, 1);
    let plans = [
        first.clone(),
        Plan {
            seed: 2,
            ..first.clone()
        },
        Plan {
            environment_seed: Some(42),
            ..first.clone()
        },
        Plan {
            steps: 1_600_000,
            ..first.clone()
        },
        Plan {
            settings: Settings {
                clusters: 8,
                ..first.settings.clone()
            },
            ..first.clone()
        },
    ];
    let mut policies: Vec<_> = plans.map(trained).into();
    policies.push(Training::new(first).unwrap().policy().unwrap());
    let sections = trial(&[4]).run(&mut policies).unwrap();
    let document = json(&sections);
    let rows = document[0]["policies"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    let expected = [
        "deepsets-dqn, 1 steps, seed 1",
        "deepsets-dqn, 1 steps, seed 2",
        "deepsets-dqn, 1 steps",
        "deepsets-dqn, 1 steps, env-seed 42",
        "deepsets-dqn, 800 of 1600000 steps",
        "deepsets-dqn, 1 steps, trained with 8 clusters",
        "deepsets-dqn, 0 of 1 steps",
        "min-cost",
    ];
    assert_eq!(names, expected);
}

#[test]
fn set_policy_is_evaluated_with_more_clusters() {
    let mut policies = vec![trained(plan(Algorithm::DeepsetsDqn, RewardKind::Cost, 1))];
    let sections = trial(&[4, 8]).run(&mut policies).unwrap();
    let clusters: Vec<_> = sections.iter().map(|section| section.settings.clusters).collect();
    assert_eq!(clusters, [4, 8]);

    let mut flat = vec![trained(plan(Algorithm::MlpA2c, RewardKind::Cost, 1))];
    let error = trial(&[4, 8]).run(&mut flat).unwrap_err().to_string();
    let expected = "mlp-a2c, seed 1: clusters: 8: the network supports only 4";
    assert_eq!(error, expected);
}
