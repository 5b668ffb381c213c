//! Where to place replicated requests among clusters, as an environment for reinforcement learning (docs/guide/learn.md).
//!
//! It is gym-multi-k8s, written anew from a description of what its code does: in the default settings it draws the same numbers
//! and gives the same results. Other settings mend what is wrong in it. No `Gym` shares anything with another; all is
//! determined by settings, seed and actions.

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
pub(crate) use settings::words;
pub use settings::{Mode, Observation, RewardKind, Settings};
pub use vector::VectorGym;

#[cfg(test)]
mod tests;
