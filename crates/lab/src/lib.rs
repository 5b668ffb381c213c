//! Runs edgeward's production engine in virtual time, on a cluster that a scenario describes (docs/guide/simulate.md).
//! It compares edgeward with other policies and with upper bounds.

#[cfg(feature = "simulation")]
mod cluster;
#[cfg(feature = "simulation")]
mod events;
#[cfg(feature = "simulation")]
pub mod experiment;
pub mod gym;
#[cfg(feature = "simulation")]
mod kube_scheduler;
#[cfg(feature = "simulation")]
pub mod learning;
#[cfg(feature = "simulation")]
pub mod load;
#[cfg(feature = "simulation")]
pub mod outcome;
#[cfg(feature = "simulation")]
pub mod peers;
#[cfg(feature = "simulation")]
pub mod policy;
pub mod random;
#[cfg(feature = "simulation")]
pub mod report;
#[cfg(feature = "simulation")]
pub mod run;
#[cfg(feature = "simulation")]
pub mod scenario;
#[cfg(feature = "simulation")]
pub mod statistics;
#[cfg(feature = "simulation")]
pub mod units;
#[cfg(feature = "simulation")]
pub mod wan;
