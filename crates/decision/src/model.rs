//! Plain data that decisions read: workloads, sites, links, and the snapshot that holds them.

pub mod component;
pub mod cost_map;
pub mod decision_id;
pub mod endpoint;
pub mod group;
pub mod link;
pub mod liqo;
pub mod priority_caps;
pub mod queue_claims;
pub mod remote_room;
pub mod report;
pub mod scorer;
pub mod scores;
pub mod site;
pub mod site_restriction;
pub mod slo;
pub mod snapshot;
pub mod traits;
pub mod volumes;
pub mod workload;
