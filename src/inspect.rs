//! One-shot reads of a cluster, for commands.

mod connection;
mod dry_run;
pub mod installation;
mod listing;
mod objects;

pub use connection::Connection;
pub use dry_run::Answer;
pub use listing::{Listing, list_and_probe};
pub use objects::{Liqo, config_map, events, liqo, policies, profile_faults, profiles, site_specs, sites_in_use};
