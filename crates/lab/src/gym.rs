//! An environment for reinforcement learning: where to place replicated requests among clusters (docs/guide/learn.md).
//!
//! It reimplements gym-multi-k8s from a description of what that code does. In the default settings it draws the same
//! numbers and gives the same results. Other settings correct faults of the original. Instances of `Gym` share no
//! state; settings, seed and actions determine everything.

mod agent;
mod catalogue;
mod environment;
mod episode;
mod generator;
mod latency;
pub mod report;
mod settings;
mod spread;
mod vector;

pub use agent::{Agent, Baseline, BaselineAgent, Protocol, play};
pub use catalogue::{CLUSTER_TYPES, ClusterType, DEPLOYMENTS, Deployment};
pub use environment::{EPISODE_STEPS, FEATURES, Gym, Request};
pub use episode::{Episode, MeanStd, Step, Summary};
pub use generator::Generator;
#[cfg(feature = "simulation")]
pub(crate) use settings::words;
pub use settings::{Mode, Observation, RewardKind, Settings};
pub use vector::VectorGym;

#[cfg(test)]
mod tests;
