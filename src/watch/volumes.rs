//! Watches volume claims, volumes and storage classes once a cloud can have data.

use std::sync::Arc;

use edgeward_cluster::cache::Kind;
use edgeward_cluster::engine::Change;
use edgeward_cluster::volumes::{read_affinity, read_claim, read_class};
use edgeward_decision::config::Config;
use kube::Resource as _;

use crate::config::Versions;
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::watch::raw::{Gvr, Raw};
use crate::watch::{Cluster, readable};

impl Cluster {
    /// Watches volume claims, volumes and storage classes from the moment a cloud can have data. Never returns. The
    /// watch continues if such a cloud is removed, because it may come back and its data is nowhere else meanwhile.
    /// If the rights are missing, pods with volume claims are decided without knowledge of where their data is.
    pub async fn follow_volumes(self, mut versions: Versions, metrics: Arc<Metrics>) {
        while !can_have_data(&*versions.next().await) {}
        let limit = &LogLimit::new(self.changes.clock);
        let claim_gone = |object: &Raw| Some(Change::Claim(namespaced(object)?, None));
        let volume_gone = |object: &Raw| Some(Change::Volume(name(object)?, None));
        let class_gone = |object: &Raw| Some(Change::StorageClass(name(object)?, None));
        let claim = |object: &Raw| claim(object, limit);
        let volume = |object: &Raw| volume(object, limit);
        let class = |object: &Raw| class(object, limit);
        let watch = || self.clone();
        tokio::join!(
            watch().watch_kind(Kind::Claims, Gvr::CLAIMS, &metrics, claim, claim_gone),
            watch().watch_kind(Kind::Volumes, Gvr::VOLUMES, &metrics, volume, volume_gone),
            watch().watch_kind(Kind::Classes, Gvr::CLASSES, &metrics, class, class_gone),
        );
    }
}

/// Whether a cloud of this configuration can have data.
pub(crate) fn can_have_data(config: &Config) -> bool {
    config.sites.iter().any(|site| site.can_have_data())
}

/// Reads a claim. An unreadable claim counts as absent.
pub(crate) fn claim(object: &Raw, limit: &LogLimit) -> Option<Change> {
    let read = readable(Kind::Claims.as_str(), object, read_claim(object.json()), limit);
    Some(Change::Claim(namespaced(object)?, read))
}

/// Reads a volume. The place of an unreadable volume is unknown.
pub(crate) fn volume(object: &Raw, limit: &LogLimit) -> Option<Change> {
    let affinity = read_affinity(object.json());
    let read = readable(Kind::Volumes.as_str(), object, affinity, limit);
    Some(Change::Volume(name(object)?, read.flatten()))
}

/// Reads a storage class. An unreadable class counts as absent.
pub(crate) fn class(object: &Raw, limit: &LogLimit) -> Option<Change> {
    let read = readable(Kind::Classes.as_str(), object, read_class(object.json()), limit);
    Some(Change::StorageClass(name(object)?, read))
}

fn name(object: &Raw) -> Option<Box<str>> {
    Some(object.meta().name.as_deref()?.into())
}

fn namespaced(object: &Raw) -> Option<[Box<str>; 2]> {
    Some([object.meta().namespace.as_deref()?.into(), name(object)?])
}
