//! edgeward decides at pod creation whether a pod runs on the edge cluster's own nodes or in a cloud cluster behind a
//! virtual node.
//!
//! The crates under `crates/` make the decision and have no side effects. This crate does the I/O.
//!
//! | module | what it is |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`serve`] | the composition root: starts all tasks; readiness and drain |
//! | [`admission`] | the admission endpoint: receives reviews, returns patches |
//! | [`watch`] | watches of a cluster: nodes, pods, volumes, custom resources |
//! | [`wan`] | probes of the WAN |
//! | [`liqo`], [`prometheus`], [`sites`], [`policies`], [`profiles`] | the other inputs of the engine |
//! | [`config`], [`fleet_file`] | where settings come from; a fleet file in place of a cluster |
//! | [`observer`] | hands changes to the engine, which publishes snapshots and plans |
//! | [`controllers`] | the only writer to the API server |
//! | [`inspect`] | one-shot reads of a cluster, for commands |
//! | [`tls`] | the serving certificate, and its replacement at run time |
//! | [`api`] | our custom resources: schemas and statuses |
//! | [`instruments`] | metrics and logs |
//! | [`platform`] | clock, files, threads for long work, YAML parsing |

pub mod admission;
pub mod api;
pub mod cli;
pub mod config;
pub mod controllers;
pub mod fleet_file;
pub mod inspect;
pub mod instruments;
pub mod liqo;
pub mod observer;
pub mod platform;
pub mod policies;
pub mod profiles;
pub mod prometheus;
pub mod serve;
pub mod sites;
#[cfg(test)]
mod testkit;
pub mod tls;
pub mod wan;
pub mod watch;
