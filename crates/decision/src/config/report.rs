//! The section `report`: what this cluster reports to its neighbours.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::texts::ProfileName;

/// Optional parts of the ClusterReport of this cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct ReportSettings {
    /// Whether the report names the components of groups that run at the edge, at most 256
    pub components: bool,
    /// Profile whose score of the edge is reported as `energyScore`
    #[schemars(with = "Option<ProfileName>")]
    pub energy_profile: Option<String>,
}
