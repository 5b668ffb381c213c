//! The decision of edgeward and all that it is made of. Pure and synchronous: no I/O, no clock, no randomness, no Kubernetes
//! client; time, ids and data are arguments.
//!
//! | module | what it is |
//! |---|---|
//! | [`units`], [`resources`] | integer newtypes for every quantity; resource names to amounts |
//! | [`words!`] | declares enums each of whose values has a word |
//! | [`excerpt`] | the beginning of a text, for messages |
//! | [`keys`] | annotation and label keys under the configured domain |
//! | [`document`] | how documents are read, and their faults |
//! | [`model`] | plain data: what is asked and what exists |
//! | `recent` | what is remembered for a while |
//! | [`config`] | settings: schema, defaults, validation |
//! | [`wire`] | pods, nodes and fleet files: the only readers and writers of these forms |
//! | [`cluster`] | the cache of nodes and pods, WAN health, telemetry, processing times: events in, snapshot out |
//! | [`placement`] | workload and room to verdict, and verdict and pod to JSONPatch |
//! | [`queue`] | gated pods and the release plan |
//! | [`guard`] | pods that slipped past us, and controllers whose pods fail over and over |
//! | [`engine`] | the whole as one state machine |
//!
//! All at once: a pod, a fleet, a verdict, a patch.
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
//! Invariants: `decide` never fails, a refusal is a value with numbers; time and data are arguments; a patch only
//! adds; the request path does no I/O.

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
