//! Training of the learned scorer: PPO on whole simulated runs.
//!
//! In a rollout, the scorer's numbers are the logits of a choice among the good clouds. The reward of a choice is the number of
//! units that its pod meets less what it costs, each relative to the mean of the choices for the same workload in the run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use candle_core::{Device, Tensor};
use edgeward_decision::model::scorer::Network as Weights;
use edgeward_decision::model::scorer::{
    FEATURES, Features, MAX_FEATURE, ONE, Provenance, Ranker, Scorer, Scores, WIDTH,
};

use super::network::Shape;
use super::optimiser::Method;
use super::plan::Rollouts;
use super::rollout::{Lesson, OnPolicy, Samples, masked};
use crate::load::Load;
use crate::outcome::{Outcome, Share};
use crate::policy::Policy;
use crate::random::{Purpose, Stream};
use crate::run::{paths, run};
use crate::scenario::Scenario;

/// Runs between two updates.
const RUNS: usize = 4;

const ROLLOUTS: Rollouts = Rollouts {
    steps: 0,
    batch: 256,
    epochs: 4,
    // A choice gets the reward of its own pod alone.
    discount: 0.0,
    lambda: 0.0,
    clip: Some(0.2),
    value_clip: None,
    value_weight: 0.25,
    entropy_weight: 0.003,
    normalised: true,
    longest_gradient: 0.5,
    method: Method::Adam {
        rate: 3e-3,
        epsilon: 1e-5,
    },
};

/// A training of the learned scorer. Equal scenarios and seeds give equal scorers.
pub struct Placement {
    seed: u64,
    scenarios: Vec<Scenario>,
    learner: OnPolicy,
    stream: Stream,
    ranges: [[i64; 2]; WIDTH],
    runs: u64,
    steps: u64,
}

/// Results of the runs between two updates.
#[derive(Debug, Clone, Copy, Default)]
pub struct Round {
    pub choices: usize,
    pub asked: u64,
    pub met: u64,
    pub cost: f64,
}

/// Samples from the softmax of a scorer's numbers: it adds noise of the Gumbel distribution to each.
#[derive(Debug)]
struct Sampler {
    scorer: Scorer,
    stream: Mutex<Stream>,
}

impl Ranker for Sampler {
    fn scores(&self, clouds: &[Features]) -> Scores {
        let mut scores = self.scorer.scores(clouds);
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        for score in &mut scores.of {
            *score += (-stream.exponential(1.0).max(1e-9).ln() * ONE as f64) as i64;
        }
        scores
    }
}

impl Round {
    pub fn add(&mut self, other: Self) {
        self.choices += other.choices;
        self.asked += other.asked;
        self.met += other.met;
        self.cost += other.cost;
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.asked.max(1) as f64;
        let (met, cost) = (100.0 * self.met as f64 / asked, 1_000.0 * self.cost / asked);
        write!(f, "attained {met:.2} %, cost {cost:.3} for each 1,000 units")
    }
}

impl Placement {
    /// The default number of choices.
    pub const STEPS: u64 = 120_000;

    /// Starts a training on these scenarios. Those with a single cloud have nothing to choose, and are left out.
    ///
    /// # Errors
    /// No scenario has two clouds.
    pub fn new(seed: u64, mut scenarios: Vec<Scenario>) -> Result<Self> {
        scenarios.retain(|scenario| Policy::EdgewardLowestCost.missing(scenario).is_none());
        ensure!(!scenarios.is_empty(), "no scenario has two clouds");
        let mut starts = Stream::new(seed, Purpose::Learning, 0, 0);
        Ok(Self {
            seed,
            scenarios,
            learner: OnPolicy::new([Shape::Scorer, Shape::ScorerCritic], ROLLOUTS, &mut starts)?,
            stream: Stream::new(seed, Purpose::Learning, 1, 0),
            ranges: [[MAX_FEATURE, -MAX_FEATURE]; WIDTH],
            runs: 0,
            steps: 0,
        })
    }

    #[cfg(test)]
    pub(super) fn actor(&self) -> &super::network::Network {
        &self.learner.actor
    }

    /// Number of choices so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Simulates some scenarios and learns from the choices in them.
    ///
    /// # Errors
    /// An error of the tensor library.
    pub fn advance(&mut self) -> Result<Round> {
        let mut round = Round::default();
        let mut lessons = vec![];
        for _ in 0..RUNS {
            let at = self.stream.below(self.scenarios.len());
            self.runs += 1;
            let sampler = Sampler {
                scorer: self.sampled()?,
                stream: Mutex::new(Stream::new(self.seed, Purpose::Action, self.runs, 0)),
            };
            let scenario = &mut self.scenarios[at];
            scenario.scorer = Some(Arc::new(sampler));
            // The seeds differ from the low seeds of simulations.
            let seed = (self.seed + 1) * 1_000_000 + self.runs;
            let outcome = simulated(scenario, seed)?;
            let attained = outcome.attained();
            round.choices += outcome.choices.len();
            round.asked += attained.asked;
            round.met += attained.met;
            round.cost += outcome.cost;
            let rewards = rewards(&outcome);
            if !rewards.is_empty() {
                lessons.push(self.lesson(&outcome, rewards)?);
            }
        }
        self.steps += round.choices as u64;
        self.learner.improve(&lessons, &mut self.stream)?;
        Ok(round)
    }

    fn lesson(&mut self, outcome: &Outcome, rewards: Vec<f32>) -> Result<Lesson> {
        let choices = &outcome.choices;
        let rows = choices.iter().flat_map(|choice| &choice.clouds);
        for features in rows.clone() {
            for ([least, most], feature) in self.ranges.iter_mut().zip(features) {
                (*least, *most) = ((*least).min(*feature), (*most).max(*feature));
            }
        }
        let observations: Vec<f32> = rows.flatten().map(|feature| *feature as f32 / ONE as f32).collect();
        let masks: Vec<bool> = choices.iter().flat_map(|choice| choice.good.clone()).collect();
        let (count, clouds) = (choices.len(), masks.len() / choices.len());
        let observed = Tensor::from_slice(&observations, (count, clouds, WIDTH), &Device::Cpu)?;
        let mask = masks.iter().map(|good| u8::from(*good));
        let mask = Tensor::from_iter(mask, &Device::Cpu)?.reshape((count, clouds))?;
        let chosen = Tensor::from_iter(choices.iter().map(|choice| choice.chosen as u32), &Device::Cpu)?;
        let logits = masked(&self.learner.actor.infer(&observed)?, &mask)?;
        let logarithms = super::rollout::log_softmax(&logits)?.gather(&chosen.unsqueeze(1)?, 1)?;
        let mut done = vec![false; count];
        done[count - 1] = true;
        let samples = Samples {
            values: self.learner.critic.infer(&observed)?.to_vec1()?,
            logarithms: logarithms.flatten_all()?.to_vec1()?,
            actions: choices.iter().map(|choice| choice.chosen).collect(),
            observations,
            masks,
            rewards,
            done,
        };
        Ok(self.learner.lesson(samples, &[0.0]))
    }

    /// The scorer for rollouts, without a limit of ranges.
    fn sampled(&self) -> Result<Scorer> {
        let scorer = self.scorer(Provenance::default())?;
        Ok(Scorer {
            ranges: [[-MAX_FEATURE, MAX_FEATURE]; WIDTH],
            ..scorer
        })
    }

    /// Returns the scorer learned so far.
    ///
    /// # Errors
    /// An error of the tensor library.
    pub fn scorer(&self, provenance: Provenance) -> Result<Scorer> {
        let weights = self.learner.actor.parameters().map(|(_, parameter)| {
            let numbers = parameter.flatten_all()?.to_vec1::<f32>()?;
            // The conversion saturates: weights are below 8.
            anyhow::Ok(numbers.into_iter().map(|weight| (weight * ONE as f32).round() as i16))
        });
        let mut weights = weights.collect::<Result<Vec<_>>>()?.into_iter().flatten();
        let mut next = || weights.next().unwrap_or_default();
        let mut row = || std::array::from_fn(|_| next());
        let network = Weights {
            first_weights: std::array::from_fn(|_| row()),
            first_bias: row(),
            second_weights: std::array::from_fn(|_| row()),
            mean_weights: std::array::from_fn(|_| row()),
            second_bias: row(),
            last_weights: row(),
            last_bias: next(),
        };
        let unsealed = Scorer {
            schema_version: 1,
            features: FEATURES.map(String::from).into(),
            ranges: self.ranges,
            margin: 0,
            network,
            provenance,
            sha256: String::new(),
        };
        Ok(unsealed.sealed())
    }
}

fn simulated(scenario: &Scenario, seed: u64) -> Result<Outcome> {
    let (load, paths) = (Load::new(scenario, seed), paths(scenario, seed));
    let never = AtomicBool::new(false);
    run(scenario, &load, &paths, seed, Policy::EdgewardLearned, &never).context("a run was stopped")
}

/// The reward of each choice: the met units of its pod less its cost, each relative to the mean of the choices for the same
/// workload.
fn rewards(outcome: &Outcome) -> Vec<f32> {
    let shares: Vec<_> = outcome
        .choices
        .iter()
        .map(|choice| outcome.shares[choice.pod])
        .collect();
    let mut sums = BTreeMap::<usize, [f64; 3]>::new();
    for share in &shares {
        let [count, met, cost] = sums.entry(share.workload).or_default();
        (*count, *met, *cost) = (*count + 1.0, *met + share.met as f64, *cost + share.cost);
    }
    let reward = |share: &Share| {
        let [count, met, cost] = sums[&share.workload];
        let relative = |part: f64, sum: f64| if sum > 0.0 { part * count / sum } else { 0.0 };
        (relative(share.met as f64, met) - relative(share.cost, cost)) as f32
    };
    shares.iter().map(reward).collect()
}
