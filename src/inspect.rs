//! One-shot reads of a cluster, used by commands.

mod connection;
mod dry_run;
pub mod installation;
mod objects;
mod view;

pub use connection::Connection;
pub use dry_run::Answer;
pub use objects::{config_map, events, policies};
pub use view::{View, view};
