//! Runs edgeward's production engine in virtual time, on a cluster that a scenario describes (docs/guide/simulate.md).
//! It compares edgeward with other policies and with upper bounds.

mod cluster;
mod events;
pub mod experiment;
pub mod gym;
mod kube_scheduler;
pub mod learning;
pub mod load;
pub mod outcome;
pub mod peers;
pub mod policy;
pub mod random;
pub mod report;
pub mod run;
pub mod scenario;
pub mod statistics;
pub mod units;
pub mod wan;
