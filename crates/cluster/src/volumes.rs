//! Claims, volumes and classes as their watches show them. They are watched if a cloud can have data.

mod read;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edgeward_decision::model::volumes::{ClaimRecord, ClassRecord, Volumes};
use edgeward_kube::constraints::VolumeAffinity;
use edgeward_kube::units::{Micros, Moment};
use edgeward_kube::words;

pub use read::{read_affinity, read_claim, read_class};

words! {
    /// The kinds that are watched, by plural.
    pub enum VolumeKind {
        /// PersistentVolumeClaims.
        Claims = "persistentvolumeclaims",
        /// PersistentVolumes.
        Volumes = "persistentvolumes",
        /// StorageClasses.
        Classes = "storageclasses",
    }
}

/// A change that a watch has seen.
#[derive(Debug, Clone)]
pub enum VolumeChange {
    /// The claim with this namespace and name; `None` if it is gone.
    Claim([Box<str>; 2], Option<ClaimRecord>),
    /// The affinity of the volume with this name; `None` if none is kept, or the volume is gone.
    Volume(Box<str>, Option<VolumeAffinity>),
    /// The class with this name; `None` if it is gone.
    Class(Box<str>, Option<ClassRecord>),
    /// A list of all objects of this kind begins.
    ListBegan(VolumeKind),
    /// The list of this kind is complete.
    ListEnded(VolumeKind),
    /// A watch of this kind is alive without an event.
    Alive(VolumeKind),
}

impl VolumeChange {
    /// The kind whose watch this change shows to be alive.
    pub fn kind(&self) -> VolumeKind {
        match self {
            VolumeChange::Claim(..) => VolumeKind::Claims,
            VolumeChange::Volume(..) => VolumeKind::Volumes,
            VolumeChange::Class(..) => VolumeKind::Classes,
            VolumeChange::ListBegan(kind) | VolumeChange::ListEnded(kind) | VolumeChange::Alive(kind) => *kind,
        }
    }
}

/// The known claims, volumes and classes. A change costs a search. The first change after a publication also copies the
/// tables, as pointers.
#[derive(Debug, Default)]
pub struct VolumeCache {
    known: Arc<Volumes>,
    lists: BTreeMap<VolumeKind, List>,
    /// Whether anything has changed since the last publication.
    is_changed: bool,
    /// When waiting for the lists began.
    began: Option<Moment>,
}

#[derive(Debug, Default)]
struct List {
    is_complete: bool,
    as_of: Option<Moment>,
    /// Objects that the current list has shown, or that were seen since it began.
    seen: Option<BTreeSet<[Arc<str>; 2]>>,
}

impl VolumeCache {
    /// Applies a change that was seen at this moment.
    pub fn apply(&mut self, change: &VolumeChange, at: Moment) {
        let list = self.lists.entry(change.kind()).or_default();
        list.as_of = list.as_of.max(Some(at));
        match change {
            VolumeChange::Claim([namespace, name], record) => {
                list.sees([namespace, name], record.is_some());
                let known = Arc::make_mut(&mut self.known);
                let claims = known.claims.entry((&**namespace).into()).or_default();
                self.is_changed |= put(claims, name, record);
                if claims.is_empty() {
                    known.claims.remove(&**namespace);
                }
            }
            VolumeChange::Volume(name, affinity) => {
                list.sees(["", name], affinity.is_some());
                self.is_changed |= put(&mut Arc::make_mut(&mut self.known).volumes, name, affinity);
            }
            VolumeChange::Class(name, record) => {
                list.sees(["", name], record.is_some());
                self.is_changed |= put(&mut Arc::make_mut(&mut self.known).classes, name, record);
            }
            VolumeChange::ListBegan(_) => list.seen = Some(BTreeSet::new()),
            VolumeChange::ListEnded(kind) => self.list_ended(*kind),
            VolumeChange::Alive(_) => {}
        }
    }

    /// Removes objects that the list did not contain.
    fn list_ended(&mut self, kind: VolumeKind) {
        let list = self.lists.entry(kind).or_default();
        self.is_changed |= !std::mem::replace(&mut list.is_complete, true);
        let Some(seen) = list.seen.take() else { return };
        let empty: Arc<str> = "".into();
        let known = Arc::make_mut(&mut self.known);
        let is_seen = |namespace: &Arc<str>, name: &Arc<str>| seen.contains(&[Arc::clone(namespace), Arc::clone(name)]);
        match kind {
            VolumeKind::Claims => {
                for (namespace, claims) in &mut known.claims {
                    claims.retain(|name, _| is_seen(namespace, name));
                }
                known.claims.retain(|_, claims| !claims.is_empty());
            }
            VolumeKind::Volumes => known.volumes.retain(|name, _| is_seen(&empty, name)),
            VolumeKind::Classes => known.classes.retain(|name, _| is_seen(&empty, name)),
        }
        self.is_changed = true;
    }

    /// Returns what is known once everything is listed, and whether it has changed since the last call. Watches without a
    /// sign of life for longer than `ttl` are behind.
    pub fn publish(&mut self, ttl: Micros, now: Moment) -> (Option<Arc<Volumes>>, bool) {
        let lists = VolumeKind::ALL.map(|kind| self.lists.get(&kind).filter(|list| list.is_complete)?.as_of);
        let as_of = lists.into_iter().collect::<Option<Vec<_>>>();
        let published = as_of.and_then(|as_of| {
            let is_stale = now.since(as_of.into_iter().min()?) > ttl;
            if self.known.is_stale != is_stale {
                Arc::make_mut(&mut self.known).is_stale = is_stale;
                self.is_changed = true;
            }
            Some(Arc::clone(&self.known))
        });
        (published, std::mem::take(&mut self.is_changed))
    }

    /// Whether the lists may still arrive. They are awaited for `ttl` from the first call on.
    pub fn is_awaited(&mut self, ttl: Micros, now: Moment) -> bool {
        let began = *self.began.get_or_insert(now);
        let is_listed = |kind: &VolumeKind| self.lists.get(kind).is_some_and(|list| list.is_complete);
        !VolumeKind::ALL.iter().all(is_listed) && now.since(began) <= ttl
    }

    /// When the watch of this kind was last seen alive.
    pub fn last_event(&self, kind: VolumeKind) -> Option<Moment> {
        self.lists.get(&kind)?.as_of
    }
}

impl List {
    /// Records that the object with this namespace and name exists or is gone.
    fn sees(&mut self, key: [&str; 2], is_there: bool) {
        let (Some(seen), key) = (&mut self.seen, key.map(Arc::from)) else {
            return;
        };
        if is_there {
            seen.insert(key);
        } else {
            seen.remove(&key);
        }
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

    const TTL: Micros = Micros::from_secs(60);

    fn listed(cache: &mut VolumeCache, kind: VolumeKind, changes: &[VolumeChange], at: Moment) {
        cache.apply(&VolumeChange::ListBegan(kind), at);
        changes.iter().for_each(|change| cache.apply(change, at));
        cache.apply(&VolumeChange::ListEnded(kind), at);
    }

    fn claim(name: &str) -> VolumeChange {
        VolumeChange::Claim(["shop".into(), name.into()], Some(ClaimRecord::default()))
    }

    fn names(volumes: &Volumes) -> Vec<&str> {
        volumes.claims.values().flatten().map(|(name, _)| &**name).collect()
    }

    #[test]
    fn volumes_are_unknown_until_every_kind_is_listed() {
        let (mut cache, at) = (VolumeCache::default(), Moment(0));
        for kind in VolumeKind::ALL {
            assert_eq!(cache.publish(TTL, at).0, None);
            listed(&mut cache, kind, &[], at);
        }
        let (known, is_changed) = cache.publish(TTL, at);
        assert!(known.is_some() && is_changed);
        assert!(!cache.publish(TTL, at).1);
    }

    #[test]
    fn claim_missing_from_complete_list_is_removed() {
        let (mut cache, at) = (VolumeCache::default(), Moment(0));
        let both = [claim("a"), claim("b")];
        for kind in VolumeKind::ALL {
            listed(
                &mut cache,
                kind,
                if kind == VolumeKind::Claims { &both } else { &[] },
                at,
            );
        }
        assert_eq!(names(&cache.publish(TTL, at).0.unwrap()), ["a", "b"]);
        cache.apply(&VolumeChange::ListBegan(VolumeKind::Claims), at);
        cache.apply(&claim("b"), at);
        assert_eq!(names(&cache.publish(TTL, at).0.unwrap()), ["a", "b"]);
        cache.apply(&VolumeChange::ListEnded(VolumeKind::Claims), at);
        assert_eq!(names(&cache.publish(TTL, at).0.unwrap()), ["b"]);
        cache.apply(&VolumeChange::Claim(["shop".into(), "b".into()], None), at);
        assert_eq!(cache.publish(TTL, at).0.unwrap().claims.len(), 0);
    }

    #[test]
    fn volumes_are_stale_when_one_watch_is_silent() {
        let mut cache = VolumeCache::default();
        for kind in VolumeKind::ALL {
            listed(&mut cache, kind, &[], Moment(0));
        }
        let late = Moment(0).after(TTL).after(Micros(1));
        cache.apply(&VolumeChange::Alive(VolumeKind::Claims), late);
        cache.apply(&VolumeChange::Alive(VolumeKind::Classes), late);
        let (known, is_changed) = cache.publish(TTL, late);
        assert!(known.unwrap().is_stale && is_changed);
        cache.apply(&VolumeChange::Alive(VolumeKind::Volumes), late);
        assert!(!cache.publish(TTL, late).0.unwrap().is_stale);
    }
}
