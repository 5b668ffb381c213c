//! Policies beside each other.

use crate::gym::{Baseline, Protocol, RewardKind, Settings};
use crate::learning::{Algorithm, Plan, Training, Trial, over_clusters, tables};

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
        masked_targets: true,
    }
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
fn trainings_of_an_algorithm_are_put_together() {
    use Algorithm::{DeepsetsPpo, MlpA2c};
    use RewardKind::{Cost, Latency};
    let plans = [
        plan(DeepsetsPpo, Cost, 1),
        plan(DeepsetsPpo, Cost, 2),
        plan(MlpA2c, Cost, 1),
        plan(DeepsetsPpo, Latency, 1),
    ];
    let mut policies: Vec<_> = plans.map(|plan| Training::new(plan).unwrap().policy().unwrap()).into();
    let sections = trial(&[]).run(&mut policies).unwrap();
    let names = |at: usize| {
        sections[at]
            .rows
            .iter()
            .map(|row| row.policy.as_str())
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
    let mean = |row: usize| sections[0].rows[row].summary.reward.unwrap();
    let (first, second, all) = (mean(0).mean, mean(1).mean, mean(2));
    assert!((all.mean - (first + second) / 2.0).abs() < 1e-9);
    assert!((all.deviation - (first - second).abs() / 2.0).abs() < 1e-9);
    let text = tables(&sections);
    assert!(text.contains("deepsets-ppo: 2 trainings, ±"), "{text}");
    assert!(
        text.contains("1150.89 ± 289.90") && text.contains("92.64 ± 7.11"),
        "{text}"
    );

    let mut twice = vec![Training::new(plan(DeepsetsPpo, Cost, 1)).unwrap().policy().unwrap()];
    twice.push(Training::new(plan(DeepsetsPpo, Cost, 1)).unwrap().policy().unwrap());
    let error = trial(&[]).run(&mut twice).unwrap_err().to_string();
    assert_eq!(error, "two trainings of deepsets-ppo have the seed 1");
}

#[test]
fn a_set_policy_is_tried_with_more_clusters() {
    let mut policies = vec![
        Training::new(plan(Algorithm::DeepsetsDqn, RewardKind::Cost, 1))
            .unwrap()
            .policy()
            .unwrap(),
    ];
    let sections = trial(&[4, 8]).run(&mut policies).unwrap();
    let clusters: Vec<_> = sections.iter().map(|section| section.settings.clusters).collect();
    assert_eq!(clusters, [4, 8]);
    let figure = over_clusters(&sections);
    assert!(
        figure.contains("deepsets-dqn of the paper") && figure.contains(">128</text>"),
        "{figure}"
    );

    let mut flat = vec![
        Training::new(plan(Algorithm::MlpA2c, RewardKind::Cost, 1))
            .unwrap()
            .policy()
            .unwrap(),
    ];
    let error = trial(&[4, 8]).run(&mut flat).unwrap_err().to_string();
    assert!(error.starts_with("clusters: 8: the network is for 4"), "{error}");
}
