//! What is known of the cluster: events in, snapshot out.

pub mod cache;
pub mod processing;
pub mod telemetry;
pub mod volumes;
pub mod wan;
