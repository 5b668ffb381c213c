//! What integration tests, benchmarks and fuzz targets use of this crate; for unit tests also an API server, what is
//! logged, our Service, and work that takes long.

#[cfg(test)]
mod api_server;
#[cfg(test)]
mod ledger;
#[cfg(test)]
mod logged;
#[cfg(test)]
mod service;

pub use crate::admission::body::{BODY_LIMIT, ORDINARY_BODY};
pub use crate::admission::review::Reviewer;
pub use crate::admission::server::{PATH, REVIEWS_AT_A_TIME};
pub use crate::admission::{Answer, Responder, Route};
pub use crate::cli::Cli;
pub use crate::config::read as read_settings;
pub use crate::instruments::logs::LogLimit;
pub use crate::instruments::metrics::{CONTENT_TYPE, Metrics};
pub use crate::observer::Changes;
pub use crate::platform::clock::Clock;
pub use crate::platform::yaml;
pub use crate::prometheus::{Outcome, ask_by};
pub use crate::serve::{
    DEFAULT_SHUTDOWN_DELAY, DRAIN_LIMIT, Readiness, ServeOptions, Server, Task, serve, tokio_runtime,
};
pub use crate::tls::{Authority, Contents, Service, Source, install_crypto_provider, stored};
pub use crate::wan::Probers;

#[cfg(test)]
pub(crate) use api_server::{api_server, failure};
#[cfg(test)]
pub(crate) use ledger::gate_ledger;
#[cfg(test)]
pub(crate) use logged::Log;
#[cfg(test)]
pub(crate) use service::service;
