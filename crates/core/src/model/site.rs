//! A site, as an operator defines it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::constraints::Toleration;
use super::endpoint::Endpoint;
use super::link::OwnThresholds;
use crate::model::ties::Ties;
use crate::units::{CostPerHour, Permille};
use crate::words;

words! {
    /// Edge or cloud.
    pub enum SiteKind {
        /// The nodes of the local cluster.
        Edge = "edge",
        /// A remote cluster behind virtual nodes.
        Cloud = "cloud",
    }
}

words! {
    /// How a site became known.
    pub enum SiteSource {
        /// It stands in the configuration, or in a fleet file.
        Config = "config",
        /// It is a Site object.
        Object = "object",
        /// Liqo has a VirtualNode of its cluster.
        Liqo = "liqo",
    }
}

/// A place where pods can run, as an operator defines it. What is seen of it is a [`Site`](super::snapshot::Site).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteDefinition {
    /// Name, unique in the fleet.
    pub name: String,
    /// Edge or cloud.
    pub kind: SiteKind,
    /// What pods ask for that may run at some sites alone: region, tier and the like. No node carries them for it.
    pub labels: BTreeMap<Box<str>, Box<str>>,
    /// What an hour there costs; `None` where nobody says.
    pub cost: Option<CostPerHour>,
    /// Where it stands among clouds that are taken in an order, the lowest first; those of the same by name.
    pub order: u32,
    /// What a placement adds to the pod's nodeSelector; never empty. A node is of this site when it carries all.
    pub selector: Vec<(String, String)>,
    /// What a placement adds to the pod's tolerations.
    pub tolerations: Vec<Toleration<'static>>,
    /// How fast its CPUs are: 1000 is the speed the models are stated for.
    pub speed: Permille,
    /// Ties to the local cluster that this cloud site can serve.
    pub supports: Ties,
    /// Traits that all of its nodes have.
    pub traits: Vec<String>,
    /// StorageClasses of which a volume can be made at this cloud site.
    pub storage_classes: Vec<String>,
    /// The RuntimeClass that a placement gives a pod that names none.
    pub runtime_class: Option<String>,
    /// From which numbers on its WAN is degraded, where it is not as the configuration says.
    pub thresholds: OwnThresholds,
    /// What the WAN towards a cloud site is measured by; none of a site in a fleet file, which states its link.
    pub probes: Vec<Endpoint>,
    /// How it became known.
    pub source: SiteSource,
}

impl SiteDefinition {
    /// Whether both define the same, however the WAN towards it is measured.
    pub fn is_same_place(&self, other: &Self) -> bool {
        let placed = |site: &Self| Self {
            probes: vec![],
            ..site.clone()
        };
        placed(self) == placed(other)
    }

    /// Whether Liqo makes volumes there: it is one of its sites, and some class is declared.
    pub fn makes_liqo_volumes(&self) -> bool {
        self.is_of_liqo() && !self.storage_classes.is_empty()
    }

    /// Whether data can be at this cloud site, so that claims and volumes must be known.
    pub fn can_have_data(&self) -> bool {
        self.kind == SiteKind::Cloud && !self.storage_classes.is_empty()
    }

    /// The selector as pairs of strings.
    pub fn selector(&self) -> impl Iterator<Item = (&str, &str)> {
        self.selector.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// Whether both lists define the same sites, however the WAN towards them is measured.
pub fn are_same_places<'s>(
    some: impl ExactSizeIterator<Item = &'s Arc<SiteDefinition>>,
    others: &[Arc<SiteDefinition>],
) -> bool {
    some.len() == others.len() && some.zip(others).all(|(one, other)| one.is_same_place(other))
}
