//! What the process tells of itself: metrics and logs.

pub mod logs;
pub mod metrics;
