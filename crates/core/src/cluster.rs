//! What is known of the cluster: events in, snapshot out.

pub mod index;
pub mod processing;
pub mod telemetry;
pub mod wan;
