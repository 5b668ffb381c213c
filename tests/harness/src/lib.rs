//! Shared parts of edgeward's tests: a control plane, processes, fixtures, an emulated WAN.

#![allow(missing_docs)]

pub use inventory;

mod api_server;
pub mod balancer;
pub mod browser;
pub mod burst;
pub mod cert_manager;
pub mod chart;
pub mod checkout;
pub mod clients;
pub mod clusters;
pub mod control_plane;
mod creation;
pub mod decision;
pub mod documentation;
pub mod earlier;
pub mod edgeward;
pub mod fixture;
pub mod folder;
pub mod helm;
pub mod hostile_bodies;
pub mod hostile_pods;
pub mod installation;
pub mod installed_replicas;
pub mod kubectl;
pub mod live;
pub mod load;
pub mod metrics;
pub mod mount;
pub mod nodes;
pub mod peering;
pub mod pki;
pub mod prelude;
pub mod process;
pub mod prometheus;
pub mod proxy;
pub mod registration;
pub mod rights;
pub mod rollout;
pub mod rotation;
mod served;
pub mod side_by_side;
mod supervised;
pub mod tables;
pub mod test_webhook;
pub mod timing;
pub mod volume;
pub mod wait;
pub mod wan;
pub mod webhook_credentials;
pub mod workloads;
