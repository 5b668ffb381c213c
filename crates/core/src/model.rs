//! Plain data that decisions read: pods, sites, nodes and the snapshot that holds them.

pub mod constraints;
pub mod decision_id;
pub mod endpoint;
pub mod link;
pub mod liqo;
pub mod node;
pub mod pod_affinity;
pub mod pod_record;
pub mod priority_caps;
pub mod queue_claims;
pub mod remote_room;
pub mod scores;
pub mod selector;
pub mod site;
pub mod site_restriction;
pub mod slo;
pub mod snapshot;
pub mod ties;
pub mod traits;
pub mod volumes;
pub mod workload;
