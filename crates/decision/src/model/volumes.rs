//! Location of a pod's data: its claims, the volumes bound to them, and the StorageClasses that provision volumes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::site::{SiteDefinition, SiteKind};
use edgeward_kube::constraints::{Requirement, Term, VolumeAffinity, owned};

/// Maximum number of claims that are looked up per pod. A pod with more is placed as if nothing were known of its
/// claims.
pub const MAX_CLAIMS: usize = 16;

/// Liqo's provisioner. It creates a volume in the cluster behind the pod's virtual node.
pub const LIQO_PROVISIONER: &str = "liqo.io/storage";

/// A PersistentVolumeClaim that a pod uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct VolumeClaim<'a> {
    /// Name of the claim. `None` for a generic ephemeral volume of a pod that has no name yet.
    pub name: Option<Cow<'a, str>>,
    /// StorageClass that a generic ephemeral volume states. It counts until the claim exists.
    pub class: Option<Cow<'a, str>>,
    /// Whether the claim is created for its pod and deleted with it.
    pub is_ephemeral: bool,
    /// Where the data may be. [`Whereabouts::Here`] until the claim is looked up.
    pub data: Whereabouts,
}

/// Where a claim lets its pod run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Whereabouts {
    /// Only in the local cluster. Also used if nothing is known.
    #[default]
    Here,
    /// Where the claim's volume is, with the class of the volume if known. The node affinity of the volume is in
    /// [`NodeConstraints::volumes`](edgeward_kube::constraints::NodeConstraints::volumes).
    AtVolume(Option<KnownClass>),
    /// Wherever a volume of this class can be created. No volume exists yet.
    OfClass(KnownClass),
}

/// A StorageClass that exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KnownClass {
    /// Name of the StorageClass.
    pub name: Arc<str>,
    /// Whether Liqo provisions the volumes.
    pub is_liqo: bool,
}

impl KnownClass {
    /// Whether volumes of this class can be at this cloud site.
    pub fn is_of(&self, site: &SiteDefinition) -> bool {
        (self.is_liqo && site.makes_liqo_volumes()) || site.storage_classes.iter().any(|class| **class == *self.name)
    }
}

impl VolumeClaim<'_> {
    /// Converts the claim to a form that does not borrow from the parsed document.
    pub fn into_owned(self) -> VolumeClaim<'static> {
        VolumeClaim {
            name: self.name.map(owned),
            class: self.class.map(owned),
            is_ephemeral: self.is_ephemeral,
            data: self.data,
        }
    }

    /// Name of the claim, or a substitute for messages.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("an ephemeral volume")
    }

    /// Whether the claim lets its pod run at this site.
    pub fn is_served_by(&self, site: &SiteDefinition) -> bool {
        site.kind == SiteKind::Edge
            || match &self.data {
                Whereabouts::Here => false,
                // Liqo transfers no claim of another class, whatever labels its virtual nodes have.
                Whereabouts::AtVolume(class) => {
                    !site.is_of_liqo() || class.as_ref().is_some_and(|class| class.is_of(site))
                }
                Whereabouts::OfClass(class) => class.is_of(site),
            }
    }
}

/// The fields of a PersistentVolumeClaim that restrict where its pod may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimRecord {
    /// Volume that the claim is bound to, or that it asks for by name.
    pub volume: Option<Arc<str>>,
    /// StorageClass of the claim.
    pub class: Option<Arc<str>>,
    /// Node that kube-scheduler chose for the first pod of the claim. The volume is being created there.
    pub selected_node: Option<Arc<str>>,
    /// Whether the claim has lost its volume.
    pub lost: bool,
}

/// The fields of a StorageClass that restrict where a pod may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassRecord {
    /// Whether Liqo provisions the volumes.
    pub is_liqo: bool,
    /// Whether the class waits for the first pod before it creates or binds a volume. That pod's node then decides
    /// where.
    pub waits: bool,
}

impl ClassRecord {
    /// Builds the record from `provisioner` and `volumeBindingMode`.
    pub fn new(provisioner: &str, binding_mode: &str) -> Self {
        Self {
            is_liqo: provisioner == LIQO_PROVISIONER,
            waits: binding_mode == "WaitForFirstConsumer",
        }
    }
}

/// All claims, volumes and StorageClasses that restrict where pods may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Volumes {
    /// Whether the watches are behind. If so, a pod that arrives may get a new volume only at the edge.
    pub is_stale: bool,
    /// Claims by namespace and name.
    pub claims: BTreeMap<Arc<str>, BTreeMap<Arc<str>, ClaimRecord>>,
    /// Node affinity by volume name, for the volumes that have one.
    pub volumes: BTreeMap<Arc<str>, VolumeAffinity>,
    /// StorageClasses by name.
    pub classes: BTreeMap<Arc<str>, ClassRecord>,
}

impl Volumes {
    /// Returns where the claim lets its pod run, and the node affinity of its volume. Cost: a few searches.
    pub fn locate(&self, namespace: &str, claim: &VolumeClaim<'_>) -> (Whereabouts, Option<VolumeAffinity>) {
        let known = claim
            .name
            .as_deref()
            .and_then(|name| self.claims.get(namespace)?.get(name));
        let class = known.map_or(claim.class.as_deref(), |record| record.class.as_deref());
        let class = class.and_then(|class| self.classes.get_key_value(class));
        let known_class = |(name, class): (&Arc<str>, &ClassRecord)| KnownClass {
            name: Arc::clone(name),
            is_liqo: class.is_liqo,
        };
        match known {
            Some(ClaimRecord { lost: true, .. }) => (Whereabouts::Here, None),
            Some(ClaimRecord {
                volume: Some(volume), ..
            }) => {
                let affinity = self.volumes.get(volume);
                let data = affinity.map(|_| Whereabouts::AtVolume(class.map(known_class)));
                (data.unwrap_or_default(), affinity.cloned())
            }
            _ => {
                let Some(class) = class.filter(|(_, class)| class.waits).map(known_class) else {
                    return (Whereabouts::Here, None);
                };
                let selected = known.and_then(|record| record.selected_node.as_deref());
                match selected {
                    Some(node) => (Whereabouts::AtVolume(Some(class)), Some(on_node(node))),
                    None => (Whereabouts::OfClass(class), None),
                }
            }
        }
    }
}

/// Affinity of a volume that is being created on this node. kube-scheduler uses no other node for later pods of the
/// claim.
fn on_node(name: &str) -> VolumeAffinity {
    Arc::new(vec![Term {
        expressions: vec![],
        fields: vec![Requirement::is("metadata.name", name)],
    }])
}
