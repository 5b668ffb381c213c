//! What came of a run.

use std::collections::BTreeMap;

use edgeward_core::model::slo::{Class, PerClass};

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// What was asked for with a time, and how much of it was met in time, by class.
    pub attainment: PerClass<Attained>,
    /// Managed pods that got a node, by site and class.
    pub bound: Vec<PerClass<u64>>,
    /// What the sites cost.
    pub cost: f64,
    /// Which share of the edge's CPU was asked for, on average.
    pub edge_utilisation: f64,
    /// Pods that were gated.
    pub gated: u64,
    /// How long each of them was, in seconds.
    pub gated_seconds: Vec<f64>,
    /// How long pods were Unschedulable, all together, in seconds.
    pub unschedulable_seconds: f64,
    /// Pods that were.
    pub unschedulable: u64,
    /// From the creation of a pod to its node, in seconds, of those that got one; in the order of binding.
    pub waits: Vec<f64>,
    /// Reasons of edgeward's decisions.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Pods that somebody decided about.
    pub decisions: u64,
    /// Evictions by kube-scheduler.
    pub preempted: u64,
    /// Where the pods are in the end.
    pub pods: Pods,
    /// The course of things.
    pub timeline: Vec<Tick>,
    /// Of each unit that has a time, whether it was met; in an order that is the same for all policies.
    pub units: Vec<bool>,
}

/// What was met of what was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attained {
    /// Pods and requests that state a time.
    pub asked: u64,
    /// Those of them that met it.
    pub met: u64,
}

/// Where the pods of a run are in the end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pods {
    /// All that were asked for.
    pub created: u64,
    /// Refused by a quota.
    pub blocked: u64,
    /// Their work is done.
    pub done: u64,
    /// Deleted before that.
    pub deleted: u64,
    /// On a node.
    pub running: u64,
    /// Without a node.
    pub pending: u64,
    /// Behind a gate.
    pub gated: u64,
}

/// A point of the time lines.
#[derive(Debug, Clone, Default)]
pub struct Tick {
    /// When, in seconds.
    pub at: f64,
    /// Share of the edge's CPU that is taken.
    pub edge_used: f64,
    /// Pods that are gated.
    pub gated: u64,
    /// Pods that are placed at the edge and have no node.
    pub waiting_at_edge: u64,
    /// The same of clouds.
    pub waiting_in_clouds: u64,
    /// RTT of each cloud in milliseconds.
    pub rtt: Vec<Option<f64>>,
    /// Pods placed at the edge since the last point.
    pub to_edge: u64,
    /// Pods placed in clouds since.
    pub to_clouds: u64,
    /// Pods gated since.
    pub to_gate: u64,
}

impl Attained {
    /// The share that was met; `None` where nothing was asked.
    pub fn share(self) -> Option<f64> {
        (self.asked > 0).then(|| self.met as f64 / self.asked as f64)
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            met: self.met + other.met,
        }
    }
}

impl Outcome {
    /// Attainment of all classes together.
    pub fn attained(&self) -> Attained {
        Class::ALL
            .into_iter()
            .map(|class| self.attainment[class])
            .fold(Attained::default(), Attained::and)
    }

    /// Of the managed pods that got a node, how many did in a cloud.
    pub fn cloud_fraction(&self) -> Option<f64> {
        self.cloud_fraction_of(&Class::ALL)
    }

    /// The same of these classes alone.
    pub fn cloud_fraction_of(&self, classes: &[Class]) -> Option<f64> {
        let of = |site: &PerClass<u64>| classes.iter().map(|class| site[*class]).sum::<u64>();
        let all: u64 = self.bound.iter().map(of).sum();
        let edge = self.bound.first().map_or(0, of);
        (all > 0).then(|| (all - edge) as f64 / all as f64)
    }
}
