//! The section `ocm`: the hub that gets scores of the sites.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::document::texts::{ManagedCluster, SiteName};
use crate::document::{Checks, Fault, SECOND, Span};
use edgeward_kube::units::Micros;

/// Maximum number of clusters.
const MAX_CLUSTERS: usize = 256;

/// A hub of Open Cluster Management and the clusters behind the sites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(deny_unknown_fields, extend("required" = ["kubeconfig", "clusters"]))]
pub struct Ocm {
    /// File with a kubeconfig of the hub; read again in each period
    #[schemars(title = "a path", length(min = 1))]
    pub kubeconfig: PathBuf,
    /// The ManagedCluster of each site, 1 to 256. A site that does not exist gets no scores
    #[schemars(schema_with = "clusters")]
    pub clusters: BTreeMap<String, String>,
    /// Time between two writes. Scores are valid for three periods
    #[schemars(with = "Span<{ 10 * SECOND }, { 3_600 * SECOND }>")]
    pub period: Micros,
}

impl Default for Ocm {
    fn default() -> Self {
        Self {
            kubeconfig: PathBuf::new(),
            clusters: BTreeMap::new(),
            period: Micros::from_secs(60),
        }
    }
}

fn clusters(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "minProperties": 1,
        "maxProperties": MAX_CLUSTERS,
        "propertyNames": SiteName::json_schema(generator),
        "additionalProperties": ManagedCluster::json_schema(generator),
    })
}

impl Ocm {
    /// Checks the number of clusters, and that each has one site: the scores of two would replace each other.
    pub(super) fn check(&self, faults: &mut Vec<Fault>) {
        let mut checks = Checks { at: "ocm", faults };
        let count = self.clusters.len();
        if !(1..=MAX_CLUSTERS).contains(&count) {
            checks.fault("clusters", format_args!("has {count} sites, not 1 to {MAX_CLUSTERS}"));
        }
        let mut sites = BTreeMap::new();
        for (site, cluster) in &self.clusters {
            if let Some(other) = sites.insert(cluster, site) {
                let message = format_args!("{cluster:?} is also the cluster of {other:?}");
                checks.fault(format_args!("clusters.{site}"), message);
            }
        }
    }
}
