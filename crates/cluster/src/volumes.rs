//! Claims, volumes and classes as their watches show them. They are watched if a cloud can have data.

mod read;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Kind;
use crate::engine::Change;
use edgeward_decision::model::volumes::Volumes;
use edgeward_kube::units::{Micros, Moment};

pub use read::{read_affinity, read_claim, read_class};

/// The known claims, volumes and classes. A change costs a search. The first change after a publication also copies the
/// tables, as pointers.
#[derive(Debug, Default)]
pub struct VolumeCache {
    known: Arc<Volumes>,
    /// What was seen of each kind that is being listed.
    listing: BTreeMap<Kind, Volumes>,
    /// Whether anything has changed since the last publication.
    is_changed: bool,
    /// When waiting for the lists began.
    began: Option<Moment>,
}

impl VolumeCache {
    /// Applies a change of a claim, volume or class.
    pub fn apply(&mut self, change: &Change) {
        if let Some(listing) = change.kind().and_then(|kind| self.listing.get_mut(&kind)) {
            apply_to(listing, change);
        }
        self.is_changed |= apply_to(Arc::make_mut(&mut self.known), change);
    }

    /// Begins a list of all objects of this kind.
    pub fn list_began(&mut self, kind: Kind) {
        if Kind::OF_DATA.contains(&kind) {
            self.listing.insert(kind, Volumes::default());
        }
    }

    /// Ends a list of all objects of this kind, and removes objects that it did not contain.
    pub fn list_ended(&mut self, kind: Kind) {
        let Some(listed) = self.listing.remove(&kind) else {
            return;
        };
        self.is_changed = true;
        let known = Arc::make_mut(&mut self.known);
        match kind {
            Kind::Claims => known.claims = listed.claims,
            Kind::Volumes => known.volumes = listed.volumes,
            Kind::Classes => known.classes = listed.classes,
            _ => {}
        }
    }

    /// Returns what is known, and whether it has changed since the last call.
    pub fn publish(&mut self, is_stale: bool) -> (Arc<Volumes>, bool) {
        if self.known.is_stale != is_stale {
            Arc::make_mut(&mut self.known).is_stale = is_stale;
            self.is_changed = true;
        }
        (Arc::clone(&self.known), std::mem::take(&mut self.is_changed))
    }

    /// Whether missing lists may still arrive. They are awaited for `ttl` from the first call on.
    pub fn may_await(&mut self, ttl: Micros, now: Moment) -> bool {
        now.since(*self.began.get_or_insert(now)) <= ttl
    }
}

/// Applies a change, and returns whether it changed anything.
fn apply_to(volumes: &mut Volumes, change: &Change) -> bool {
    match change {
        Change::Claim([namespace, name], record) => {
            let claims = volumes.claims.entry((&**namespace).into()).or_default();
            let is_changed = put(claims, name, record);
            if claims.is_empty() {
                volumes.claims.remove(&**namespace);
            }
            is_changed
        }
        Change::Volume(name, affinity) => put(&mut volumes.volumes, name, affinity),
        Change::StorageClass(name, record) => put(&mut volumes.classes, name, record),
        _ => false,
    }
}

/// Sets or removes a value, and returns whether that changed anything.
fn put<T: Clone + PartialEq>(table: &mut BTreeMap<Arc<str>, T>, name: &str, value: &Option<T>) -> bool {
    let before = match value {
        Some(value) => table.insert(name.into(), value.clone()),
        None => table.remove(name),
    };
    before != *value
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgeward_decision::model::volumes::ClaimRecord;

    fn claim(name: &str) -> Change {
        Change::Claim(["shop".into(), name.into()], Some(ClaimRecord::default()))
    }

    fn names(cache: &mut VolumeCache) -> Vec<String> {
        let claims = cache.publish(false).0.claims.clone();
        claims.values().flatten().map(|(name, _)| name.to_string()).collect()
    }

    #[test]
    fn claim_missing_from_complete_list_is_removed() {
        let mut cache = VolumeCache::default();
        cache.list_began(Kind::Claims);
        [claim("a"), claim("b")].iter().for_each(|claim| cache.apply(claim));
        cache.list_ended(Kind::Claims);
        assert_eq!(names(&mut cache), ["a", "b"]);
        cache.list_began(Kind::Claims);
        cache.apply(&claim("b"));
        cache.list_ended(Kind::Volumes);
        assert_eq!(names(&mut cache), ["a", "b"]);
        cache.list_ended(Kind::Claims);
        assert_eq!(names(&mut cache), ["b"]);
        cache.apply(&Change::Claim(["shop".into(), "b".into()], None));
        assert!(cache.publish(false).1 && !cache.publish(false).1);
        assert_eq!(names(&mut cache), [""; 0]);
    }
}
