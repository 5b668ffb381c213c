//! edgeward decides, when a pod is created, whether it runs on the edge cluster's own nodes or in a cloud cluster
//! behind a virtual node.
//!
//! Two rings. The **inner ring** is pure and synchronous: no I/O, no clock, no randomness, no Kubernetes client. It
//! compiles without the feature `serve` (`cargo check --no-default-features --lib`). The **outer ring** is effects.
//!
//! | module | what it is |
//! |---|---|
//! | [`units`] | integer newtypes for every quantity, and the Kubernetes notation |
//! | [`resources`] | resource names to amounts |
//! | [`keys`] | annotation and label keys under the configured domain |
//! | [`config`] | settings: schema, defaults, validation that names every fault |
//! | [`pod`] | pod JSON to [`model::workload::Workload`]; the only reader of a pod's wire form |
//! | [`node`] | node JSON to [`model::node::Node`]; the only reader of a node's wire form |
//! | [`policy`] | which SLO applies to a pod: its annotations over policies |
//! | [`model`] | what is asked and what exists: workload, SLO, sites, nodes, links; the snapshot |
//! | [`wire`] | the file form of a snapshot |
//! | [`engine`] | the whole as one state machine |
//! | [`ledger`] | what decisions have promised to pods that are not seen yet |
//! | [`index`] | events of nodes and pods to the snapshot: charges, queues, closed sites |
//! | [`wan`] | what probes of a link say, and when its state changes |
//! | [`processing`] | how long finished pods took, per class and controller |
//! | [`telemetry`] | what a Prometheus server says, and until when it counts |
//! | [`waitlist`] | held pods: their order, what is set aside for them, whose turn has come |
//! | [`backstop`] | pods that slipped past us or cannot run where they were sent, and what is done about them |
//! | [`loop_guard`] | controllers that create pods which fail, over and over |
//! | [`room`] | what one decision sees of the fleet |
//! | [`rotation`] | how certificates of our own follow each other |
//! | [`score`] | which node kube-scheduler would take |
//! | [`decide`] | workload and room to verdict |
//! | [`patch`] | verdict and pod to JSONPatch |
//! | `api` | our custom resources: their schemas and statuses |
//! | `admit` | the admission endpoint: reviews in, patches out |
//! | `observe` | the world into the snapshot, and the configuration |
//! | `controllers` | the only writer to the API server |
//! | `traces` | spans of reviews, for a collector |
//! | `tls` | the serving certificate, and its change under a running server |
//! | `runtime` | listeners, tasks, readiness, drain |
//! | `metrics`, `files`, `yaml`, `clock` | what they share |
//! | `cli` | the command line |
//!
//! The inner ring in one look: a pod, a fleet, a verdict, a patch.
//!
//! ```
//! use edgeward::{config::Config, decide::decide, patch::{Stamp, patch}, pod::Pod, room::Room, wire::fleet_file};
//! use edgeward::units::{Moment, Now};
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
//! assert!(operations.iter().any(|add| add.path == "/spec/nodeSelector"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants: `decide` never fails, a refusal is a value with numbers; time and data are arguments; a patch only
//! adds; the request path does no I/O.

// `clippy.toml` forbids clocks and I/O; that is judged where the inner ring stands alone.
#![cfg_attr(feature = "serve", allow(clippy::disallowed_methods, clippy::disallowed_macros))]

// Inner ring.
pub mod backstop;
pub mod config;
pub mod decide;
pub mod document;
pub mod engine;
pub mod index;
pub mod keys;
pub mod ledger;
pub mod loop_guard;
pub mod model;
pub mod node;
pub mod patch;
pub mod pod;
pub mod policy;
pub mod processing;
pub mod resources;
pub mod room;
pub mod rotation;
pub mod score;
pub mod telemetry;
#[cfg(test)]
mod testkit;
pub mod units;
pub mod waitlist;
pub mod wan;
pub mod wire;

// Outer ring.
#[cfg(feature = "serve")]
pub mod admit;
#[cfg(feature = "serve")]
pub mod api;
#[cfg(feature = "serve")]
pub mod cli;
#[cfg(feature = "serve")]
pub mod clock;
#[cfg(feature = "serve")]
pub mod controllers;
#[cfg(feature = "serve")]
pub mod files;
#[cfg(feature = "serve")]
pub mod metrics;
#[cfg(feature = "serve")]
pub mod observe;
#[cfg(feature = "serve")]
pub mod runtime;
#[cfg(feature = "serve")]
pub mod tls;
#[cfg(feature = "serve")]
pub mod traces;
#[cfg(feature = "serve")]
pub mod yaml;
