//! What edgeward reads of Kubernetes, and small basics: quantities, effective requests, labels, selectors, taints, and the parts of pods
//! and nodes that a decision needs. It judges a fit as kube-scheduler does. No I/O, no clock.
//!
//! | module | what it is |
//! |---|---|
//! | [`units`], [`resources`] | integer newtypes for every quantity; resource names to amounts |
//! | [`pod`] | a pod: its fields, its effective request |
//! | [`node`] | a node, and what is charged to it |
//! | [`constraints`] | nodeSelector, node affinity, taints and tolerations, and their match against a node |
//! | [`selector`], [`pod_affinity`] | label selectors; terms of pod affinity |
//! | [`ties`] | fields of a pod that tie it to its node or cluster |
//! | [`mod@texts`], [`texts!`] | schemas of label keys, names and other texts |
//! | [`words!`] | declares enums whose values each have a word |
//! | [`excerpt`] | the start of a text, for messages |

#![warn(missing_docs)]

pub mod constraints;
pub mod excerpt;
pub mod node;
pub mod pod;
pub mod pod_affinity;
pub mod resources;
pub mod selector;
pub mod texts;
pub mod ties;
pub mod units;
mod words;

// For `words!` and `texts!` in other crates.
#[doc(hidden)]
pub use schemars;
