//! State read from Liqo: where the pods of a namespace may run, and the condition of the remote clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::site::SiteDefinition;
use edgeward_kube::units::{Micros, Moment};
use edgeward_kube::words;

/// Label and value that mark a node as virtual.
pub const VIRTUAL_NODE: (&str, &str) = ("liqo.io/type", "virtual-node");

/// Label with the id of the cluster behind a virtual node.
pub const REMOTE_CLUSTER_ID: &str = "liqo.io/remote-cluster-id";

/// Key of the taint on virtual nodes.
pub const NOT_ALLOWED: &str = "virtual-node.liqo.io/not-allowed";

words! {
    /// `podOffloadingStrategy` of a NamespaceOffloading: how Liqo's own webhook changes pods.
    pub enum Strategy {
        /// Pods stay as they are.
        Local = "Local",
        /// Pods may run on virtual nodes only.
        Remote = "Remote",
        /// Pods tolerate virtual nodes.
        LocalAndRemote = "LocalAndRemote",
    }
}

words! {
    /// Progress of offloading a namespace to one cluster, from best to worst.
    #[derive(Default)]
    pub enum OffloadingPhase {
        /// The namespace exists there and pods can run. An offloading that states no phase counts as accepted.
        #[default]
        Accepted = "Accepted",
        /// The namespace is being created there.
        InProgress = "InProgress",
        /// The state is not known yet.
        Unknown = "Unknown",
        /// The namespace could not be created there; Liqo tries again.
        CreationLoopBackOff = "CreationLoopBackOff",
        /// The namespace could not be created at some clusters.
        SomeFailed = "SomeFailed",
        /// The namespace could not be created at any cluster.
        AllFailed = "AllFailed",
        /// The offloading is being deleted.
        Terminating = "Terminating",
        /// The namespace is offloaded to other clusters, but not to this one.
        NotSelected = "NotSelected",
        /// The NamespaceOffloading selects no cluster.
        NoClusterSelected = "NoClusterSelected",
        /// The namespace has no NamespaceOffloading.
        None = "None",
    }
}

impl OffloadingPhase {
    /// Whether the phase ends without a change by a user.
    pub const fn is_passing(self) -> bool {
        matches!(self, OffloadingPhase::InProgress | OffloadingPhase::Unknown)
    }
}

words! {
    /// State of the API server of a ForeignCluster (condition `APIServerStatus`).
    pub enum ApiServerStatus {
        /// The API server answers.
        Established = "Established",
        /// The state is not known yet.
        Pending = "Pending",
        /// The API server does not answer.
        Error = "Error",
        /// There is no API server.
        None = "None",
    }
}

/// The offloading of one namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Offloading {
    /// Strategy of the NamespaceOffloading. `None` if there is no such object.
    pub strategy: Option<Strategy>,
    /// Overall phase. It counts only if a strategy is set.
    pub phase: OffloadingPhase,
    /// Phase at each cluster that the namespace is mapped to, by cluster id.
    pub clusters: BTreeMap<Box<str>, OffloadingPhase>,
}

impl Offloading {
    /// Phase of the offloading to this cluster.
    fn phase(&self, cluster: &str) -> OffloadingPhase {
        let stated = self.strategy.map_or(OffloadingPhase::None, |_| self.phase);
        match self.clusters.get(cluster) {
            Some(OffloadingPhase::Accepted) if stated == OffloadingPhase::Terminating => stated,
            Some(mapped) => *mapped,
            None if stated == OffloadingPhase::Accepted => OffloadingPhase::NotSelected,
            None => stated,
        }
    }
}

/// The offloading of all namespaces, while Liqo is in use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offloadings {
    /// Whether all objects are listed. Until then, or if edgeward may not list them, every phase is unknown.
    #[serde(rename = "known", default = "yes")]
    pub is_known: bool,
    /// Offloading by namespace. A namespace without an entry has none.
    #[serde(default)]
    pub namespaces: BTreeMap<Box<str>, Offloading>,
}

fn yes() -> bool {
    true
}

impl Offloadings {
    /// Returns the phase of offloading this namespace to this cluster. Cost: two searches.
    pub fn phase(&self, namespace: &str, cluster: &str) -> OffloadingPhase {
        match self.namespaces.get(namespace) {
            _ if !self.is_known => OffloadingPhase::Unknown,
            Some(offloading) => offloading.phase(cluster),
            None => OffloadingPhase::None,
        }
    }

    /// Whether the pods of this namespace may run on virtual nodes only (strategy Remote). Liqo's webhook stops
    /// changing pods once the offloading is being deleted, so the answer is then no.
    pub fn is_remote(&self, namespace: &str) -> bool {
        let is_remote = |offloading: &Offloading| {
            offloading.strategy == Some(Strategy::Remote) && offloading.phase != OffloadingPhase::Terminating
        };
        self.is_known && self.namespaces.get(namespace).is_some_and(is_remote)
    }
}

/// State of a remote cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteCluster {
    /// State of the API server from the ForeignCluster. `None` if it reports none.
    pub api_server: Option<ApiServerStatus>,
    /// RTT between the gateways, with the time of its measurement. `None` unless the Connection between them is up.
    pub latency: Option<(Micros, Moment)>,
}

/// State read from Liqo, while Liqo is in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Liqo {
    /// Offloading by namespace.
    pub offloadings: Arc<Offloadings>,
    /// Remote clusters by id.
    pub clusters: BTreeMap<Box<str>, RemoteCluster>,
}

impl SiteDefinition {
    /// The id of the remote cluster that the selector names. Only virtual nodes of that cluster belong to the site.
    pub fn remote_cluster(&self) -> Option<&str> {
        let mut selector = self.selector();
        selector.find_map(|(key, value)| (key == REMOTE_CLUSTER_ID).then_some(value))
    }

    /// Whether the virtual nodes of every cluster belong to this site.
    pub fn is_of_all_virtual_nodes(&self) -> bool {
        matches!(&self.selector[..], [(key, value)] if (&**key, &**value) == VIRTUAL_NODE)
    }

    /// Whether the site consists of Liqo's virtual nodes: its selector names them, or it tolerates their taint.
    pub fn is_of_liqo(&self) -> bool {
        let selects = |(key, value)| key == REMOTE_CLUSTER_ID || (key, value) == VIRTUAL_NODE;
        self.selector().any(selects) || self.tolerations.iter().any(|toleration| toleration.key == NOT_ALLOWED)
    }
}
