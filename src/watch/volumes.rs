//! Watches volume claims, volumes and storage classes once a cloud can have data.

use std::sync::Arc;

use edgeward_cluster::volumes::{VolumeChange, VolumeKind};
use edgeward_cluster::volumes::{read_affinity, read_claim, read_class};
use edgeward_decision::config::Config;
use kube::Resource as _;

use crate::config::Versions;
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::watch::raw::{Gvr, Raw};
use crate::watch::{Cluster, Watched, readable};

impl Cluster {
    /// Watches volume claims, volumes and storage classes from the moment a cloud can have data. Never returns. The
    /// watch continues if such a cloud is removed, because it may come back and its data is nowhere else meanwhile.
    /// If the rights are missing, pods with volume claims are decided without knowledge of where their data is.
    pub async fn follow_volumes(self, mut versions: Versions, metrics: Arc<Metrics>) {
        while !can_have_data(&*versions.next().await) {}
        let limit = &LogLimit::new(self.changes.clock());
        let claim_gone = |object: &Raw| Some(VolumeChange::Claim(namespaced(object)?, None));
        let volume_gone = |object: &Raw| Some(VolumeChange::Volume(name(object)?, None));
        let class_gone = |object: &Raw| Some(VolumeChange::Class(name(object)?, None));
        let watch = || self.clone();
        let claims = Watched::of_volumes(VolumeKind::Claims, Gvr::CLAIMS);
        let volumes = Watched::of_volumes(VolumeKind::Volumes, Gvr::VOLUMES);
        let classes = Watched::of_volumes(VolumeKind::Classes, Gvr::CLASSES);
        tokio::join!(
            watch().watch_kind(claims, &metrics, |object| claim(object, limit), claim_gone),
            watch().watch_kind(volumes, &metrics, |object| volume(object, limit), volume_gone),
            watch().watch_kind(classes, &metrics, |object| class(object, limit), class_gone),
        );
    }
}

/// Whether a cloud of this configuration can have data.
pub(crate) fn can_have_data(config: &Config) -> bool {
    config.sites.iter().any(|site| site.can_have_data())
}

/// Reads a claim. An unreadable claim counts as absent.
pub(crate) fn claim(object: &Raw, limit: &LogLimit) -> Option<VolumeChange> {
    let read = readable(VolumeKind::Claims.as_str(), object, read_claim(object.json()), limit);
    Some(VolumeChange::Claim(namespaced(object)?, read))
}

/// Reads a volume. The place of an unreadable volume is unknown.
pub(crate) fn volume(object: &Raw, limit: &LogLimit) -> Option<VolumeChange> {
    let affinity = read_affinity(object.json());
    let read = readable(VolumeKind::Volumes.as_str(), object, affinity, limit);
    Some(VolumeChange::Volume(name(object)?, read.flatten()))
}

/// Reads a storage class. An unreadable class counts as absent.
pub(crate) fn class(object: &Raw, limit: &LogLimit) -> Option<VolumeChange> {
    let read = readable(VolumeKind::Classes.as_str(), object, read_class(object.json()), limit);
    Some(VolumeChange::Class(name(object)?, read))
}

fn name(object: &Raw) -> Option<Box<str>> {
    Some(object.meta().name.as_deref()?.into())
}

fn namespaced(object: &Raw) -> Option<[Box<str>; 2]> {
    Some([object.meta().namespace.as_deref()?.into(), name(object)?])
}
