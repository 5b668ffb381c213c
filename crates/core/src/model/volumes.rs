//! Where a pod's data is: its claims, the volumes these are bound to, and the classes that make volumes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::constraints::{Requirement, Term, VolumeAffinity};
use super::site::{SiteDefinition, SiteKind};

/// The most claims of one pod that are looked up. One with more goes where it would if nothing were known of them.
pub const MAX_CLAIMS: usize = 16;

/// What makes volumes where the pod's virtual node is.
pub const LIQO_PROVISIONER: &str = "liqo.io/storage";

/// A PersistentVolumeClaim of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct VolumeClaim<'a> {
    /// Its name; `None` for a generic ephemeral volume of a pod that has no name yet.
    pub name: Option<Cow<'a, str>>,
    /// The StorageClass that a generic ephemeral volume states, for as long as its claim is not there.
    pub class: Option<Cow<'a, str>>,
    /// Whether it is made for its pod alone, and goes with it.
    pub is_ephemeral: bool,
    /// Where the data may be, as far as that was looked up.
    pub data: Whereabouts,
}

/// Where a claim lets its pod run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Whereabouts {
    /// Here only, or nobody knows.
    #[default]
    Here,
    /// Where its volume of this class is, which [`NodeConstraints::volumes`](super::constraints::NodeConstraints::volumes) say.
    AtVolume(Option<KnownClass>),
    /// Wherever a volume of this class can be made: there is none yet.
    OfClass(KnownClass),
}

/// A StorageClass that exists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KnownClass {
    /// Its name.
    pub name: Arc<str>,
    /// Whether its volumes are Liqo's.
    pub is_liqo: bool,
}

impl KnownClass {
    /// Whether volumes of it can be at this cloud site.
    pub fn is_of(&self, site: &SiteDefinition) -> bool {
        (self.is_liqo && site.makes_liqo_volumes()) || site.storage_classes.iter().any(|class| **class == *self.name)
    }
}

impl VolumeClaim<'_> {
    /// The same, independent of the document it was read from.
    pub fn into_owned(self) -> VolumeClaim<'static> {
        let owned = |text: Option<Cow<'_, str>>| text.map(|text| Cow::Owned(text.into_owned()));
        VolumeClaim {
            name: owned(self.name),
            class: owned(self.class),
            is_ephemeral: self.is_ephemeral,
            data: self.data,
        }
    }

    /// Its name, or what stands for it.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("an ephemeral volume")
    }

    /// Whether its pod may run at this site, as far as the claim goes.
    pub fn is_served_by(&self, site: &SiteDefinition) -> bool {
        site.kind == SiteKind::Edge
            || match &self.data {
                Whereabouts::Here => false,
                // Of other classes Liqo takes no claim along, whatever labels its virtual nodes carry.
                Whereabouts::AtVolume(class) => {
                    !site.is_of_liqo() || class.as_ref().is_some_and(|class| class.is_of(site))
                }
                Whereabouts::OfClass(class) => class.is_of(site),
            }
    }
}

/// A PersistentVolumeClaim, as far as it decides where its pod may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimRecord {
    /// The volume that it is bound to, or that is meant for it.
    pub volume: Option<Arc<str>>,
    /// Its StorageClass.
    pub class: Option<Arc<str>>,
    /// The node that kube-scheduler has chosen for its first pod, on which its volume is being made.
    pub selected_node: Option<Arc<str>>,
    /// Whether it has lost its volume.
    pub lost: bool,
}

/// A StorageClass, as far as it decides where a pod may run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassRecord {
    /// Whether its volumes are Liqo's.
    pub is_liqo: bool,
    /// Whether it waits for the first pod before it makes or binds a volume: then that pod's node decides where.
    pub waits: bool,
}

impl ClassRecord {
    /// By `provisioner` and `volumeBindingMode`.
    pub fn new(provisioner: &str, binding_mode: &str) -> Self {
        Self {
            is_liqo: provisioner == LIQO_PROVISIONER,
            waits: binding_mode == "WaitForFirstConsumer",
        }
    }
}

/// All claims, volumes and classes that say where a pod may run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Volumes {
    /// Whether the watches are behind, so that no volume may be made for a pod that arrives but at the edge.
    pub is_stale: bool,
    /// Claims by namespace and name.
    pub claims: BTreeMap<Arc<str>, BTreeMap<Arc<str>, ClaimRecord>>,
    /// The node affinity of volumes that have one, by their names.
    pub volumes: BTreeMap<Arc<str>, VolumeAffinity>,
    /// Classes by their names.
    pub classes: BTreeMap<Arc<str>, ClassRecord>,
}

impl Volumes {
    /// Where this claim lets its pod run, and the affinity of its volume. Cost: a few searches.
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

/// The affinity of a volume that is made on this node: kube-scheduler takes no other for the next pods.
fn on_node(name: &str) -> VolumeAffinity {
    let name = Cow::Owned(name.to_owned());
    let is_named = Requirement::on_field(Cow::Borrowed("metadata.name"), Cow::Borrowed("In"), vec![name]);
    Arc::new(vec![Term {
        expressions: vec![],
        fields: vec![is_named],
    }])
}
