//! An API server, what is logged, our Service, and work that takes long.

mod api_server;
mod ledger;
mod logged;
mod service;

pub(crate) use api_server::{api_server, failure};
pub(crate) use ledger::gate_ledger;
pub(crate) use logged::Log;
pub(crate) use service::service;
