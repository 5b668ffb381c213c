//! edgeward decides, when a pod is created, whether it runs on the edge cluster's own nodes or in a cloud cluster
//! behind a virtual node.
//!
//! The decision is `edgeward_core`'s, which is pure. This crate is its effects.
//!
//! | module | what it is |
//! |---|---|
//! | [`cli`] | the command line |
//! | [`serve`] | the composition root: what runs; readiness, drain |
//! | [`admission`] | the admission endpoint: reviews in, patches out |
//! | [`sources`] | watches, probes, Prometheus, files: the world into the engine |
//! | [`controllers`] | the only writer to the API server |
//! | [`inspect`] | one-shot reads of a cluster, for commands |
//! | [`tls`] | the serving certificate, and its change under a running server |
//! | [`api`] | our custom resources: their schemas and statuses |
//! | [`instruments`] | metrics, logs |
//! | [`platform`] | clock, files, threads for long work, the text of documents |

pub mod admission;
pub mod api;
pub mod cli;
pub mod controllers;
pub mod inspect;
pub mod instruments;
pub mod platform;
pub mod serve;
pub mod sources;
#[cfg(test)]
mod testkit;
pub mod tls;
