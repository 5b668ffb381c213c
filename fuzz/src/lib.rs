//! What the fuzz targets check: bytes in, and a panic where what `docs/architecture.md` states of the module does not hold.
//!
//! | module | input | what is checked |
//! |---|---|---|
//! | [`review`] | the body of a review | one answer; a patch applies, adds, and is not made twice |
//! | [`pod`] | pods as a watch shows them | reading; request and echo; what is charged is free again |
//! | [`node`] | nodes as a watch shows them | reading; counting bit by bit; a place is on a node with room |
//! | [`quantity`] | a quantity | against arithmetic on decimal digits; written and read again |
//! | [`fleet_file`] | a fleet file | written and read again; verdicts |
//! | [`configuration`] | a configuration, as a file and as a ConfigMap | both forms agree; unknown fields are faults |
//! | [`prometheus`] | an answer of a Prometheus server | every value in its range, fresh, and of one series |
//! | [`release_patch`] | a pod, a fleet and a configuration | patches applied by another implementation, and decided again |
//! | [`liqo`] | Liqo's objects as watches show them | reading; a pod is placed only where its namespace is |
//! | [`volumes`] | claims, volumes and classes as watches show them | reading; a pod is placed only where its volumes can be |
//! | [`protobuf`] | an object as a watch brings it | what is made of it is JSON, and does no reader harm |
//! | [`sites`] | what a pod asks of sites | against a reader by tokens; a pod is placed only where it may be |
//!
//! The corpus is documents as they arrive, and `tests/it/fuzz.rs` checks it in every run of the tests.

pub mod configuration;
mod documents;
pub mod fleet_file;
pub mod liqo;
pub mod mutation;
pub mod node;
mod patched;
pub mod pod;
pub mod prometheus;
pub mod protobuf;
pub mod quantity;
pub mod release_patch;
pub mod review;
pub mod sites;
pub mod volumes;
mod watched;
