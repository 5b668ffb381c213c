//! What is simulated: a cluster, its load, its WAN and what fails, as a file describes it (docs/guide/simulate.md).

mod at_load;
pub mod profile;
mod read;
mod tables;
mod trace;

use std::sync::Arc;

use edgeward_core::config::Config;
use edgeward_core::model::node::Node;
use edgeward_core::model::site::{SiteDefinition, SiteKind};
use edgeward_core::model::slo::Class;
use edgeward_core::resources::Amounts;
use edgeward_core::units::{Micros, Permille};
use serde::Deserialize;
use serde_json::Value;

use crate::random::Distribution;

pub use profile::SimulatedProfile;
use read::numbers::number;
pub use read::{Fleet, read, read_on};

#[derive(Debug, Clone)]
pub struct Scenario {
    pub name: String,
    pub description: String,
    /// From when on what is created counts: before, the cluster fills.
    pub warmup: Micros,
    pub end: Micros,
    /// For how long it goes on after that, so that what was created has its outcome.
    pub drain: Micros,
    /// How many seeds are run where the command does not say.
    pub seeds: u64,
    pub replicas: u32,
    pub delays: Delays,
    pub config: Arc<Config>,
    /// The sites in the order of the configuration: the edge first, then the clouds by name.
    pub sites: Vec<Site>,
    pub workloads: Vec<Workload>,
    /// What fails.
    pub failures: Vec<Failure>,
    /// What the policy `edgeward-profile` ranks sites by.
    pub profile: Option<SimulatedProfile>,
}

/// How long the steps of a cluster take, in milliseconds.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Delays {
    #[serde(rename = "watchMs")]
    pub watch: Distribution,
    #[serde(rename = "persistMs", deserialize_with = "number::<_, 1, 60_000_000>")]
    pub persist: f64,
    #[serde(rename = "patchMs", deserialize_with = "number::<_, 1, 60_000_000>")]
    pub patch: f64,
    #[serde(rename = "cycleMs", deserialize_with = "number::<_, 1, 60_000_000>")]
    pub cycle: f64,
    #[serde(rename = "bindMs")]
    pub bind: Distribution,
    #[serde(rename = "startMs")]
    pub start: Distribution,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            watch: Distribution::LogNormal(5.0, 0.8),
            persist: 3.0,
            patch: 10.0,
            cycle: 1.0,
            bind: Distribution::LogNormal(6.0, 0.5),
            start: Distribution::LogNormal(800.0, 0.4),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Site {
    pub definition: Arc<SiteDefinition>,
    pub speed: Permille,
    pub cost: f64,
    pub nodes: Vec<Node>,
    pub wan: Option<Wan>,
}

impl Site {
    pub fn is_edge(&self) -> bool {
        self.definition.kind == SiteKind::Edge
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Wan {
    Model(WanModel),
    /// Measured: from when on, RTT in milliseconds and loss; without an RTT nothing passes.
    Trace(Vec<(Micros, Option<f64>, f64)>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct WanModel {
    /// RTT in milliseconds, second by second.
    pub rtt: Distribution,
    pub loss: f64,
    /// What is added to the RTT in the course of a day: milliseconds at the peak, period, first peak.
    pub diurnal: Option<(f64, Micros, Micros)>,
    pub flapping: Option<(Micros, Micros)>,
    /// Times of higher RTT and loss: mean time between two, mean time of one, RTT that is added, loss.
    pub congestion: Option<(Micros, Micros, f64, f64)>,
    pub outages: Vec<(Micros, Micros)>,
}

/// How the number of pods in a second, or what is asked of a service, changes.
#[derive(Debug, Clone, PartialEq)]
pub enum Rate {
    Constant(f64),
    /// Between bursts and in them; mean time between two, and mean time of one.
    Bursty(f64, f64, Micros, Micros),
    Diurnal(f64, f64, Micros, Micros),
    Steps(Vec<(Micros, f64)>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Arrivals {
    Poisson(Rate),
    Trace(Vec<(Micros, u32)>),
    Log(Vec<(Micros, u64)>),
}

#[derive(Debug, Clone)]
pub struct Workload {
    pub name: String,
    /// What states their SLO; `None` for pods that edgeward does not manage.
    pub slo: Option<Slo>,
    pub request: Amounts,
    pub manifest: Value,
    /// `spec.priority`.
    pub priority: i32,
    pub may_preempt: bool,
    /// Whether nobody schedules them: their scheduler does not exist.
    pub is_unscheduled: bool,
    pub is_quota_blocked: bool,
    /// The time of the work, or of one request of a service, at speed 1, in milliseconds.
    pub service: Distribution,
    /// The share of its variance that pods of one controller have in common.
    pub correlation: f64,
    /// How long they take to terminate, in milliseconds.
    pub termination: Distribution,
    pub kind: WorkloadKind,
}

#[derive(Debug, Clone)]
pub enum WorkloadKind {
    Jobs {
        arrivals: Arrivals,
        pods: u32,
    },
    Service {
        replicas: Replicas,
        rollouts: Vec<Micros>,
        /// How many pods more than replicas there may be meanwhile, and how many fewer.
        surge: u32,
        /// See `surge`.
        unavailable: u32,
    },
    /// Pods that run on a node from the beginning and do not end: those of a fleet file.
    Initial {
        node: usize,
        pods: u32,
    },
}

#[derive(Debug, Clone)]
pub enum Replicas {
    Fixed(u32),
    Scaled(Scaling),
}

#[derive(Debug, Clone)]
pub struct Scaling {
    pub demand: Rate,
    pub per_replica: f64,
    pub least: u32,
    pub most: u32,
    /// For how long fewer replicas must have been enough before some go.
    pub stabilisation: Micros,
}

#[derive(Debug, Clone, Copy)]
pub struct Slo {
    pub class: Class,
    pub deadline: Option<Micros>,
    pub target: Option<Micros>,
    pub priority: u8,
    pub offload: bool,
}

/// Something fails and comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub at: Micros,
    pub lasts: Micros,
    pub nodes: Vec<usize>,
    /// The site, if its WAN fails as well.
    pub site: Option<usize>,
}
