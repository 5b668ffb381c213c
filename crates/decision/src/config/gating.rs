//! When a pod is gated behind our gate, and for how long.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{SECOND, Span};
use crate::model::slo::{ByClass, OneOrByClass, PerClass};
use edgeward_kube::units::Micros;
use edgeward_kube::words;

/// When a pod is gated behind our gate, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Gating {
    /// What becomes of a pod that no site has room for. `hold`: it is [gated](../guide/decide.md#gated-pods) until one has.
    /// `edge`: it goes to the edge and is Pending there. With `serve --fleet` only pods that state their sites are gated,
    /// because nothing releases a pod there, and this, `holdLimits` and `waitForTerminating` have no effect
    pub on_no_capacity: OnNoCapacity,
    /// The longest time that a pod of a class is [gated](../guide/decide.md#gated-pods); `0s`: not at all. A class that is
    /// not named keeps its default
    #[serde(rename = "holdLimits")]
    #[schemars(with = "ByClass<Span<0, { 3_600 * SECOND }>>")]
    pub limits: PerClass<Micros>,
    /// How long a pod waits for the room of pods that are [terminating](../guide/decide.md#the-table) at the edge.
    /// One duration is for every class; a class that is not named keeps its default; `0s` or `0`: not at all. Only pods
    /// that may be gated wait
    #[schemars(with = "OneOrByClass<Span<0, { 600 * SECOND }>>")]
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
