//! What is logged, and our Service.

mod logged;
mod service;

pub(crate) use logged::Log;
pub(crate) use service::service;
