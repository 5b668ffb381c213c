//! What is logged, our Service, and work that takes long.

mod ledger;
mod logged;
mod service;

pub(crate) use ledger::gate_ledger;
pub(crate) use logged::Log;
pub(crate) use service::service;
