//! What is trained, how, and how long.

use std::fmt;

use anyhow::{Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::network::Shape;
use super::optimiser::Method;
use crate::gym::{Settings, words};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    DeepsetsPpo,
    DeepsetsDqn,
    /// Proximal policy optimisation of flat networks, with the hyper-parameters that stable-baselines3 has without any.
    MlpMaskablePpo,
    MlpA2c,
}

words!(
    Algorithm: DeepsetsPpo = "deepsets-ppo",
    DeepsetsDqn = "deepsets-dqn",
    MlpMaskablePpo = "mlp-maskable-ppo",
    MlpA2c = "mlp-a2c"
);

impl Algorithm {
    /// How many steps the paper trains it, of all environments together.
    pub fn steps(self) -> u64 {
        match self {
            Self::DeepsetsDqn => 1_600_000,
            _ => 200_000,
        }
    }

    pub(super) fn actor(self, actions: usize) -> Shape {
        match self {
            Self::DeepsetsPpo | Self::DeepsetsDqn => Shape::SetActor,
            Self::MlpMaskablePpo | Self::MlpA2c => Shape::FlatActor { actions },
        }
    }

    pub(super) fn critic(self, actions: usize) -> Shape {
        match self {
            Self::DeepsetsPpo | Self::DeepsetsDqn => Shape::SetCritic,
            Self::MlpMaskablePpo | Self::MlpA2c => Shape::FlatCritic { actions },
        }
    }
}

/// How a policy is improved by what it just did. Sources: CleanRL's and stable-baselines3's defaults, and the paper's changes of them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rollouts {
    pub(super) steps: usize,
    pub(super) batch: usize,
    pub(super) epochs: usize,
    pub(super) discount: f64,
    /// How far advantages look: λ of generalised advantage estimation.
    pub(super) lambda: f64,
    /// How far the ratio of probabilities may be from 1. Without it nothing is clipped, and there is one epoch.
    pub(super) clip: Option<f64>,
    pub(super) value_clip: Option<f64>,
    pub(super) value_weight: f64,
    pub(super) entropy_weight: f64,
    /// Whether the advantages of a batch get a mean of 0 and a deviation of 1.
    pub(super) normalised: bool,
    pub(super) longest_gradient: f64,
    pub(super) method: Method,
}

impl Rollouts {
    /// Those of an algorithm, unless it learns from what it remembers.
    pub(super) fn of(algorithm: Algorithm) -> Option<Self> {
        let adam = |rate| Method::Adam { rate, epsilon: 1e-5 };
        match algorithm {
            Algorithm::DeepsetsDqn => None,
            Algorithm::DeepsetsPpo => Some(Self {
                steps: 100,
                batch: 100,
                epochs: 4,
                discount: 0.95,
                lambda: 0.97,
                clip: Some(0.2),
                value_clip: Some(0.2),
                // CleanRL has half the squared error.
                value_weight: 0.25,
                entropy_weight: 0.001,
                normalised: true,
                longest_gradient: 0.5,
                method: adam(2.5e-4),
            }),
            Algorithm::MlpMaskablePpo => Some(Self {
                steps: 2_048,
                batch: 64,
                epochs: 10,
                discount: 0.95,
                lambda: 0.95,
                clip: Some(0.2),
                value_clip: None,
                value_weight: 0.5,
                entropy_weight: 0.0,
                normalised: true,
                longest_gradient: 0.5,
                method: adam(3e-4),
            }),
            Algorithm::MlpA2c => Some(Self {
                steps: 5,
                batch: usize::MAX,
                epochs: 1,
                discount: 0.99,
                lambda: 1.0,
                clip: None,
                value_clip: None,
                value_weight: 0.5,
                entropy_weight: 0.0,
                normalised: false,
                longest_gradient: 0.5,
                method: Method::RmsProp {
                    rate: 7e-4,
                    epsilon: 1e-5,
                },
            }),
        }
    }
}

/// What is trained: with the same plan always the same numbers come out.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub algorithm: Algorithm,
    pub settings: Settings,
    /// Of networks, samples and, without [`Plan::environment_seed`], of environments.
    pub seed: u64,
    /// The seed of all environments, as published. Without it each has one of its own.
    pub environment_seed: Option<u64>,
    /// Steps of all environments together; rounded up to whole updates.
    pub steps: u64,
    /// Whether Q-learning takes the best next action among those that the mask has. The published code takes it among all.
    pub masked_targets: bool,
}

impl Plan {
    pub const ENVIRONMENTS: usize = 8;
    pub const MAX_STEPS: u64 = 1_000_000_000;

    /// # Errors
    /// A field that has a value it cannot have, with both.
    pub fn validate(&self) -> Result<()> {
        self.settings.validate().map_err(anyhow::Error::msg)?;
        ensure!(
            (1..=Self::MAX_STEPS).contains(&self.steps),
            "steps: {} is not a number from 1 to {}",
            self.steps,
            Self::MAX_STEPS
        );
        Ok(())
    }

    /// The seed of each environment. Tests use low seeds such as 42, and these are none of them.
    pub fn environment_seeds(&self) -> Vec<u64> {
        let environments = 0..Self::ENVIRONMENTS as u64;
        let own = |environment| {
            (self.seed.wrapping_add(1))
                .wrapping_mul(1_000_000)
                .wrapping_add(environment)
        };
        environments
            .map(|environment| self.environment_seed.unwrap_or_else(|| own(environment)))
            .collect()
    }

    pub fn to_json(&self) -> Value {
        json!({
            "algorithm": self.algorithm.as_str(),
            "environment": self.settings.to_string(),
            "seed": self.seed,
            "environmentSeed": self.environment_seed,
            "steps": self.steps,
            "maskedTargets": self.masked_targets,
        })
    }

    /// From a document of [`Plan::to_json`].
    ///
    /// # Errors
    /// A field that is missing, unknown or has a value it cannot have.
    pub fn from_json(document: &Value) -> Result<Self> {
        let Written {
            algorithm,
            environment,
            seed,
            environment_seed,
            steps,
            masked_targets,
        } = serde_json::from_value(document.clone())?;
        let named = |field: &'static str, value: String| move |error| anyhow::anyhow!("{field}: {value} {error}");
        let plan = Self {
            algorithm: Algorithm::parse(&algorithm).map_err(named("algorithm", algorithm.clone()))?,
            settings: Settings::parse(&environment).map_err(anyhow::Error::msg)?,
            seed,
            environment_seed,
            steps,
            masked_targets,
        };
        plan.validate()?;
        Ok(plan)
    }
}

/// The fields of a document.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    algorithm: String,
    environment: String,
    seed: u64,
    environment_seed: Option<u64>,
    steps: u64,
    masked_targets: bool,
}
