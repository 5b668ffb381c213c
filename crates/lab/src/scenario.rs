//! A scenario: the cluster, its load, its WAN and its failures, as a file describes them (docs/guide/simulate.md).

mod at_load;
pub mod profile;
mod random;
mod read;
mod tables;
mod trace;

use std::sync::Arc;

use edgeward_decision::config::Config;
use edgeward_decision::model::scorer::Ranker;
use edgeward_decision::model::site::{SiteDefinition, SiteKind};
use edgeward_decision::model::slo::Class;
use edgeward_kube::node::Node;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Micros, Permille};
use serde::Deserialize;
use serde_json::Value;

use crate::random::Distribution;

pub use profile::SimulatedProfile;
pub use random::random;
use read::numbers::{MOST, a_day, count, five_minutes, number, one, percent, rate, rate_steps, seconds};
pub use read::{Fleet, read, read_on};

#[derive(Debug, Clone)]
pub struct Scenario {
    pub name: String,
    pub description: String,
    /// Start of the measured time. The cluster fills before it.
    pub warmup: Micros,
    pub end: Micros,
    /// How long the run continues after `end`, so that work created before `end` can finish.
    pub drain: Micros,
    /// Number of seeds to run by default.
    pub seeds: u64,
    pub replicas: u32,
    pub delays: Delays,
    pub config: Arc<Config>,
    /// The sites in the order of the configuration: the edge first, then the clouds by name.
    pub sites: Vec<Site>,
    pub workloads: Vec<Workload>,
    pub failures: Vec<Failure>,
    /// The performance profile by which the policy `edgeward-profile` ranks sites.
    pub profile: Option<SimulatedProfile>,
    /// The scorer by which the policy `edgeward-learned` ranks clouds.
    pub scorer: Option<Arc<dyn Ranker>>,
}

/// Durations of the cluster's steps, in milliseconds.
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
    /// Spells in which work takes longer.
    pub slow: Vec<Slow>,
}

/// A spell in which work takes `factor` times as long.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Slow {
    #[serde(deserialize_with = "seconds::<_, 0>")]
    pub at_seconds: Micros,
    #[serde(deserialize_with = "seconds::<_, 1>")]
    pub lasting_seconds: Micros,
    #[serde(deserialize_with = "number::<_, 1, 1_000_000>")]
    pub factor: f64,
}

/// From this time on, work takes `factor` times what `serviceMs` says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Drift {
    #[serde(deserialize_with = "seconds::<_, 0>")]
    pub at_seconds: Micros,
    #[serde(deserialize_with = "number::<_, 1, 1_000_000>")]
    pub factor: f64,
}

impl Site {
    /// How long work takes here that starts at `now` and takes `time` at speed 1.
    pub fn service(&self, time: Micros, now: Micros) -> Micros {
        let time = time.rescaled(Permille::ONE, self.speed);
        let is_now = |slow: &&Slow| (slow.at_seconds..slow.at_seconds + slow.lasting_seconds).contains(&now);
        let factors = self.slow.iter().filter(is_now).map(|slow| slow.factor);
        factors.fold(time, times)
    }

    pub fn is_edge(&self) -> bool {
        self.definition.kind == SiteKind::Edge
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Wan {
    Model(WanModel),
    /// A measured WAN: start time of each row, RTT in milliseconds, and loss. Without an RTT, nothing passes.
    Trace(Vec<(Micros, Option<f64>, f64)>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct WanModel {
    /// RTT in milliseconds, drawn for each second.
    pub rtt: Distribution,
    pub loss: f64,
    pub diurnal: Option<DiurnalRtt>,
    pub flapping: Option<Flapping>,
    pub congestion: Option<Congestion>,
    pub outages: Vec<Outage>,
}

/// Daily variation of the RTT.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiurnalRtt {
    /// Milliseconds added at the peak.
    #[serde(deserialize_with = "number::<_, 0, 60_000_000>")]
    pub added_ms: f64,
    #[serde(default = "a_day", deserialize_with = "seconds::<_, 1>")]
    pub period_seconds: Micros,
    #[serde(default, deserialize_with = "seconds::<_, 0>")]
    pub peak_at_seconds: Micros,
}

/// Mean times between and within spells in which nothing passes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Flapping {
    #[serde(deserialize_with = "seconds::<_, 1>")]
    pub every_seconds: Micros,
    #[serde(deserialize_with = "seconds::<_, 1>")]
    pub down_seconds: Micros,
}

/// Mean times between and within spells of congestion, with their added RTT and loss.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Congestion {
    #[serde(deserialize_with = "seconds::<_, 1>")]
    pub every_seconds: Micros,
    #[serde(deserialize_with = "seconds::<_, 1>")]
    pub lasting_seconds: Micros,
    #[serde(default, deserialize_with = "number::<_, 0, 60_000_000>")]
    pub added_ms: f64,
    #[serde(default, deserialize_with = "percent")]
    pub loss_pct: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Outage {
    #[serde(deserialize_with = "seconds::<_, 0>")]
    pub at_seconds: Micros,
    #[serde(deserialize_with = "seconds::<_, 1>")]
    pub lasting_seconds: Micros,
}

/// A rate over time: pods per second, or the demand on a service.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Rate {
    PerSecond(#[serde(deserialize_with = "rate")] f64),
    Bursty {
        /// The rate between bursts.
        #[serde(deserialize_with = "rate")]
        per_second: f64,
        #[serde(deserialize_with = "rate")]
        burst_per_second: f64,
        /// Mean time between two bursts.
        #[serde(deserialize_with = "seconds::<_, 1>")]
        every_seconds: Micros,
        /// Mean duration of a burst.
        #[serde(deserialize_with = "seconds::<_, 1>")]
        lasting_seconds: Micros,
    },
    Diurnal {
        #[serde(deserialize_with = "rate")]
        per_second: f64,
        #[serde(deserialize_with = "number::<_, 0, 1_000>")]
        amplitude: f64,
        #[serde(default = "a_day", deserialize_with = "seconds::<_, 1>")]
        period_seconds: Micros,
        #[serde(default, deserialize_with = "seconds::<_, 0>")]
        peak_at_seconds: Micros,
    },
    /// Ordered by time.
    Steps(#[serde(deserialize_with = "rate_steps")] Vec<RateStep>),
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RateStep {
    #[serde(deserialize_with = "seconds::<_, 0>")]
    pub at_seconds: Micros,
    #[serde(deserialize_with = "rate")]
    pub per_second: f64,
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
    pub namespace: String,
    /// Whether the Jobs are the runs of one CronJob.
    pub is_cron_job: bool,
    /// The SLO that the pods state; `None` for pods that edgeward does not manage.
    pub slo: Option<Slo>,
    pub request: Amounts,
    pub manifest: Value,
    /// `spec.priority`.
    pub priority: i32,
    pub may_preempt: bool,
    /// Whether the pods name a scheduler that does not exist.
    pub is_unscheduled: bool,
    pub is_quota_blocked: bool,
    /// Time of the work, or of one request of a service, at speed 1, in milliseconds.
    pub service: Distribution,
    /// Share of the variance that pods of one controller have in common.
    pub correlation: f64,
    /// How `service` changes, in the order of time.
    pub drift: Vec<Drift>,
    /// Time to terminate, in milliseconds.
    pub termination: Distribution,
    pub kind: WorkloadKind,
}

impl Workload {
    /// A workload without an SLO. Its pods have priority 0, may preempt and take a second to terminate.
    fn new(name: &str, manifest: Value, service: Distribution, kind: WorkloadKind) -> Self {
        Self {
            name: name.to_owned(),
            namespace: name.to_owned(),
            is_cron_job: false,
            slo: None,
            request: Amounts::default(),
            manifest,
            priority: 0,
            may_preempt: true,
            is_unscheduled: false,
            is_quota_blocked: false,
            service,
            correlation: 0.0,
            drift: vec![],
            termination: Distribution::Constant(1_000.0),
            kind,
        }
    }
}

impl Workload {
    /// A time of work that `service` gives, as it is at `now`.
    pub fn drifted(&self, time: Micros, now: Micros) -> Micros {
        let begun = self.drift.iter().rev().find(|drift| drift.at_seconds <= now);
        begun.map_or(time, |drift| times(time, drift.factor))
    }
}

fn times(time: Micros, factor: f64) -> Micros {
    Micros((time.0 as f64 * factor).round() as u64)
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
        /// Rolling update: how many pods there may be above the number of replicas.
        surge: u32,
        /// Rolling update: how many pods there may be below the number of replicas.
        unavailable: u32,
    },
    /// Pods of a fleet file that run on a node from the start and do not end.
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

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scaling {
    pub demand: Rate,
    #[serde(deserialize_with = "number::<_, 1, MOST>")]
    pub per_replica: f64,
    #[serde(default = "one", deserialize_with = "count::<_, 1>")]
    pub min: u32,
    #[serde(deserialize_with = "count::<_, 1>")]
    pub max: u32,
    /// How long a lower number of replicas must have sufficed before the autoscaler scales down.
    #[serde(default = "five_minutes", deserialize_with = "seconds::<_, 0>")]
    pub stabilisation_seconds: Micros,
}

#[derive(Debug, Clone, Copy)]
pub struct Slo {
    pub class: Class,
    pub deadline: Option<Micros>,
    pub target: Option<Micros>,
    pub priority: u8,
    pub offload: bool,
}

/// A temporary failure of nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub at: Micros,
    pub lasts: Micros,
    pub nodes: Vec<usize>,
    /// The site, if its WAN fails as well.
    pub site: Option<usize>,
}
