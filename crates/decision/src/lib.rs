//! The decision of edgeward: from a pod and a snapshot of all sites to a verdict and a JSONPatch. No I/O, no clock, no
//! randomness. Time, ids and data are arguments.
//!
//! | module | what it is |
//! |---|---|
//! | [`keys`] | annotation and label keys under the configured domain |
//! | [`document`] | how documents are read, and their faults |
//! | [`config`] | settings: schema, defaults, validation |
//! | [`model`] | plain data: workloads, sites, links and the snapshot |
//! | [`pod`] | from a pod to a workload |
//! | [`fleet_file`] | a snapshot from a file |
//! | [`placement`] | filters, rank, the table of actions, the ledger, explanations and the patch |
//! | [`recent`] | values that are remembered for a limited time |
//!
//! Example: a pod, a fleet, a verdict and a patch.
//!
//! ```
//! use edgeward_decision::{config::Config, fleet_file, pod::Pod};
//! use edgeward_kube::units::{Moment, Now};
//! use edgeward_decision::placement::{decide::decide, patch::{Stamp, patch}, room::Room};
//! use serde_json::json;
//!
//! let config = Config::default();
//! let now = Now { moment: Moment(0), wall: "2026-01-01T00:00:00Z".parse()? };
//! let fleet = json!({
//!     "sites": [{"name": "edge", "kind": "edge"}],
//!     "nodes": [{"name": "e1", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 4, "pods": 110}}],
//! });
//! let snapshot = fleet_file::read(&fleet, &config, now.moment)?;
//!
//! let pod = r#"{"metadata": {"annotations": {"slo.example.io/class": "latency"}}, "spec": {"containers": []}}"#;
//! let pod = Pod::from_json(pod)?;
//! let workload = pod.workload("shop".into(), &config.keys);
//! let verdict = decide(&workload, &Room::of(&snapshot), &config, now);
//! assert_eq!(verdict.reason.as_str(), "edge_no_slo_target");
//!
//! let operations = patch(&pod, &verdict, &config, &Stamp { at: now.wall, id: "id".into() });
//! assert!(operations.iter().any(|add| add.path() == "/spec/nodeSelector"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants: `decide` never fails, and a refusal is a value with numbers. Time and data are arguments. A patch only
//! adds. The request path does no I/O.

#![warn(missing_docs)]

pub mod config;
pub mod document;
pub mod fleet_file;
pub mod keys;
pub mod model;
pub mod placement;
pub mod pod;
pub mod recent;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
