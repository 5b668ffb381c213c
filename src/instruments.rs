//! What the process tells of itself: metrics, logs, traces.

pub mod logs;
pub mod metrics;
pub mod traces;
