//! The results of a run.

use std::collections::BTreeMap;

use edgeward_decision::model::scorer::Features;
use edgeward_decision::model::slo::{Class, PerClass};

use crate::statistics::quantile;

#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Units with a time to meet, and how many were met in time, by class.
    pub attainment: PerClass<Attained>,
    pub bound: Vec<PerClass<u64>>,
    pub cost: f64,
    pub edge_utilisation: f64,
    pub gated: u64,
    /// Total time that pods were gated, in seconds.
    pub gated_seconds: f64,
    /// Total time that pods were unschedulable, in seconds.
    pub unschedulable_seconds: f64,
    pub unschedulable: u64,
    /// Seconds from the demand for a pod to its node, for pods that got one, in the order of binding. A Job's
    /// replacement pod counts from the demand for the first pod.
    pub waits: Vec<f64>,
    pub reasons: BTreeMap<&'static str, u64>,
    pub decisions: u64,
    pub preempted: u64,
    /// Pods that were evicted because another site was better for them.
    pub moved: u64,
    pub pods: Pods,
    pub timeline: Vec<Tick>,
    /// Whether each timed unit was met. The order is the same for all policies.
    pub units: Vec<bool>,
    /// The part of each pod, by number, in the met units and in the cost.
    pub shares: Vec<Share>,
    /// Choices of a learned scorer, in the order of time.
    pub choices: Vec<Choice>,
}

/// The met units and the cost of one pod.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Share {
    pub workload: usize,
    pub met: u64,
    pub cost: f64,
}

/// The choice of a cloud by a learned scorer.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    pub pod: usize,
    pub clouds: Vec<Features>,
    /// The clouds to choose from.
    pub good: Vec<bool>,
    pub chosen: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attained {
    pub asked: u64,
    pub met: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pods {
    pub created: u64,
    pub blocked: u64,
    pub done: u64,
    pub deleted: u64,
    pub running: u64,
    pub pending: u64,
    pub gated: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Tick {
    /// Time, in seconds.
    pub at: f64,
    pub edge_used: f64,
    pub gated: u64,
    pub waiting_at_edge: u64,
    pub waiting_in_clouds: u64,
    /// RTT of each cloud, in milliseconds.
    pub rtt: Vec<Option<f64>>,
    pub to_edge: u64,
    pub to_clouds: u64,
    pub to_gate: u64,
}

impl Attained {
    /// The share that was met; `None` if nothing was asked.
    pub fn share(self) -> Option<f64> {
        (self.asked > 0).then(|| self.met as f64 / self.asked as f64)
    }

    pub fn of_all(classes: &PerClass<Self>) -> Self {
        let classes = Class::ALL.into_iter().map(|class| classes[class]);
        classes.fold(Self::default(), |all, class| Self {
            asked: all.asked + class.asked,
            met: all.met + class.met,
        })
    }
}

impl Outcome {
    pub fn attained(&self) -> Attained {
        Attained::of_all(&self.attainment)
    }

    /// Percentiles 0 to 100 of the waits, in seconds.
    pub fn wait_percentiles(&self) -> Vec<f64> {
        let mut waits = self.waits.clone();
        waits.sort_unstable_by(f64::total_cmp);
        let shares = (0..=100).map(|percent| f64::from(percent) / 100.0);
        shares.map(|share| quantile(&waits, share)).collect()
    }

    pub fn cloud_fraction(&self) -> Option<f64> {
        self.cloud_fraction_of(&Class::ALL)
    }

    pub fn cloud_fraction_of(&self, classes: &[Class]) -> Option<f64> {
        let of = |site: &PerClass<u64>| classes.iter().map(|class| site[*class]).sum::<u64>();
        let all: u64 = self.bound.iter().map(of).sum();
        let edge = self.bound.first().map_or(0, of);
        (all > 0).then(|| (all - edge) as f64 / all as f64)
    }
}
