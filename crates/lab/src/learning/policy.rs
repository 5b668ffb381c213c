//! A trained network as an agent.

use std::path::Path;

use anyhow::{Result, ensure};
use candle_core::{Device, Tensor};

use super::checkpoint::{self, Stored};
use super::choice::best;
use super::network::{Network, Shape};
use super::plan::Plan;
use crate::gym::{Agent, FEATURES, Gym, Settings};
use crate::random::{Purpose, Stream};

/// Chooses the allowed action with the largest number of the network, the first among equal ones.
#[derive(Debug)]
pub struct Policy {
    plan: Plan,
    steps: u64,
    /// The folder it was loaded from, or its algorithm and seed.
    name: String,
    actor: Network,
    observation: Vec<f32>,
    mask: Vec<bool>,
    failure: Option<anyhow::Error>,
}

impl Policy {
    pub(super) fn new(plan: Plan, steps: u64, name: String, actor: Network) -> Self {
        Self {
            plan,
            steps,
            name,
            actor,
            observation: Vec::new(),
            mask: Vec::new(),
            failure: None,
        }
    }

    /// Loads the policy that a training saved in this folder.
    ///
    /// # Errors
    /// A file is missing or invalid. The message names the file and the fault.
    pub fn load(folder: &Path) -> Result<Self> {
        let plan = checkpoint::read_plan(folder)?;
        let shape = plan.algorithm.actor(plan.settings.clusters + 2);
        let actor = Network::new(shape, &mut Stream::new(0, Purpose::Learning, 0, 0))?;
        let mut stored = Stored::read(folder, &plan)?;
        stored.restore("actor", &actor)?;
        let steps = stored.bytes("actions")?.len() as u64;
        Ok(Self::new(plan, steps, folder.display().to_string(), actor))
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Number of training steps of all environments together. It is lower than in the plan if the training is
    /// unfinished.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The folder it was loaded from, or its algorithm and seed.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_twin_of(&self, other: &Self) -> bool {
        self.plan == other.plan && self.steps == other.steps
    }

    /// Returns the environment it was trained in, with this number of clusters.
    ///
    /// # Errors
    /// The number of clusters is invalid, or the network does not support it.
    pub fn settings(&self, clusters: usize) -> Result<Settings> {
        let settings = Settings {
            clusters,
            ..self.plan.settings.clone()
        };
        settings.validate().map_err(anyhow::Error::msg)?;
        if let Shape::FlatActor { actions } = self.actor.shape() {
            ensure!(
                actions == clusters + 2,
                "{}: clusters: {clusters}: the network supports only {}",
                self.name,
                actions - 2
            );
        }
        Ok(settings)
    }

    /// Returns the best action for an observation (actions × [`FEATURES`]) and a mask of actions.
    ///
    /// # Errors
    /// The network does not support this number of actions.
    pub fn choose(&self, observation: &[f32], mask: &[bool]) -> Result<usize> {
        let observation = Tensor::from_slice(observation, (1, mask.len(), FEATURES), &Device::Cpu)?;
        let numbers = self.actor.infer(&observation)?.flatten_all()?.to_vec1::<f32>()?;
        Ok(best(&numbers, mask))
    }

    /// Returns the first error of acting. After an error, the policy rejected the affected requests.
    ///
    /// # Errors
    /// The first error of acting.
    pub fn finish(&mut self) -> Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl Agent for Policy {
    fn act(&mut self, gym: &Gym) -> usize {
        let actions = gym.actions();
        self.observation.resize(actions * FEATURES, 0.0);
        self.mask.resize(actions, false);
        gym.observe(&mut self.observation);
        gym.mask(&mut self.mask);
        if !self.plan.algorithm.is_masked() {
            self.mask.fill(true);
        }
        match self.choose(&self.observation, &self.mask) {
            Ok(action) => action,
            Err(error) => {
                self.failure.get_or_insert(error);
                gym.reject_action()
            }
        }
    }
}
