//! One-shot reads of a cluster, used by commands.

mod connection;
mod dry_run;
pub mod installation;
mod listing;
mod objects;

pub use connection::Connection;
pub use dry_run::Answer;
pub use listing::{list_and_probe, view};
pub use objects::{Liqo, config_map, events, liqo, policies, profile_faults, site_specs};
