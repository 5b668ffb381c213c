//! Who chooses actions: the baselines, and how episodes are played.

use std::fmt;

use super::environment::Gym;
use super::episode::{Episode, Summary};
use super::settings::{Settings, words};
use crate::random::{Purpose, Stream};

pub trait Agent {
    /// The action for the request that is to be placed, below [`Gym::actions`].
    fn act(&mut self, gym: &Gym) -> usize;
}

/// An agent that learns nothing. All but "random" and "always-spread" reject what fits into no cluster; of equal clusters the
/// first is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Baseline {
    /// Of the clusters with room whose latency is not above the threshold, the one of which the fewest cores and GiB together
    /// are taken. "Resource-Greedy" of the paper.
    ResourceGreedy,
    /// Any of the same clusters. "Latency-Greedy" of the paper, which is random in truth.
    LatencyGreedy,
    MinCost,
    MinLatency,
    /// The cluster with room of which the smallest share is taken, on average of CPU and memory.
    MinUtilisation,
    AlwaysSpread,
    Random,
    /// The cluster with room that could hold the request most often, on average of CPU and memory: what Karmada's estimate does.
    Karmada,
}

words!(
    Baseline: ResourceGreedy = "resource-greedy",
    LatencyGreedy = "latency-greedy",
    MinCost = "min-cost",
    MinLatency = "min-latency",
    MinUtilisation = "min-utilisation",
    AlwaysSpread = "always-spread",
    Random = "random",
    Karmada = "karmada"
);

impl Baseline {
    /// The agent. What it draws depends on the seed alone; only "random" and "latency-greedy" draw.
    pub fn agent(self, seed: u64) -> BaselineAgent {
        BaselineAgent {
            baseline: self,
            stream: Stream::new(seed, Purpose::Action, 0, 0),
            candidates: Vec::new(),
        }
    }

    /// What comes of so many episodes in environments of each of these seeds, each with an agent of its own.
    pub fn summary(self, settings: &Settings, seeds: &[u64], protocol: Protocol, episodes: usize) -> Summary {
        let played = seeds.iter().flat_map(|seed| {
            let (mut gym, mut agent) = (Gym::new(settings, *seed), self.agent(*seed));
            play(&mut gym, &mut agent, protocol, episodes)
        });
        Summary::of(&played.collect::<Vec<_>>())
    }
}

/// A [`Baseline`] at work.
#[derive(Debug, Clone)]
pub struct BaselineAgent {
    baseline: Baseline,
    stream: Stream,
    candidates: Vec<usize>,
}

impl Agent for BaselineAgent {
    fn act(&mut self, gym: &Gym) -> usize {
        let (used, types, latencies) = (gym.used(), gym.types(), gym.latencies());
        let request = gym.request();
        let threshold = request.deployment.threshold;
        match self.baseline {
            Baseline::ResourceGreedy => least(gym, |cluster| {
                let taken = used[cluster].0 + used[cluster].1;
                (latencies[cluster] <= threshold).then_some(taken)
            }),
            Baseline::LatencyGreedy => {
                let near = |cluster: &usize| latencies[*cluster] <= threshold && !gym.is_full(*cluster);
                self.any(gym, (0..gym.clusters()).filter(near))
            }
            Baseline::MinCost => least(gym, |cluster| Some(types[cluster].cost)),
            Baseline::MinLatency => least(gym, |cluster| Some(latencies[cluster])),
            Baseline::MinUtilisation => least(gym, |cluster| {
                let (used, kind) = (used[cluster], types[cluster]);
                Some((used.0 / kind.cpu + used.1 / kind.memory) / 2.0)
            }),
            Baseline::AlwaysSpread => gym.spread_action(),
            Baseline::Random => {
                let may = |action: &usize| *action >= gym.clusters() || !gym.is_full(*action);
                self.any(gym, (0..gym.actions()).filter(may))
            }
            Baseline::Karmada => least(gym, |cluster| {
                let (used, kind) = (used[cluster], types[cluster]);
                let (cpu, memory) = (kind.cpu - used.0, kind.memory - used.1);
                Some(-(cpu / request.deployment.cpu + memory / request.deployment.memory) / 2.0)
            }),
        }
    }
}

impl BaselineAgent {
    fn any(&mut self, gym: &Gym, candidates: impl Iterator<Item = usize>) -> usize {
        self.candidates.clear();
        self.candidates.extend(candidates);
        match self.candidates.len() {
            0 => gym.reject_action(),
            count => self.candidates[self.stream.below(count)],
        }
    }
}

/// The cluster with room whose value is the least, the first of equal ones; without any, rejection.
fn least(gym: &Gym, value: impl Fn(usize) -> Option<f64>) -> usize {
    let mut best = (gym.reject_action(), f64::INFINITY);
    for cluster in 0..gym.clusters() {
        if let Some(value) = value(cluster)
            && value < best.1
            && !gym.is_full(cluster)
        {
            best = (cluster, value);
        }
    }
    best.0
}

/// How often an environment is reset before an episode. The published tests differ in it, and so do their draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    OneReset,
    /// Once before the first episode and twice between two: of the trained ones, whose vector environment resets at the end
    /// of an episode, and whose test does so again.
    TwoResets,
}

words!(Protocol: OneReset = "one-reset", TwoResets = "two-resets");

pub fn play(gym: &mut Gym, agent: &mut dyn Agent, protocol: Protocol, episodes: usize) -> Vec<Episode> {
    let mut played = Vec::with_capacity(episodes);
    for _ in 0..episodes {
        gym.reset();
        loop {
            let action = agent.act(gym);
            if let Some(episode) = gym.step(action).episode {
                played.push(episode);
                break;
            }
        }
        if protocol == Protocol::TwoResets {
            gym.reset();
        }
    }
    played
}
