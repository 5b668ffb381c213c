//! Clouds that are full according to their own scheduler (docs/design/room.md).
//!
//! A virtual node promises room. The status of a pod that is bound to it shows what the cluster behind it reports. A pod
//! that finds no room there is a witness for a bound. From that bound on, the site is full while it has a witness and for
//! some time longer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::Cache;
use crate::cache::entry::PodEntry;
use edgeward_decision::model::remote_room::{Bound, FullFrom, MAX_BOUNDS, Start};
use edgeward_kube::units::{Micros, Moment};

/// How long a site stays full after the last witness is gone.
const FULL_TIME: Micros = Micros::from_secs(60);

/// How long a bound pod may have no container status before it closes its site to its controller.
pub(super) const LONGEST_SILENCE: Micros = Micros::from_secs(15);

/// Bounds by site, and bound pods without a container status.
#[derive(Debug, Default)]
pub(super) struct FullClouds {
    sites: BTreeMap<usize, BTreeMap<Arc<Bound>, Witnesses>>,
    /// Bound pods without a container status, and until when that is accepted.
    silent: BTreeSet<(Moment, Arc<str>)>,
}

#[derive(Debug, Default)]
struct Witnesses {
    pods: u64,
    /// When the site is no longer full, if there is no witness left. The next publication sets it.
    until: Option<Moment>,
}

impl FullClouds {
    /// Counts a pod, or takes it back if `by` is -1.
    pub(super) fn change(&mut self, uid: &Arc<str>, entry: &PodEntry, by: i64) {
        if let Some(until) = entry.counted.silent_until {
            let silent = (until, Arc::clone(uid));
            self.silent.remove(&silent);
            self.silent.extend((by > 0).then_some(silent));
        }
        if let (Some(site), Start::Refused(Some(bound))) = (entry.counted.witness_at, &entry.start) {
            let bounds = self.sites.entry(site).or_default();
            let witnesses = bounds.entry(Arc::clone(bound)).or_default();
            witnesses.pods = witnesses.pods.saturating_add_signed(by);
            witnesses.until = None;
        }
    }

    /// Moves the bounds to the new indexes of the sites, and drops the bounds of removed sites. No pod is counted
    /// meanwhile.
    pub(super) fn move_sites(&mut self, places: &[Option<usize>]) {
        let sites = std::mem::take(&mut self.sites).into_iter();
        self.sites = sites
            .filter_map(|(site, bounds)| Some((places[site]?, bounds)))
            .collect();
    }

    /// The next time at which something changes without an event.
    pub(super) fn next_change(&self) -> Option<Moment> {
        let bounds = self.sites.values().flat_map(BTreeMap::values);
        let of_bounds = bounds.filter_map(|witnesses| witnesses.until);
        of_bounds.chain(self.silent.first().map(|(until, _)| *until)).min()
    }
}

/// The bounds that decisions compare with. None covers another, because a bound comes before all bounds that it covers.
fn published(bounds: &BTreeMap<Arc<Bound>, Witnesses>) -> Vec<FullFrom> {
    let mut published: Vec<FullFrom> = vec![];
    for (bound, witnesses) in bounds {
        let pods = witnesses.pods;
        if let Some(known) = published.iter_mut().find(|known| known.bound.covers(bound)) {
            known.pods += pods;
        } else if published.len() < MAX_BOUNDS {
            let bound = Arc::clone(bound);
            published.push(FullFrom { bound, pods });
        }
    }
    published
}

impl Cache {
    /// Handles a pod that has begun on its node: opens the site to its controller, and drops bounds without a witness that
    /// refuse its request.
    pub(super) fn observe_begun(&mut self, entry: &PodEntry) {
        let site = entry.node.and_then(|node| self.nodes.get(&node)?.site);
        self.queues.closed.runs(site, entry);
        if let Some(bounds) = site.and_then(|site| self.full_clouds.sites.get_mut(&site)) {
            bounds.retain(|bound, witnesses| witnesses.pods > 0 || !bound.refuses(&entry.request));
        }
    }

    /// Publishes what is known about the clusters behind clouds' nodes. Cost: a comparison of each bound with the published
    /// ones.
    pub(super) fn publish_full_clouds(&mut self, now: Moment) {
        while self.full_clouds.silent.first().is_some_and(|(until, _)| *until <= now) {
            let silent = self.full_clouds.silent.pop_first();
            let Some((uid, mut pod)) = silent.and_then(|(_, uid)| self.pods.remove_entry(&uid)) else {
                continue;
            };
            self.uncount(&uid, &pod);
            pod.start = Start::Refused(None);
            self.count(&uid, &mut pod);
            self.pods.insert(uid, pod);
        }
        let mut changed = vec![];
        for (&at, bounds) in &mut self.full_clouds.sites {
            bounds.retain(|_, witnesses| witnesses.until.is_none_or(|until| until > now));
            for witnesses in bounds.values_mut().filter(|witnesses| witnesses.pods == 0) {
                witnesses.until.get_or_insert(now.after(FULL_TIME));
            }
            let full = published(bounds);
            let old = &mut self.sites[at].site.full;
            let is_within =
                |one: &FullFrom, others: &[FullFrom]| others.iter().any(|other| other.bound.covers(&one.bound));
            let has_gained = old.iter().any(|one| !is_within(one, &full));
            changed.push((at, has_gained, full.iter().any(|one| !is_within(one, old))));
            if **old != full {
                *old = Arc::new(full);
            }
        }
        self.full_clouds.sites.retain(|_, bounds| !bounds.is_empty());
        changed
            .into_iter()
            .for_each(|(at, gained, lost)| self.site_changed(at, gained, lost));
    }
}
