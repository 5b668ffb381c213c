//! What is logged, our Service, and work that takes long.

mod logged;
mod long_steps;
mod service;

pub(crate) use logged::Log;
pub(crate) use long_steps::LongSteps;
pub(crate) use service::service;
