//! DQN: learns from remembered steps.

use anyhow::Result;
use candle_core::{Device, Tensor};

use super::choice::{any, best};
use super::network::Network;
use super::optimiser::{Method, Optimiser};
use super::plan::Plan;
use super::rollout::{masked, masks_at, observations_at};
use super::world::{Before, World};
use crate::gym::FEATURES;
use crate::random::Stream;

const CAPACITY: usize = 100_000;
const BATCH: usize = 128;
const DISCOUNT: f64 = 0.99;
/// Share of random actions: at the start, and from the middle of the training on. It is linear in between.
const EXPLORATION: (f64, f64) = (1.0, 0.05);
const METHOD: Method = Method::Adam {
    rate: 2.5e-4,
    epsilon: 1e-8,
};

#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    pub(super) starts: u64,
    pub(super) every: u64,
    pub(super) copies: u64,
}

const SCHEDULE: Schedule = Schedule {
    starts: 10_000,
    every: 10,
    copies: 500,
};

pub(super) struct OffPolicy {
    pub(super) actor: Network,
    pub(super) target: Network,
    pub(super) optimiser: Optimiser,
    pub(super) schedule: Schedule,
    memory: Memory,
    explored: f64,
}

impl OffPolicy {
    pub(super) fn new(plan: &Plan, actions: usize, stream: &mut Stream) -> Result<Self> {
        let actor = Network::new(plan.algorithm.actor(actions), stream)?;
        let parameters = actor.parameters().map(|(_, parameter)| parameter.clone()).collect();
        Ok(Self {
            target: actor.copied()?,
            optimiser: Optimiser::new(METHOD, parameters),
            actor,
            schedule: SCHEDULE,
            memory: Memory::new(Plan::ENVIRONMENTS, actions),
            explored: 0.5 * plan.steps as f64 / Plan::ENVIRONMENTS as f64,
        })
    }

    pub(super) fn exploration(&self, iteration: u64) -> f64 {
        let (first, last) = EXPLORATION;
        (first + (last - first) * iteration as f64 / self.explored).max(last)
    }

    pub(super) fn update(&mut self, world: &mut World, stream: &mut Stream) -> Result<()> {
        let iteration = world.iterations();
        let masks = world.masks.chunks_exact(world.actions());
        let actions: Vec<usize> = if stream.unit() < self.exploration(iteration) {
            masks.map(|mask| any(mask, stream)).collect()
        } else {
            let numbers = self.actor.infer(&world.observed()?)?.to_vec2::<f32>()?;
            numbers
                .iter()
                .zip(masks)
                .map(|(numbers, mask)| best(numbers, mask))
                .collect()
        };
        let before = Before(world.observations.clone());
        world.step(&actions);
        self.memory.keep(&before, &actions, world);
        if iteration > self.schedule.starts && iteration.is_multiple_of(self.schedule.every) {
            self.learn(stream)?;
        }
        if iteration.is_multiple_of(self.schedule.copies) {
            self.target.copy_from(&self.actor)?;
        }
        Ok(())
    }

    pub(super) fn replay(&mut self, world: &mut World, history: &[u8]) -> Result<()> {
        world.replay(history, |before, actions, world| {
            self.memory.keep(before, actions, world)
        })
    }

    fn learn(&mut self, stream: &mut Stream) -> Result<()> {
        let Batch {
            before,
            after,
            masks,
            actions,
            rewards,
            goes_on,
        } = self.memory.batch(stream)?;
        // Double Q-learning: one network chooses the best next action of the mask, and the other one values it.
        let best = masked(&self.actor.infer(&after)?, &masks)?.argmax_keepdim(1)?;
        let next = self.target.infer(&after)?.gather(&best, 1)?.squeeze(1)?;
        let expected = (rewards + (next * goes_on)?.affine(DISCOUNT, 0.0)?)?.detach();
        let found = self.actor.forward(&before)?.gather(&actions, 1)?.squeeze(1)?;
        let gradients = (found - expected)?.sqr()?.mean_all()?.backward()?;
        self.optimiser.step(&[&gradients], None)
    }
}

struct Memory {
    environments: usize,
    actions: usize,
    room: usize,
    kept: usize,
    next: usize,
    before: Vec<f32>,
    after: Vec<f32>,
    masks: Vec<bool>,
    chosen: Vec<u32>,
    rewards: Vec<f32>,
    done: Vec<bool>,
}

struct Batch {
    before: Tensor,
    after: Tensor,
    masks: Tensor,
    actions: Tensor,
    rewards: Tensor,
    /// 0 where an episode ended, else 1.
    goes_on: Tensor,
}

impl Memory {
    fn new(environments: usize, actions: usize) -> Self {
        let room = CAPACITY / environments;
        let all = room * environments;
        Self {
            environments,
            actions,
            room,
            kept: 0,
            next: 0,
            before: vec![0.0; all * actions * FEATURES],
            after: vec![0.0; all * actions * FEATURES],
            masks: vec![false; all * actions],
            chosen: vec![0; all],
            rewards: vec![0.0; all],
            done: vec![false; all],
        }
    }

    fn keep(&mut self, before: &Before, actions: &[usize], world: &World) {
        let at = self.next * self.environments;
        put(&mut self.before, at * self.actions * FEATURES, &before.0);
        put(&mut self.after, at * self.actions * FEATURES, &world.observations);
        put(&mut self.masks, at * self.actions, &world.masks);
        put(&mut self.rewards, at, &world.rewards);
        put(&mut self.done, at, &world.done);
        let chosen = self.chosen[at..].iter_mut().zip(actions);
        chosen.for_each(|(own, action)| *own = *action as u32);
        self.next = (self.next + 1) % self.room;
        self.kept = (self.kept + 1).min(self.room);
    }

    fn batch(&self, stream: &mut Stream) -> Result<Batch> {
        let steps = self.kept * self.environments;
        let at: Vec<usize> = (0..BATCH).map(|_| stream.below(steps)).collect();
        let device = &Device::Cpu;
        let chosen = at.iter().map(|at| self.chosen[*at]).collect();
        Ok(Batch {
            before: observations_at(&self.before, [self.actions, FEATURES], &at)?,
            after: observations_at(&self.after, [self.actions, FEATURES], &at)?,
            masks: masks_at(&self.masks, self.actions, &at)?,
            actions: Tensor::from_vec(chosen, (BATCH, 1), device)?,
            rewards: Tensor::from_iter(at.iter().map(|at| self.rewards[*at]), device)?,
            goes_on: Tensor::from_iter(at.iter().map(|at| if self.done[*at] { 0.0_f32 } else { 1.0 }), device)?,
        })
    }
}

fn put<T: Copy>(all: &mut [T], at: usize, part: &[T]) {
    all[at..at + part.len()].copy_from_slice(part);
}
