//! Training of networks that place requests, in the [`crate::gym`] (docs/guide/learn.md), and of the learned scorer, in
//! the simulation.
//!
//! The [`Plan`] determines everything. Networks, samples and environments have seeds, and the products of the tensor
//! library do not depend on the number of threads. A saved [`Training`] resumes as if it had not been interrupted.
//!
//! Set `RAYON_NUM_THREADS` to 1, as the program does for itself. Otherwise candle-core 0.11.1 counts the cores in
//! /proc/cpuinfo for each product of matrices, which takes longer than the product.

mod checkpoint;
mod choice;
mod curve;
mod evaluation;
mod memory;
mod network;
mod optimiser;
mod placement;
mod plan;
mod policy;
mod rollout;
mod training;
mod world;

pub use curve::learning_curve;
pub use evaluation::{Group, Section, Trial, json, tables};
pub use network::{Network, Shape};
pub use placement::{Placement, Round};
pub use plan::{Algorithm, Plan};
pub use policy::Policy;
pub use training::Training;

#[cfg(test)]
mod tests;
