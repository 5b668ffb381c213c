//! The decision of edgeward and everything it needs. Pure and synchronous: no I/O, no clock, no randomness, no
//! Kubernetes client. Time, ids and data are arguments.
//!
//! | module | what it is |
//! |---|---|
//! | [`units`], [`resources`] | integer newtypes for every quantity; resource names to amounts |
//! | [`words!`] | declares enums whose values each have a word |
//! | [`excerpt`] | the start of a text, for messages |
//! | [`keys`] | annotation and label keys under the configured domain |
//! | [`document`] | how documents are read, and their faults |
//! | [`model`] | plain data: pods, sites, nodes and the snapshot |
//! | `recent` | values that are remembered for a limited time |
//! | [`config`] | settings: schema, defaults, validation |
//! | [`wire`] | pods, nodes, volumes, Liqo's objects and fleet files: the only readers and writers of these forms |
//! | [`cluster`] | the cache of nodes and pods, WAN health, telemetry, processing times: events in, snapshot out |
//! | [`placement`] | workload and room to verdict, and verdict and pod to JSONPatch |
//! | [`queue`] | gated pods and the release plan |
//! | [`guard`] | pods that were created without edgeward, or that kube-scheduler cannot place |
//! | [`engine`] | the state machine that combines all of this |
//!
//! Example: a pod, a fleet, a verdict and a patch.
//!
//! ```
//! use edgeward_core::{config::Config, wire::{fleet_file, pod::Pod}, units::{Moment, Now}};
//! use edgeward_core::placement::{decide::decide, patch::{Stamp, patch}, room::Room};
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

pub mod cluster;
pub mod config;
pub mod document;
pub mod engine;
pub mod excerpt;
pub mod guard;
pub mod keys;
pub mod model;
pub mod placement;
pub mod queue;
mod recent;
pub mod resources;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod units;
pub mod wire;
mod words;

// For `words!` in other crates.
#[doc(hidden)]
pub use schemars;
