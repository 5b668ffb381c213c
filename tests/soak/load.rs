//! Pods at the highest rate that the machine can bear, while something happens to edgeward.

pub(crate) mod closing;
pub(crate) mod hostile;
pub(crate) mod hostile_bodies;
pub(crate) mod restarts;
pub(crate) mod rotation;
