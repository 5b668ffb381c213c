//! Commands that people run against a live cluster.

pub(crate) mod check;
pub(crate) mod fleet_command;
pub(crate) mod import;
pub(crate) mod why;
