//! Pods at the highest rate that the machine can take, while edgeward is disturbed.

pub(crate) mod closing;
pub(crate) mod hostile;
pub(crate) mod hostile_bodies;
pub(crate) mod restarts;
pub(crate) mod rotation;
