//! Agents: the baselines, and a function that plays episodes.

use std::fmt;

use super::environment::Gym;
use super::episode::{Episode, Summary};
use super::settings::{Settings, words};
use crate::random::{Purpose, Stream};

pub trait Agent {
    /// Returns the action for the current request; see [`Gym::step`].
    fn act(&mut self, gym: &Gym) -> usize;
}

words! {
    /// A policy that does not learn. All except "random" and "always-spread" reject a request that fits in no cluster.
    /// Among equal clusters, they take the first.
    pub enum Baseline {
        /// Among the clusters with room and a latency of at most the threshold, takes the one with the lowest sum of used
        /// cores and GiB. The paper's "Resource-Greedy".
        ResourceGreedy = "resource-greedy",
        /// Takes a random cluster with room and a latency of at most the threshold. The paper's "Latency-Greedy", which in
        /// fact chooses at random.
        LatencyGreedy = "latency-greedy",
        MinCost = "min-cost",
        MinLatency = "min-latency",
        /// Takes the cluster with room and the smallest used share, averaged over CPU and memory.
        MinUtilisation = "min-utilisation",
        AlwaysSpread = "always-spread",
        Random = "random",
        /// Takes the cluster with room for the most replicas of the request, as Karmada estimates them.
        Karmada = "karmada",
        /// Divides the replicas over all clusters in proportion to this estimate, by largest remainder.
        KarmadaDivided = "karmada-divided",
    }
}

impl Baseline {
    /// Returns the agent. Its draws depend on the seed only; only "random" and "latency-greedy" draw.
    pub fn agent(self, seed: u64) -> BaselineAgent {
        BaselineAgent {
            baseline: self,
            stream: Stream::new(seed, Purpose::Action, 0, 0),
            candidates: Vec::new(),
        }
    }

    /// Plays `episodes` episodes in an environment of each seed, each with its own agent, and summarises them.
    pub fn summary(self, settings: &Settings, seeds: &[u64], protocol: Protocol, episodes: usize) -> Summary {
        let played = seeds.iter().flat_map(|seed| {
            let (mut gym, mut agent) = (Gym::new(settings, *seed), self.agent(*seed));
            play(&mut gym, &mut agent, protocol, episodes)
        });
        Summary::of(&played.collect::<Vec<_>>())
    }
}

/// An agent that acts by a [`Baseline`].
#[derive(Debug, Clone)]
pub struct BaselineAgent {
    baseline: Baseline,
    stream: Stream,
    candidates: Vec<usize>,
}

impl Agent for BaselineAgent {
    fn act(&mut self, gym: &Gym) -> usize {
        let (used, types, latencies) = (gym.used(), gym.types(), gym.latencies());
        let threshold = gym.request().deployment.threshold;
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
            Baseline::Karmada => least(gym, |cluster| Some(-f64::from(gym.available_replicas(cluster)))),
            Baseline::KarmadaDivided => gym.divide_action(),
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

/// Returns the cluster with room and the least value, the first among equal ones. Without any, returns the reject
/// action.
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

words! {
    /// Number of resets before an episode. The published tests differ in it, and therefore in their draws.
    pub enum Protocol {
        OneReset = "one-reset",
        /// One reset before the first episode and two between episodes, as in the published test of trained policies.
        /// There, the vector environment resets at the end of an episode, and the test resets again.
        TwoResets = "two-resets",
    }
}

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
