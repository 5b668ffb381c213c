//! Several environments in one.

use super::environment::{FEATURES, Gym};
use super::episode::Episode;
use super::settings::Settings;

/// Several environments of equal shape. An environment is reset as soon as its episode ends, so the next observation
/// belongs to a new episode. Slices hold the environments one after the other; debug builds check their lengths.
#[derive(Debug, Clone)]
pub struct VectorGym {
    gyms: Vec<Gym>,
    actions: usize,
    episodes: Vec<Episode>,
}

impl VectorGym {
    /// Creates an environment for each seed, at the beginning of its first episode.
    pub fn new(settings: &Settings, seeds: &[u64]) -> Self {
        let gyms = seeds.iter().map(|seed| {
            let mut gym = Gym::new(settings, *seed);
            gym.reset();
            gym
        });
        Self {
            gyms: gyms.collect(),
            actions: settings.clusters.clamp(1, Settings::MAX_CLUSTERS) + 2,
            episodes: Vec::new(),
        }
    }

    pub fn environments(&self) -> usize {
        self.gyms.len()
    }

    /// Number of actions of each environment; see [`Gym::actions`].
    pub fn actions(&self) -> usize {
        self.actions
    }

    pub fn gyms(&self) -> &[Gym] {
        &self.gyms
    }

    /// Writes the observations: environments × actions × [`FEATURES`], row by row; see [`Gym::observe`].
    pub fn observe(&self, out: &mut [f32]) {
        debug_assert_eq!(out.len(), self.gyms.len() * self.actions * FEATURES);
        let parts = out.chunks_exact_mut(self.actions * FEATURES);
        self.gyms.iter().zip(parts).for_each(|(gym, out)| gym.observe(out));
    }

    /// Writes the allowed actions: environments × actions; see [`Gym::mask`].
    pub fn masks(&self, out: &mut [bool]) {
        debug_assert_eq!(out.len(), self.gyms.len() * self.actions);
        let parts = out.chunks_exact_mut(self.actions);
        self.gyms.iter().zip(parts).for_each(|(gym, out)| gym.mask(out));
    }

    /// Takes one action in each environment. Writes the reward of each step and whether an episode ended with it.
    pub fn step(&mut self, actions: &[usize], rewards: &mut [f32], done: &mut [bool]) {
        debug_assert_eq!(actions.len(), self.gyms.len());
        debug_assert_eq!(rewards.len(), self.gyms.len());
        debug_assert_eq!(done.len(), self.gyms.len());
        let results = rewards.iter_mut().zip(done);
        for ((gym, action), (reward, done)) in self.gyms.iter_mut().zip(actions).zip(results) {
            let step = gym.step(*action);
            *reward = step.reward as f32;
            *done = step.episode.is_some();
            if let Some(episode) = step.episode {
                self.episodes.push(episode);
                gym.reset();
            }
        }
    }

    /// Returns the episodes that ended since the last call, in the order in which they ended.
    pub fn take_episodes(&mut self) -> Vec<Episode> {
        std::mem::take(&mut self.episodes)
    }
}
