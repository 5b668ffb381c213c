//! PPO and A2C: learn from the latest steps of the policy.

use anyhow::Result;
use candle_core::{D, Device, Tensor};

use super::choice::sample;
use super::network::{Network, Shape};
use super::optimiser::Optimiser;
use super::plan::Rollouts;
use super::world::World;
use crate::random::Stream;

pub(super) struct OnPolicy {
    pub(super) actor: Network,
    pub(super) critic: Network,
    pub(super) optimiser: Optimiser,
    rollouts: Rollouts,
}

/// Observations, actions and results, step by step, and within a step environment by environment.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) observations: Vec<f32>,
    pub(super) masks: Vec<bool>,
    pub(super) actions: Vec<usize>,
    pub(super) logarithms: Vec<f32>,
    pub(super) values: Vec<f32>,
    pub(super) rewards: Vec<f32>,
    pub(super) done: Vec<bool>,
}

/// Samples with equal numbers of actions, and the advantage of each.
pub(super) struct Lesson {
    pub(super) samples: Samples,
    pub(super) advantages: Vec<f32>,
}

impl OnPolicy {
    pub(super) fn new(shapes: [Shape; 2], rollouts: Rollouts, stream: &mut Stream) -> Result<Self> {
        let actor = Network::new(shapes[0], stream)?;
        let critic = Network::new(shapes[1], stream)?;
        let parameters = actor.parameters().chain(critic.parameters());
        let parameters = parameters.map(|(_, parameter)| parameter.clone()).collect();
        Ok(Self {
            optimiser: Optimiser::new(rollouts.method, parameters),
            actor,
            critic,
            rollouts,
        })
    }

    pub(super) fn iterations(&self) -> u64 {
        self.rollouts.steps as u64
    }

    pub(super) fn act(&self, world: &mut World, stream: &mut Stream) -> Result<Samples> {
        let mut samples = Samples::default();
        for _ in 0..self.rollouts.steps {
            let observed = world.observed()?;
            let logits = self.actor.infer(&observed)?.to_vec2::<f32>()?;
            samples.values.extend(self.critic.infer(&observed)?.to_vec1::<f32>()?);
            samples.observations.extend_from_slice(&world.observations);
            samples.masks.extend_from_slice(&world.masks);
            let masks = world.masks.chunks_exact(world.actions());
            let chosen: Vec<_> = logits
                .iter()
                .zip(masks)
                .map(|(logits, mask)| sample(logits, mask, stream))
                .collect();
            samples.logarithms.extend(chosen.iter().map(|(_, logarithm)| logarithm));
            let actions: Vec<usize> = chosen.iter().map(|(action, _)| *action).collect();
            world.step(&actions);
            samples.actions.extend(actions);
            samples.rewards.extend_from_slice(&world.rewards);
            samples.done.extend_from_slice(&world.done);
        }
        Ok(samples)
    }

    pub(super) fn update(&mut self, world: &mut World, stream: &mut Stream) -> Result<()> {
        let samples = self.act(world, stream)?;
        let last = self.critic.infer(&world.observed()?)?.to_vec1::<f32>()?;
        let lesson = self.lesson(samples, &last);
        self.improve(&[lesson], stream)
    }

    /// Values the samples. `last` holds the expected value after the last step of each environment.
    pub(super) fn lesson(&self, samples: Samples, last: &[f32]) -> Lesson {
        let advantages = advantages(
            &samples.rewards,
            &samples.values,
            &samples.done,
            last,
            self.rollouts.discount,
            self.rollouts.lambda,
        );
        Lesson { samples, advantages }
    }

    pub(super) fn improve(&mut self, lessons: &[Lesson], stream: &mut Stream) -> Result<()> {
        let orders = lessons.iter().map(|lesson| (0..lesson.advantages.len()).collect());
        let mut orders: Vec<Vec<usize>> = orders.collect();
        for _ in 0..self.rollouts.epochs {
            for (lesson, order) in lessons.iter().zip(&mut orders) {
                shuffle(order, stream);
                for part in order.chunks(self.rollouts.batch.min(order.len().max(1))) {
                    self.learn(lesson, part)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn logarithms(&self, observations: &Tensor, mask: &Tensor) -> Result<Tensor> {
        log_softmax(&masked(&self.actor.forward(observations)?, mask)?)
    }

    fn learn(&mut self, Lesson { samples, advantages }: &Lesson, part: &[usize]) -> Result<()> {
        let actions = samples.masks.len() / samples.actions.len();
        let features = samples.observations.len() / samples.masks.len();
        let device = &Device::Cpu;
        let count = part.len();
        let observations = observations_at(&samples.observations, [actions, features], part)?;
        let mask = masks_at(&samples.masks, actions, part)?;
        let chosen: Vec<u32> = part.iter().map(|at| samples.actions[*at] as u32).collect();
        let chosen = Tensor::from_vec(chosen, (count, 1), device)?;
        let of = |numbers: &dyn Fn(usize) -> f32| Tensor::from_iter(part.iter().map(|at| numbers(*at)), device);

        let mut advantage: Vec<f32> = part.iter().map(|at| advantages[*at]).collect();
        if self.rollouts.normalised && count > 1 {
            normalise(&mut advantage);
        }
        let advantage = Tensor::from_vec(advantage, count, device)?;
        let logarithms = self.logarithms(&observations, &mask)?;
        let logarithm = logarithms.gather(&chosen, 1)?.squeeze(1)?;
        let gain = match self.rollouts.clip {
            None => (&advantage * &logarithm)?,
            Some(clip) => {
                let ratio = (logarithm - of(&|at| samples.logarithms[at])?)?.exp()?;
                let clipped = (ratio.clamp((1.0 - clip) as f32, (1.0 + clip) as f32)? * &advantage)?;
                (ratio * &advantage)?.minimum(&clipped)?
            }
        };
        let mut loss = gain.mean_all()?.neg()?;
        if self.rollouts.entropy_weight != 0.0 {
            let entropy = (logarithms.exp()? * &logarithms)?.sum(1)?.mean_all()?;
            loss = (loss + (entropy * self.rollouts.entropy_weight)?)?;
        }

        let value = self.critic.forward(&observations)?;
        let earlier = of(&|at| samples.values[at])?;
        let expected = of(&|at| samples.values[at] + advantages[at])?;
        let mut error = (&value - &expected)?.sqr()?;
        if let Some(clip) = self.rollouts.value_clip {
            let near = (&earlier + (&value - &earlier)?.clamp(-clip as f32, clip as f32)?)?;
            error = error.maximum(&(near - &expected)?.sqr()?)?;
        }
        let worth = (error.mean_all()? * self.rollouts.value_weight)?;
        let gradients = [loss.backward()?, worth.backward()?];
        self.optimiser
            .step(&[&gradients[0], &gradients[1]], Some(self.rollouts.longest_gradient))
    }
}

/// Computes generalised advantage estimates. All slices except `last` are ordered by step, then by environment. `done`
/// marks steps that ended an episode; `last` holds the expected value after the last step.
pub(super) fn advantages(
    rewards: &[f32],
    values: &[f32],
    done: &[bool],
    last: &[f32],
    discount: f64,
    lambda: f64,
) -> Vec<f32> {
    let environments = last.len();
    let mut found = vec![0.0; rewards.len()];
    for (environment, last) in last.iter().enumerate() {
        let (mut next, mut later) = (f64::from(*last), 0.0);
        for at in (environment..rewards.len()).step_by(environments).rev() {
            let goes_on = if done[at] { 0.0 } else { 1.0 };
            let value = f64::from(values[at]);
            let surprise = f64::from(rewards[at]) + discount * next * goes_on - value;
            later = surprise + discount * lambda * goes_on * later;
            found[at] = later as f32;
            next = value;
        }
    }
    found
}

/// Returns the observations of these samples: samples × actions × features.
pub(super) fn observations_at(all: &[f32], [actions, features]: [usize; 2], at: &[usize]) -> Result<Tensor> {
    let numbers: Vec<f32> = rows(all, actions * features, at).copied().collect();
    Ok(Tensor::from_vec(numbers, (at.len(), actions, features), &Device::Cpu)?)
}

/// Returns the masks of these samples: samples × actions, 1 for allowed actions.
pub(super) fn masks_at(all: &[bool], actions: usize, at: &[usize]) -> Result<Tensor> {
    let masks: Vec<u8> = rows(all, actions, at).map(|allowed| u8::from(*allowed)).collect();
    Ok(Tensor::from_vec(masks, (at.len(), actions), &Device::Cpu)?)
}

fn rows<'a, T>(all: &'a [T], width: usize, at: &'a [usize]) -> impl Iterator<Item = &'a T> {
    at.iter().flat_map(move |at| &all[at * width..(at + 1) * width])
}

pub(super) fn masked(numbers: &Tensor, mask: &Tensor) -> Result<Tensor> {
    let least = Tensor::full(-1e8_f32, numbers.shape(), numbers.device())?;
    Ok(mask.where_cond(numbers, &least)?)
}

pub(super) fn log_softmax(logits: &Tensor) -> Result<Tensor> {
    let largest = logits.max_keepdim(D::Minus1)?.detach();
    let less = logits.broadcast_sub(&largest)?;
    let all = less.exp()?.sum_keepdim(D::Minus1)?.log()?;
    Ok(less.broadcast_sub(&all)?)
}

/// Scales numbers to a mean of 0 and a standard deviation of 1.
fn normalise(numbers: &mut [f32]) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().map(|x| f64::from(*x)).sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum();
    let deviation = (squares / (count - 1.0)).sqrt() + 1e-8;
    numbers
        .iter_mut()
        .for_each(|x| *x = ((f64::from(*x) - mean) / deviation) as f32);
}

fn shuffle(order: &mut [usize], stream: &mut Stream) {
    for end in (2..=order.len()).rev() {
        order.swap(end - 1, stream.below(end));
    }
}
