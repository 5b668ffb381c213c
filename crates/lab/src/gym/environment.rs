//! A single environment.

use std::collections::VecDeque;

use super::catalogue::{CLUSTER_TYPES, ClusterType, DEPLOYMENTS, Deployment};
use super::episode::{Episode, Step};
use super::generator::Generator;
use super::latency::{ALL_GONE, ALL_PLACED, Change, Latencies, SPREAD_GONE, SPREAD_PLACED};
use super::settings::{Mode, Observation, RewardKind, Settings};
use super::spread::{available, divide, spread};

pub const FEATURES: usize = 10;

pub const EPISODE_STEPS: u32 = 100;

const GATE: f64 = 0.95;
const MAX_COST: f64 = 16.0;
const ARRIVAL_RATE: f64 = 100.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Request {
    pub deployment: &'static Deployment,
    /// Number of replicas, 1 to 7.
    pub replicas: u8,
    /// Duration in units of the mean duration. In mode `instant` it is only observed.
    pub duration: f64,
}

#[derive(Debug, Clone)]
struct View {
    used: Vec<(f64, f64)>,
    /// Mean latency of each cluster, in ms.
    latency: Vec<f64>,
    request: Request,
}

#[derive(Debug, Clone)]
struct Running {
    departs: f64,
    cpu: f64,
    memory: f64,
    /// Clusters with their replicas, in the order of the clusters.
    shares: Vec<(usize, u8)>,
    /// How the latencies of these clusters change with the departure.
    gone: &'static Change,
}

const MAX_REPLICAS: u32 = 7;

struct Accepted {
    /// Expected latency over the replicas, in ms.
    latency: f64,
    cost: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    steps: u32,
    reward: f64,
    accepted: u32,
    latency: f64,
    cost: f64,
}

/// An environment of gym-multi-k8s: clusters of random types, requests for replicas, and latencies that placements
/// change.
///
/// In the default settings it makes the same draws as the published code: the same seed and actions give the same
/// rewards. A step costs O(clusters); spreading costs O(clusters²).
#[derive(Debug, Clone)]
pub struct Gym {
    settings: Settings,
    generator: Generator,
    types: Vec<&'static ClusterType>,
    latencies: Latencies,
    used: Vec<(f64, f64)>,
    request: Request,
    now: f64,
    /// Ordered by departure, and then by arrival.
    running: VecDeque<Running>,
    tally: Tally,
    /// The view after the last step; only kept for stale observations.
    seen: View,
}

impl Gym {
    /// Creates an environment before its first [reset](Self::reset). Invalid settings are clamped to their bounds.
    pub fn new(settings: &Settings, seed: u64) -> Self {
        let clusters = settings.clusters.clamp(1, Settings::MAX_CLUSTERS);
        let request = Request {
            deployment: &DEPLOYMENTS[0],
            replicas: 1,
            duration: 0.0,
        };
        let mut gym = Self {
            settings: Settings {
                clusters,
                ..settings.clone()
            },
            generator: Generator::new(seed),
            types: vec![&CLUSTER_TYPES[0]; clusters],
            latencies: Latencies::new(clusters),
            used: vec![(0.0, 0.0); clusters],
            request,
            now: 0.0,
            running: VecDeque::new(),
            tally: Tally::default(),
            seen: View {
                used: vec![(0.0, 0.0); clusters],
                latency: vec![0.0; clusters],
                request,
            },
        };
        gym.draw_clusters();
        gym.next_request();
        gym.look();
        gym
    }

    /// Begins an episode: draws new clusters and removes all running requests. The pending request and the clock stay,
    /// and the generator is not seeded again.
    pub fn reset(&mut self) {
        self.tally = Tally::default();
        self.running.clear();
        self.draw_clusters();
        self.look();
    }

    fn draw_clusters(&mut self) {
        let generator = &mut self.generator;
        self.latencies.draw(generator);
        for kind in &mut self.types {
            *kind = &CLUSTER_TYPES[generator.below(CLUSTER_TYPES.len() as u32) as usize];
        }
        self.used.iter_mut().for_each(|used| used.0 = 0.2 * generator.unit());
        self.used.iter_mut().for_each(|used| used.1 = 0.2 * generator.unit());
    }

    fn next_request(&mut self) {
        self.now += self.generator.exponential() / ARRIVAL_RATE;
        let duration = self.generator.exponential();
        let now = self.now;
        while let Some(running) = self.running.pop_front_if(|running| running.departs <= now) {
            self.depart(&running);
        }
        // The published code takes the deployment before the index that it draws.
        let index =
            (self.generator.below(DEPLOYMENTS.len() as u32) as usize + DEPLOYMENTS.len() - 1) % DEPLOYMENTS.len();
        self.request = Request {
            deployment: &DEPLOYMENTS[index],
            replicas: self.generator.below(MAX_REPLICAS) as u8 + 1,
            duration,
        };
    }

    fn depart(&mut self, running: &Running) {
        for (cluster, replicas) in &running.shares {
            let used = &mut self.used[*cluster];
            used.0 -= f64::from(*replicas) * running.cpu;
            used.1 -= f64::from(*replicas) * running.memory;
            self.latencies.change(*cluster, running.gone, &mut self.generator);
        }
    }

    fn look(&mut self) {
        if self.settings.observation == Observation::Stale {
            self.seen.used.copy_from_slice(&self.used);
            self.seen.latency.copy_from_slice(self.latencies.means());
            self.seen.request = self.request;
        }
    }

    /// Returns the number of actions. In this order, they are: all replicas in one of the clusters, spread the
    /// replicas, reject the request.
    pub fn actions(&self) -> usize {
        self.clusters() + 2
    }

    pub fn clusters(&self) -> usize {
        self.settings.clusters
    }

    pub fn spread_action(&self) -> usize {
        self.clusters()
    }

    pub fn reject_action(&self) -> usize {
        self.clusters() + 1
    }

    /// Divides the replicas over the clusters in proportion to their [available replicas](Self::available_replicas).
    /// The published environment does not have this action, and [`actions`](Self::actions) does not count it.
    pub fn divide_action(&self) -> usize {
        self.clusters() + 2
    }

    pub fn request(&self) -> Request {
        self.request
    }

    pub fn types(&self) -> &[&'static ClusterType] {
        &self.types
    }

    pub fn used(&self) -> &[(f64, f64)] {
        &self.used
    }

    /// Mean latency of each cluster, in ms.
    pub fn latencies(&self) -> &[f64] {
        self.latencies.means()
    }

    pub fn now(&self) -> f64 {
        self.now
    }

    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Whether a cluster has no room for all replicas of the request. A cluster that does not exist is full.
    #[inline]
    pub fn is_full(&self, cluster: usize) -> bool {
        cluster >= self.clusters() || self.is_too_small(cluster, self.request.replicas)
    }

    /// Whether a cluster has no room for this number of replicas of the request.
    #[inline]
    fn is_too_small(&self, cluster: usize, replicas: u8) -> bool {
        let (kind, used) = (self.types[cluster], self.used[cluster]);
        let (deployment, replicas) = (self.request.deployment, f64::from(replicas));
        used.0 + replicas * deployment.cpu > GATE * kind.cpu
            || used.1 + replicas * deployment.memory > GATE * kind.memory
    }

    /// Returns how many replicas of the request a cluster has room for.
    pub fn available_replicas(&self, cluster: usize) -> u32 {
        let (kind, used, deployment) = (self.types[cluster], self.used[cluster], self.request.deployment);
        let free = (GATE * kind.cpu - used.0, GATE * kind.memory - used.1);
        available(free, deployment.cpu, deployment.memory)
    }

    /// Writes the observation to `out`: [`FEATURES`] numbers for each action. They are used and total CPU (cores), used
    /// and total memory (GiB), and mean latency (ms), then the request's replicas, CPU and memory of one replica,
    /// latency threshold (ms), and duration. Spread and reject have -1 in place of the first five. `out` must have
    /// `actions() * FEATURES` entries; debug builds check this. O(clusters).
    pub fn observe(&self, out: &mut [f32]) {
        debug_assert_eq!(out.len(), self.actions() * FEATURES);
        let (used, latencies, request) = match self.settings.observation {
            Observation::Stale => (&self.seen.used[..], &self.seen.latency[..], &self.seen.request),
            Observation::Fresh => (&self.used[..], self.latencies.means(), &self.request),
        };
        let (per_cpu, per_memory, per_latency, per_replica) = match self.settings.scaled {
            true => (1.0 / 8.0, 1.0 / 32.0, 1.0 / 500.0, 1.0 / 8.0),
            false => (1.0, 1.0, 1.0, 1.0),
        };
        let asked = [
            f32::from(request.replicas) * per_replica,
            request.deployment.cpu as f32 * per_cpu,
            request.deployment.memory as f32 * per_memory,
            request.deployment.threshold as f32 * per_latency,
            request.duration as f32,
        ];
        let mut rows = out.chunks_exact_mut(FEATURES);
        let clusters = used.iter().zip(latencies).zip(&self.types);
        for (((used, latency), kind), row) in clusters.zip(rows.by_ref()) {
            let cluster = [
                used.0 as f32 * per_cpu,
                kind.cpu as f32 * per_cpu,
                used.1 as f32 * per_memory,
                kind.memory as f32 * per_memory,
                *latency as f32 * per_latency,
            ];
            row[..5].copy_from_slice(&cluster);
            row[5..].copy_from_slice(&asked);
        }
        let spread = if self.settings.distinct_padding { -2.0 } else { -1.0 };
        for (row, padding) in rows.zip([spread, -1.0]) {
            row[..5].fill(padding);
            row[5..].copy_from_slice(&asked);
        }
    }

    /// Writes the allowed actions to `out`. A cluster is allowed if it has room for the pending request. Spread and
    /// reject are always allowed, although spreading may fail. `out` must have [`actions`](Self::actions) entries;
    /// debug builds check this.
    pub fn mask(&self, out: &mut [bool]) {
        debug_assert_eq!(out.len(), self.actions());
        for (cluster, may) in out.iter_mut().enumerate() {
            *may = cluster >= self.clusters() || !self.is_full(cluster);
        }
    }

    /// Takes an action: an index below [`actions`](Self::actions), or [`divide_action`](Self::divide_action). A higher
    /// index rejects the request. For a cluster without room, the request is not accepted and nothing else changes.
    /// After the last step of an episode the caller must [reset](Self::reset) the environment. Until then the episode
    /// continues, and every further step returns it.
    pub fn step(&mut self, action: usize) -> Step {
        debug_assert!(
            action <= self.divide_action(),
            "{action} is not one of {} actions",
            self.actions()
        );
        let accepted = match action {
            cluster if cluster < self.clusters() => self.deploy(cluster),
            action if action == self.spread_action() => self.spread(),
            action if action == self.divide_action() => self.divide(),
            _ => None,
        };
        let reward = self.reward(accepted.as_ref());
        self.look();
        self.next_request();
        let tally = &mut self.tally;
        tally.steps += 1;
        tally.reward += reward;
        if let Some(Accepted { latency, cost }) = accepted {
            tally.accepted += 1;
            tally.latency += latency;
            tally.cost += cost;
        }
        let episode = (tally.steps >= EPISODE_STEPS).then(|| tally.episode());
        Step { reward, episode }
    }

    fn deploy(&mut self, cluster: usize) -> Option<Accepted> {
        if self.is_full(cluster) {
            return None;
        }
        let replicas = self.request.replicas;
        self.occupy(cluster, replicas);
        self.latencies.change(cluster, &ALL_PLACED, &mut self.generator);
        self.run(vec![(cluster, replicas)], &ALL_GONE);
        Some(Accepted {
            latency: self.latencies.means()[cluster],
            cost: self.types[cluster].cost,
        })
    }

    fn spread(&mut self) -> Option<Accepted> {
        let Request {
            deployment, replicas, ..
        } = self.request;
        if replicas == 1 {
            return None;
        }
        let clusters = self.types.iter().zip(&self.used);
        let free: Vec<_> = clusters
            .map(|(kind, used)| (kind.cpu - used.0, kind.memory - used.1))
            .collect();
        self.place(spread(replicas, deployment.cpu, deployment.memory, &free))
    }

    fn divide(&mut self) -> Option<Accepted> {
        let available: Vec<u32> = (0..self.clusters())
            .map(|cluster| self.available_replicas(cluster))
            .collect();
        let replicas = self.request.replicas;
        let shares = divide(replicas, &available)?;
        match shares.iter().position(|share| *share == replicas) {
            Some(cluster) => self.deploy(cluster),
            None => self.place(shares),
        }
    }

    /// Places a part of the replicas in each cluster.
    fn place(&mut self, shares: Vec<u8>) -> Option<Accepted> {
        let replicas = self.request.replicas;
        if (0..self.clusters()).any(|cluster| self.is_too_small(cluster, shares[cluster])) {
            return None;
        }
        let (mut latency, mut cost, mut placed) = (0.0, 0.0, vec![]);
        for (cluster, share) in shares.into_iter().enumerate() {
            if share > 0 {
                self.occupy(cluster, share);
                placed.push((cluster, share));
            }
            latency += self.latencies.means()[cluster] * f64::from(share);
            // The latencies of clusters without a replica change as well.
            self.latencies.change(cluster, &SPREAD_PLACED, &mut self.generator);
            cost += self.types[cluster].cost * f64::from(share);
        }
        self.run(placed, &SPREAD_GONE);
        Some(Accepted {
            latency: latency / f64::from(replicas),
            cost: cost / f64::from(replicas),
        })
    }

    fn occupy(&mut self, cluster: usize, replicas: u8) {
        let used = &mut self.used[cluster];
        used.0 += f64::from(replicas) * self.request.deployment.cpu;
        used.1 += f64::from(replicas) * self.request.deployment.memory;
    }

    fn run(&mut self, shares: Vec<(usize, u8)>, gone: &'static Change) {
        let departs = match self.settings.mode {
            Mode::Instant => 0.0,
            Mode::Stay => self.now + self.request.duration,
        };
        let place = self.running.partition_point(|other| other.departs <= departs);
        let running = Running {
            departs,
            cpu: self.request.deployment.cpu,
            memory: self.request.deployment.memory,
            shares,
            gone,
        };
        self.running.insert(place, running);
    }

    fn reward(&self, accepted: Option<&Accepted>) -> f64 {
        let kind = self.settings.reward;
        let Some(Accepted { latency, cost }) = accepted else {
            let all_full = (0..self.clusters()).all(|cluster| self.is_full(cluster));
            return match (all_full, kind) {
                (false, _) => -1.0,
                (true, RewardKind::Cost) => MAX_COST - 1.0,
                (true, _) => 1.0,
            };
        };
        let sign = |is_good: bool| if is_good { 1.0 } else { -1.0 };
        match kind {
            RewardKind::Latency => sign(self.request.deployment.threshold > *latency),
            RewardKind::Cost => rounded(MAX_COST - cost, 100.0),
            RewardKind::Naive => 1.0,
            RewardKind::Risk => sign(self.utilisations().all(|used| used <= 0.75)),
            RewardKind::Binpack => rounded(self.utilisations().fold(f64::INFINITY, f64::min), 1000.0),
        }
    }

    /// Returns the used share of CPU or memory of each cluster, whichever is larger.
    fn utilisations(&self) -> impl Iterator<Item = f64> {
        let clusters = self.used.iter().zip(&self.types);
        clusters.map(|(used, kind)| (used.0 / kind.cpu).max(used.1 / kind.memory))
    }
}

fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round_ties_even() / parts
}

impl Tally {
    fn episode(&self) -> Episode {
        let accepted = f64::from(self.accepted);
        let mean = |sum: f64| (self.accepted > 0).then(|| sum / accepted);
        Episode {
            reward: self.reward,
            rejected: 100.0 * (1.0 - accepted / f64::from(self.steps)),
            latency: mean(self.latency),
            cost: mean(self.cost),
        }
    }
}
