//! A site, as an operator defines it.

use std::collections::BTreeMap;

use crate::model::endpoint::Endpoint;
use crate::model::link::{Bandwidth, Energy, OwnThresholds};
use crate::model::report::ReportSource;
use crate::model::traits::Measured;
use edgeward_kube::constraints::Toleration;
use edgeward_kube::ties::Ties;
use edgeward_kube::units::{CostPerHour, Micros, Permille};
use edgeward_kube::words;

words! {
    /// Edge or cloud.
    pub enum SiteKind {
        /// The nodes of the local cluster.
        Edge = "edge",
        /// A remote cluster behind one or more nodes.
        Cloud = "cloud",
    }
}

words! {
    /// Where a site definition comes from.
    pub enum SiteSource {
        /// The configuration, or a fleet file.
        Config = "config",
        /// A Site object.
        Object = "object",
        /// A VirtualNode of Liqo for the cluster of the site.
        Liqo = "liqo",
    }
}

/// A place where pods can run, as an operator defines it. [`Site`](super::snapshot::Site) holds its observed state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteDefinition {
    /// Name, unique in the fleet.
    pub name: String,
    /// Edge or cloud.
    pub kind: SiteKind,
    /// Labels that the `sites` of a pod can select, such as region or tier. They are not labels of nodes.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// Cost of an hour at the site. `None` if it is not stated.
    pub cost: Option<CostPerHour>,
    /// Position among clouds that are taken in order, lowest first. Clouds with equal positions are ordered by name.
    pub order: u32,
    /// Labels that a placement adds to the pod's nodeSelector. Never empty. A node belongs to the site if it has all
    /// of them.
    pub selector: Vec<(String, String)>,
    /// Tolerations that a placement adds to the pod.
    pub tolerations: Vec<Toleration>,
    /// Speed of the CPUs. 1000 is the speed for which the models are stated.
    pub speed: Permille,
    /// Ties to the local cluster that this cloud site can serve.
    pub supports: Ties,
    /// Traits that all nodes of the site have.
    pub traits: Vec<String>,
    /// Traits that are measured at the site, with their state. A definition that was only read has none.
    pub measured: Vec<Measured>,
    /// StorageClasses from which a volume can be created at this cloud site.
    pub storage_classes: Vec<String>,
    /// RuntimeClass that a placement gives to a pod without a RuntimeClass.
    pub runtime_class: Option<String>,
    /// RTT between pods of the site and its way to other sites.
    pub inside_rtt: Micros,
    /// Bandwidth from the site to others. `None` if it is not stated.
    pub uplink: Option<Bandwidth>,
    /// Bandwidth from others to the site. `None` if it is not stated.
    pub downlink: Option<Bandwidth>,
    /// Energy of what the site sends. `None` if it is not stated.
    pub energy: Option<Energy>,
    /// How long a pod placed here stays bound to a node that is lost, in seconds. `None` if that is not changed.
    pub unreachable_seconds: Option<i64>,
    /// WAN thresholds of this site that differ from the configuration.
    pub thresholds: OwnThresholds,
    /// Probe targets that measure the WAN to a cloud site. Empty for a site in a fleet file, which states its link.
    pub probes: Vec<Endpoint>,
    /// Where the report of the cluster behind the site is read. `None` if it has none.
    pub report: Option<ReportSource>,
    /// Where this definition comes from.
    pub source: SiteSource,
}

impl SiteDefinition {
    /// Whether both definitions are equal, apart from measured traits and from how the WAN is measured.
    pub fn is_same_apart_from_measurements(&self, other: &Self) -> bool {
        let placed = |site: &Self| Self {
            probes: vec![],
            measured: vec![],
            ..site.clone()
        };
        placed(self) == placed(other)
    }

    /// Whether Liqo creates volumes there: it is a Liqo site, and at least one StorageClass is declared.
    pub fn makes_liqo_volumes(&self) -> bool {
        self.is_of_liqo() && !self.storage_classes.is_empty()
    }

    /// Whether this is a cloud site that can hold data. If so, claims and volumes must be known.
    pub fn can_have_data(&self) -> bool {
        self.kind == SiteKind::Cloud && !self.storage_classes.is_empty()
    }

    /// Whether the cluster behind the site can report what it has: it names a source, or is a Liqo site whose cluster may be a peer.
    pub fn can_have_report(&self) -> bool {
        self.report.is_some() || self.remote_cluster().is_some()
    }

    /// Names of the traits that the site has as a whole, stated or measured.
    pub fn traits_now(&self) -> impl Iterator<Item = &str> {
        let held = self.measured.iter().filter(|measured| measured.holds);
        self.traits
            .iter()
            .map(|name| &**name)
            .chain(held.map(|measured| &*measured.name))
    }

    /// Iterates over the selector as pairs of strings.
    pub fn selector(&self) -> impl Iterator<Item = (&str, &str)> {
        self.selector.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}
