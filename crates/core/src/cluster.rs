//! The state of the cluster: events in, snapshots out.

pub mod cache;
pub mod processing;
pub mod telemetry;
pub mod volumes;
pub mod wan;
