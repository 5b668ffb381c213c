//! Claims, volumes and classes in a fleet file.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::volumes::{ClaimRecord, ClassRecord, LIQO_PROVISIONER, Volumes};
use edgeward_kube::constraints::{NodeSelector, Term};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ClaimEntry {
    namespace: Box<str>,
    name: Box<str>,
    volume_name: Option<Box<str>>,
    storage_class_name: Option<Box<str>>,
    selected_node: Option<Box<str>>,
    phase: Option<Phase>,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
enum Phase {
    Pending,
    Bound,
    Lost,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct VolumeEntry {
    name: Box<str>,
    node_selector_terms: Option<Vec<Term>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ClassEntry {
    name: Box<str>,
    provisioner: Option<String>,
    volume_binding_mode: Option<BindingMode>,
}

#[derive(PartialEq, Eq, Serialize, Deserialize)]
enum BindingMode {
    WaitForFirstConsumer,
    Immediate,
}

/// What the three lists say; `None` where none of them is there: then nothing is known of any.
pub(super) fn read(
    claims: Option<Vec<ClaimEntry>>,
    volumes: Option<Vec<VolumeEntry>>,
    classes: Option<Vec<ClassEntry>>,
) -> Option<Volumes> {
    if claims.is_none() && volumes.is_none() && classes.is_none() {
        return None;
    }
    let mut known = Volumes::default();
    for claim in claims.into_iter().flatten() {
        let record = ClaimRecord {
            volume: claim.volume_name.map(Arc::from),
            class: claim.storage_class_name.map(Arc::from),
            selected_node: claim.selected_node.map(Arc::from),
            lost: claim.phase == Some(Phase::Lost),
        };
        let of_namespace = known.claims.entry(claim.namespace.into()).or_default();
        of_namespace.insert(claim.name.into(), record);
    }
    for volume in volumes.into_iter().flatten() {
        let Some(node_selector_terms) = volume.node_selector_terms else {
            continue;
        };
        let terms = NodeSelector { node_selector_terms }.terms();
        known.volumes.insert(volume.name.into(), Arc::new(terms));
    }
    for class in classes.into_iter().flatten() {
        let record = ClassRecord {
            is_liqo: class.provisioner.as_deref() == Some(LIQO_PROVISIONER),
            waits: class.volume_binding_mode == Some(BindingMode::WaitForFirstConsumer),
        };
        known.classes.insert(class.name.into(), record);
    }
    Some(known)
}

pub(super) fn claims(known: &Volumes) -> Vec<ClaimEntry> {
    let text = |text: &Arc<str>| Box::<str>::from(&**text);
    let claims = known.claims.iter();
    let claims =
        claims.flat_map(|(namespace, claims)| claims.iter().map(move |(name, claim)| (namespace, name, claim)));
    let entry = |(namespace, name, claim): (&Arc<str>, &Arc<str>, &ClaimRecord)| ClaimEntry {
        namespace: text(namespace),
        name: (&**name).into(),
        volume_name: claim.volume.as_ref().map(text),
        storage_class_name: claim.class.as_ref().map(text),
        selected_node: claim.selected_node.as_ref().map(text),
        phase: claim.lost.then_some(Phase::Lost),
    };
    claims.map(entry).collect()
}

pub(super) fn volumes(known: &Volumes) -> Vec<VolumeEntry> {
    let volumes = known.volumes.iter().map(|(name, terms)| VolumeEntry {
        name: (&**name).into(),
        node_selector_terms: Some((**terms).clone()),
    });
    volumes.collect()
}

pub(super) fn classes(known: &Volumes) -> Vec<ClassEntry> {
    let classes = known.classes.iter().map(|(name, class)| ClassEntry {
        name: (&**name).into(),
        provisioner: class.is_liqo.then(|| LIQO_PROVISIONER.to_owned()),
        volume_binding_mode: Some(if class.waits {
            BindingMode::WaitForFirstConsumer
        } else {
            BindingMode::Immediate
        }),
    });
    classes.collect()
}
