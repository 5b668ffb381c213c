//! The section `karmada`: a control plane of Karmada, whose members are this cluster and clusters behind sites.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A Karmada control plane. Its Cluster objects have the names of the sites.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Karmada {
    /// File with a kubeconfig of Karmada's API server, read every 10 s. It may name no other file. A cloud then has at most the
    /// room that the Cluster of its name reports
    #[schemars(title = "a path", length(min = 1))]
    pub kubeconfig: Option<PathBuf>,
    /// Answers to Karmada's scheduler
    pub estimator: Estimator,
}

/// Whether edgeward is the scheduler-estimator of this cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Estimator {
    /// Whether Karmada's scheduler may ask how many pods fit at the edge. Needs `deploy/karmada`
    pub enabled: bool,
}
