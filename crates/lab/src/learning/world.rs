//! The environments of a training, and the history of actions that restores them.

use anyhow::{Result, ensure};
use candle_core::{Device, Tensor};

use super::plan::Plan;
use crate::gym::{Episode, FEATURES, VectorGym};

pub(super) struct World {
    gym: VectorGym,
    actions: usize,
    is_masked: bool,
    /// The current observations: environments × actions × [`FEATURES`].
    pub(super) observations: Vec<f32>,
    pub(super) masks: Vec<bool>,
    pub(super) rewards: Vec<f32>,
    pub(super) done: Vec<bool>,
    history: Vec<u8>,
    /// All finished episodes, each with the number of steps of one environment at its end.
    pub(super) episodes: Vec<(u64, Episode)>,
}

impl World {
    pub(super) fn new(plan: &Plan) -> Self {
        let gym = VectorGym::new(&plan.settings, &plan.environment_seeds());
        let (environments, actions) = (gym.environments(), gym.actions());
        let mut world = Self {
            gym,
            actions,
            is_masked: plan.algorithm.is_masked(),
            observations: vec![0.0; environments * actions * FEATURES],
            masks: vec![false; environments * actions],
            rewards: vec![0.0; environments],
            done: vec![false; environments],
            history: Vec::new(),
            episodes: Vec::new(),
        };
        world.look();
        world
    }

    pub(super) fn environments(&self) -> usize {
        self.rewards.len()
    }

    pub(super) fn actions(&self) -> usize {
        self.actions
    }

    pub(super) fn iterations(&self) -> u64 {
        (self.history.len() / self.environments()) as u64
    }

    pub(super) fn history(&self) -> &[u8] {
        &self.history
    }

    pub(super) fn observed(&self) -> Result<Tensor> {
        let shape = (self.environments(), self.actions, FEATURES);
        Ok(Tensor::from_slice(&self.observations, shape, &Device::Cpu)?)
    }

    pub(super) fn step(&mut self, actions: &[usize]) {
        debug_assert!({
            let mut masks = self.masks.chunks_exact(self.actions);
            actions
                .iter()
                .all(|action| masks.next().is_some_and(|mask| mask[*action]))
        });
        self.gym.step(actions, &mut self.rewards, &mut self.done);
        // An action fits in a byte, because there are at most 130 actions.
        self.history.extend(actions.iter().map(|action| *action as u8));
        let now = self.iterations();
        let ended = self.gym.take_episodes();
        self.episodes.extend(ended.into_iter().map(|episode| (now, episode)));
        self.look();
    }

    /// Repeats the steps of a saved training. Calls `seen` after each step with the observations before it.
    pub(super) fn replay(&mut self, history: &[u8], mut seen: impl FnMut(&Before, &[usize], &Self)) -> Result<()> {
        let environments = self.environments();
        ensure!(
            history.len().is_multiple_of(environments),
            "actions: {} is not a multiple of the {environments} environments",
            history.len()
        );
        for step in history.chunks_exact(environments) {
            let actions: Vec<usize> = step.iter().map(|action| usize::from(*action)).collect();
            let mut masks = self.masks.chunks_exact(self.actions);
            let forbidden = actions.iter().find(|action| {
                let mask = masks.next().unwrap_or_default();
                !mask.get(**action).copied().unwrap_or(false)
            });
            if let Some(action) = forbidden {
                anyhow::bail!("actions: {action} was forbidden in step {}", self.iterations());
            }
            let before = Before(self.observations.clone());
            self.step(&actions);
            seen(&before, &actions, self);
        }
        Ok(())
    }

    fn look(&mut self) {
        self.gym.observe(&mut self.observations);
        self.gym.masks(&mut self.masks);
        if !self.is_masked {
            self.masks.fill(true);
        }
    }
}

pub(super) struct Before(pub(super) Vec<f32>);
