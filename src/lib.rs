//! edgeward decides at pod creation whether a pod runs on the edge cluster's own nodes or in a cloud cluster behind a
//! virtual node.
//!
//! The crates under `crates/` make the decision and have no side effects. This crate does the I/O.
//!
//! | module | what it is |
//! |---|---|
//! | `cli` | the command line |
//! | `serve` | the composition root: starts all tasks; readiness and drain |
//! | `admission` | the admission endpoint: receives reviews, returns patches |
//! | `watch` | watches of a cluster: nodes, pods, volumes, custom resources |
//! | `wan` | probes of the WAN |
//! | `liqo`, `prometheus`, `reports`, `sites`, `policies`, `profiles`, `scorer` | the other inputs of the engine |
//! | `karmada` | the room of clouds by Karmada, and its scheduler's questions about the edge |
//! | `peers` | the clusters near this one: what they send each other |
//! | `config`, `fleet_file` | where settings come from; a fleet file in place of a cluster |
//! | `observer` | hands changes to the engine, which publishes snapshots and plans |
//! | `controllers` | the only writer to the API server |
//! | `cost_map` | the table of links as documents |
//! | `inspect` | one-shot reads of a cluster, for commands |
//! | `tls` | the serving certificate, and its replacement at run time |
//! | `api` | our custom resources: schemas and statuses |
//! | `instruments` | metrics and logs |
//! | `platform` | clock, files, threads for long work, YAML parsing |

#![allow(unreachable_pub, reason = "`pub` means: for the other modules")]

mod admission;
mod api;
mod cli;
mod config;
mod controllers;
mod cost_map;
mod fleet_file;
mod inspect;
mod instruments;
mod karmada;
mod liqo;
mod observer;
mod peers;
mod platform;
mod policies;
mod profiles;
mod prometheus;
mod reports;
mod scorer;
mod serve;
mod sites;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
mod tls;
mod wan;
mod watch;

pub use cli::main;
