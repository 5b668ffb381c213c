//! What people ask a live cluster with.

pub(crate) mod check;
pub(crate) mod fleet_command;
pub(crate) mod why;
