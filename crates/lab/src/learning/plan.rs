//! The plan of a training: the algorithm, its hyper-parameters and its length.

use std::fmt;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::network::Shape;
use super::optimiser::Method;
use crate::gym::{Settings, words};

words! {
    pub enum Algorithm {
        DeepsetsPpo = "deepsets-ppo",
        DeepsetsDqn = "deepsets-dqn",
        /// Proximal policy optimisation of flat networks, with the default hyper-parameters of stable-baselines3.
        MlpMaskablePpo = "mlp-maskable-ppo",
        MlpA2c = "mlp-a2c",
    }
}

impl Algorithm {
    /// Returns the number of steps, of all environments together, that the paper trains it for.
    pub fn steps(self) -> u64 {
        match self {
            Self::DeepsetsDqn => 1_600_000,
            _ => 200_000,
        }
    }

    /// Whether the agent chooses among the allowed actions only. A2C chooses among all, as in stable-baselines3.
    pub(super) fn is_masked(self) -> bool {
        self != Self::MlpA2c
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

/// Hyper-parameters of algorithms that learn from their latest steps. Sources: the defaults of CleanRL and
/// stable-baselines3, and the paper's changes to them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rollouts {
    pub(super) steps: usize,
    pub(super) batch: usize,
    pub(super) epochs: usize,
    pub(super) discount: f64,
    /// λ of generalised advantage estimation.
    pub(super) lambda: f64,
    /// Limit of the probability ratio's distance from 1. `None` disables clipping and allows one epoch only.
    pub(super) clip: Option<f64>,
    pub(super) value_clip: Option<f64>,
    pub(super) value_weight: f64,
    pub(super) entropy_weight: f64,
    /// Whether the advantages of a batch are normalised to mean 0 and deviation 1.
    pub(super) normalised: bool,
    pub(super) longest_gradient: f64,
    pub(super) method: Method,
}

impl Rollouts {
    /// Returns the hyper-parameters of an algorithm; `None` if it learns from remembered steps.
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
                // CleanRL uses half the squared error.
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

/// The plan of a training. Equal plans give equal numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    pub algorithm: Algorithm,
    #[serde(rename = "environment")]
    pub settings: Settings,
    /// Seed of the networks and samples, and of the environments unless [`Plan::environment_seed`] is set.
    pub seed: u64,
    /// Seed of all environments, as published. If `None`, each environment has its own.
    pub environment_seed: Option<u64>,
    /// Steps of all environments together; rounded up to whole updates.
    pub steps: u64,
}

impl Plan {
    pub const ENVIRONMENTS: usize = 8;
    pub const MAX_STEPS: u64 = 1_000_000_000;

    /// # Errors
    /// Names the invalid field and its value.
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

    /// Returns the seed of each environment. The seeds differ from the low seeds of tests, such as 42.
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
}
