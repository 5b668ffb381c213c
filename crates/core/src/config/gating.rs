//! When a pod is gated behind our gate, and for how long.

use serde::Deserialize;

use crate::model::slo::PerClass;
use crate::units::Micros;
use crate::words;

/// When a pod is gated behind our gate, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Gating {
    /// What becomes of a pod that no site has room for.
    pub on_no_capacity: OnNoCapacity,
    /// How long a pod of a class is gated at most; zero: not at all, except for the gates of others.
    #[serde(rename = "holdLimits")]
    pub limits: PerClass<Micros>,
    /// How long a pod waits at most for the room of pods that are terminating; zero: not at all.
    pub wait_for_terminating: PerClass<Micros>,
    /// Whether this process can release a pod, so that it may gate one.
    #[serde(skip)]
    pub can_release: bool,
}

words! {
    /// What becomes of a pod that no site has room for.
    pub enum OnNoCapacity {
        /// It is gated until some site has room.
        Hold = "hold",
        /// It goes to the edge and is Pending there.
        Edge = "edge",
    }
}

impl Default for Gating {
    fn default() -> Self {
        Self {
            on_no_capacity: OnNoCapacity::Hold,
            limits: PerClass([30, 120, 300].map(Micros::from_secs)),
            wait_for_terminating: PerClass([5, 30, 30].map(Micros::from_secs)),
            can_release: true,
        }
    }
}

impl Gating {
    /// Nothing is ever gated: for a process that could not release a pod.
    pub fn never() -> Self {
        Self {
            on_no_capacity: OnNoCapacity::Edge,
            wait_for_terminating: PerClass::default(),
            can_release: false,
            ..Self::default()
        }
    }
}
