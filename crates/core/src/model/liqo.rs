//! What Liqo says: where the pods of a namespace may run, and how the remote clusters are.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::site::SiteDefinition;
use crate::units::{Micros, Moment};
use crate::words;

/// The label by which a node says that it is a virtual one, and its value.
pub const VIRTUAL_NODE: (&str, &str) = ("liqo.io/type", "virtual-node");

/// The label with the id of the cluster behind a virtual node.
pub const REMOTE_CLUSTER_ID: &str = "liqo.io/remote-cluster-id";

/// The key of the taint of virtual nodes.
pub const NOT_ALLOWED: &str = "virtual-node.liqo.io/not-allowed";

words! {
    /// `podOffloadingStrategy` of a NamespaceOffloading: what Liqo's own webhook makes of pods.
    pub enum Strategy {
        /// Nothing.
        Local = "Local",
        /// They may run on virtual nodes only.
        Remote = "Remote",
        /// They tolerate virtual nodes.
        LocalAndRemote = "LocalAndRemote",
    }
}

words! {
    /// How far the offloading of a namespace to one cluster has come; the worst last.
    pub enum OffloadingPhase {
        /// The namespace is there, and pods run.
        Accepted = "Accepted",
        /// It is being made there.
        InProgress = "InProgress",
        /// Nobody has said yet.
        Unknown = "Unknown",
        /// It could not be made there, and Liqo tries again.
        CreationLoopBackOff = "CreationLoopBackOff",
        /// It could not be made at some clusters.
        SomeFailed = "SomeFailed",
        /// It could not be made at any cluster.
        AllFailed = "AllFailed",
        /// It is being deleted.
        Terminating = "Terminating",
        /// It is offloaded to other clusters, and not to this one.
        NotSelected = "NotSelected",
        /// Its NamespaceOffloading selects no cluster.
        NoClusterSelected = "NoClusterSelected",
        /// It has no NamespaceOffloading.
        None = "None",
    }
}

/// Of one that is stated, if nothing else is said.
impl Default for OffloadingPhase {
    fn default() -> Self {
        Self::Accepted
    }
}

impl OffloadingPhase {
    /// Whether nothing has to be done for it to pass.
    pub const fn is_passing(self) -> bool {
        matches!(self, OffloadingPhase::InProgress | OffloadingPhase::Unknown)
    }
}

words! {
    /// What a ForeignCluster says of its API server (condition `APIServerStatus`).
    pub enum ApiServerStatus {
        /// It answers.
        Established = "Established",
        /// It is not known yet.
        Pending = "Pending",
        /// It does not answer.
        Error = "Error",
        /// It is not there.
        None = "None",
    }
}

/// The offloading of one namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Offloading {
    /// What its NamespaceOffloading states; `None` where there is none.
    pub strategy: Option<Strategy>,
    /// How far it has come as a whole, where one is stated.
    pub phase: OffloadingPhase,
    /// How far it has come at each cluster that it is mapped to, by cluster id.
    pub clusters: BTreeMap<Box<str>, OffloadingPhase>,
}

impl Offloading {
    /// How far it has come at this cluster.
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
    /// Whether all was listed; until then, and where it may not be, nothing is known of any.
    #[serde(rename = "known", default = "yes")]
    pub is_known: bool,
    /// That of each that has any, by name.
    #[serde(default)]
    pub namespaces: BTreeMap<Box<str>, Offloading>,
}

fn yes() -> bool {
    true
}

impl Offloadings {
    /// How far the offloading of this namespace to this cluster has come. Cost: two searches.
    pub fn phase(&self, namespace: &str, cluster: &str) -> OffloadingPhase {
        match self.namespaces.get(namespace) {
            _ if !self.is_known => OffloadingPhase::Unknown,
            Some(offloading) => offloading.phase(cluster),
            None => OffloadingPhase::None,
        }
    }

    /// Whether the pods of this namespace may run on virtual nodes only. Once the offloading is being deleted, Liqo's webhook leaves
    /// them alone.
    pub fn is_remote(&self, namespace: &str) -> bool {
        let is_remote = |offloading: &Offloading| {
            offloading.strategy == Some(Strategy::Remote) && offloading.phase != OffloadingPhase::Terminating
        };
        self.is_known && self.namespaces.get(namespace).is_some_and(is_remote)
    }
}

/// What is known of a remote cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemoteCluster {
    /// What its ForeignCluster says of its API server; `None` where it says nothing.
    pub api_server: Option<ApiServerStatus>,
    /// RTT between the gateways, and when that was measured, where the Connection between them is up.
    pub latency: Option<(Micros, Moment)>,
}

/// What Liqo says, while it is in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Liqo {
    /// Of namespaces.
    pub offloadings: Arc<Offloadings>,
    /// Of clusters, by id.
    pub clusters: BTreeMap<Box<str>, RemoteCluster>,
}

impl SiteDefinition {
    /// The id of the cluster whose virtual nodes alone are of this site, by its selector.
    pub fn remote_cluster(&self) -> Option<&str> {
        let mut selector = self.selector();
        selector.find_map(|(key, value)| (key == REMOTE_CLUSTER_ID).then_some(value))
    }

    /// Whether the virtual nodes of every cluster are of this site.
    pub fn is_of_all_virtual_nodes(&self) -> bool {
        matches!(&self.selector[..], [(key, value)] if (&**key, &**value) == VIRTUAL_NODE)
    }

    /// Whether it is for virtual nodes of Liqo: it selects them, or tolerates their taint.
    pub fn is_of_liqo(&self) -> bool {
        let selects = |(key, value)| key == REMOTE_CLUSTER_ID || (key, value) == VIRTUAL_NODE;
        self.selector().any(selects) || self.tolerations.iter().any(|toleration| toleration.key == NOT_ALLOWED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offloading(stated: Option<(Strategy, OffloadingPhase)>, mapped: &[(&str, OffloadingPhase)]) -> Offloading {
        let clusters = mapped.iter().map(|(cluster, phase)| ((*cluster).into(), *phase));
        Offloading {
            strategy: stated.map(|(strategy, _)| strategy),
            phase: stated.map_or(OffloadingPhase::Accepted, |(_, phase)| phase),
            clusters: clusters.collect(),
        }
    }

    #[test]
    fn the_map_says_where_and_the_offloading_why_not() {
        use OffloadingPhase::{
            Accepted, CreationLoopBackOff, InProgress, NoClusterSelected, None, NotSelected, SomeFailed, Terminating,
            Unknown,
        };
        let local = |phase| Some((Strategy::Local, phase));
        let namespaces = [
            (
                "ready",
                offloading(local(Accepted), &[("near", Accepted)]),
                [Accepted, NotSelected],
            ),
            (
                "made",
                offloading(local(InProgress), &[("near", Accepted)]),
                [Accepted, InProgress],
            ),
            ("new", offloading(local(InProgress), &[]), [InProgress, InProgress]),
            (
                "nowhere",
                offloading(local(NoClusterSelected), &[]),
                [NoClusterSelected, NoClusterSelected],
            ),
            (
                "failed",
                offloading(local(SomeFailed), &[("near", CreationLoopBackOff), ("far", Accepted)]),
                [CreationLoopBackOff, Accepted],
            ),
            (
                "ending",
                offloading(local(Terminating), &[("near", Accepted)]),
                [Terminating, Terminating],
            ),
            (
                "by hand",
                offloading(Option::None, &[("near", Accepted)]),
                [Accepted, None],
            ),
            ("none", Offloading::default(), [None, None]),
        ];
        let mut all = Offloadings {
            is_known: true,
            namespaces: namespaces
                .iter()
                .map(|(name, offloading, _)| ((*name).into(), offloading.clone()))
                .collect(),
        };
        for (name, _, expected) in &namespaces {
            assert_eq!(
                ["near", "far"].map(|cluster| all.phase(name, cluster)),
                *expected,
                "{name}"
            );
        }
        assert_eq!(all.phase("of nobody", "near"), None);
        all.is_known = false;
        assert_eq!(all.phase("ready", "near"), Unknown);
    }
}
