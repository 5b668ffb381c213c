//! Observability of the process: metrics and logs.

pub mod logs;
pub mod metrics;
