//! What pods bound to nodes of clouds say of the room behind these ("Room behind virtual nodes" in docs/live-view.md).
//!
//! What a virtual node has is a promise. The scheduler of the cluster behind it knows better, and what it says of a pod comes
//! back in that pod's status: one that it has no room for is a witness, as long as it waits. From what it asks for on, the site
//! is full. Some time after the last witness for a bound is gone one pod may go again, to try.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::cache::Cache;
use crate::cluster::cache::entry::{PodEntry, RemoteState};
use crate::model::remote_room::{Bound, FullFrom, MAX_BOUNDS, Start};
use crate::units::{Micros, Moment};

/// How long after the last witness for a bound is gone one pod may try.
const WAIT_BEFORE_TRY: Micros = Micros::from_secs(60);

/// For how long a pod that tries keeps others from it. Anybody may create pods of which nothing is ever said.
const LONGEST_TRY: Micros = LONGEST_SILENCE;

/// For how long nothing may be said of the containers of a pod with a node, until it closes its site to its controller.
pub(super) const LONGEST_SILENCE: Micros = Micros::from_secs(15);

/// Pods that wait or begin in the clusters behind clouds' nodes.
#[derive(Debug, Default)]
pub(super) struct Witnesses {
    sites: BTreeMap<usize, SiteWitnesses>,
    /// Pods of which nothing is said yet, and until when that is nothing special.
    silent: BTreeSet<(Moment, Arc<str>)>,
}

#[derive(Debug, Default)]
struct SiteWitnesses {
    bounds: BTreeMap<Arc<Bound>, BoundState>,
    /// Pods that are on their way there, bound or not, and may find room.
    trying: BTreeSet<Arc<str>>,
    /// Whether what is published may be out of date.
    outdated: bool,
    /// When it will be.
    due: Option<Moment>,
}

#[derive(Debug, Default)]
struct BoundState {
    /// How many witnesses there are.
    pods: u64,
    /// Since when there is none; set when that is published.
    quiet_since: Option<Moment>,
    /// Whether one pod may try, by what was published last.
    is_half_open: bool,
    /// Since when one does.
    tried_since: Option<Moment>,
}

impl BoundState {
    /// Its time begins anew.
    fn close(&mut self) {
        *self = Self {
            pods: self.pods,
            ..Self::default()
        };
    }

    /// Whether one that `is_trying` keeps others from it: for so long, then another may, and the time begins anew.
    fn is_tried(&mut self, is_trying: bool, now: Moment) -> bool {
        if !is_trying {
            self.tried_since = None;
            return false;
        }
        let since = *self.tried_since.get_or_insert(now);
        let is_long = now.since(since) >= LONGEST_TRY;
        if is_long {
            self.tried_since = Some(now);
        }
        !is_long
    }
}

impl Witnesses {
    pub(super) fn count(&mut self, (site, state): (usize, RemoteState), uid: &Arc<str>, entry: &PodEntry) {
        let at = self.sites.entry(site).or_default();
        at.outdated |= !at.bounds.is_empty();
        match (state, &entry.start) {
            (RemoteState::Trying, _) => {
                at.trying.insert(Arc::clone(uid));
                self.silent
                    .extend(entry.silent_until.map(|until| (until, Arc::clone(uid))));
            }
            (RemoteState::Witness, Start::Refused(Some(bound))) => {
                at.outdated = true;
                let is_new = at.bounds.get(bound).is_none_or(|known| known.quiet_since.is_some());
                if is_new {
                    // Whoever tried has not found the room.
                    let quiet = at.bounds.iter_mut().filter(|(_, state)| state.pods == 0);
                    quiet
                        .filter(|(known, _)| known.covers(bound))
                        .for_each(|(_, state)| state.close());
                }
                at.bounds.entry(Arc::clone(bound)).or_default().pods += 1;
            }
            (RemoteState::Witness, _) => {}
        }
    }

    /// The reverse of [`Self::count`].
    pub(super) fn uncount(&mut self, (site, state): (usize, RemoteState), uid: &Arc<str>, entry: &PodEntry) {
        let Some(at) = self.sites.get_mut(&site) else { return };
        at.outdated |= !at.bounds.is_empty();
        match (state, &entry.start) {
            (RemoteState::Trying, _) => {
                at.trying.remove(uid);
                if let Some(until) = entry.silent_until {
                    self.silent.remove(&(until, Arc::clone(uid)));
                }
            }
            (RemoteState::Witness, Start::Refused(Some(bound))) => {
                if let Some(state) = at.bounds.get_mut(bound) {
                    state.pods -= 1;
                    state.close();
                }
            }
            (RemoteState::Witness, _) => {}
        }
    }

    /// A pod that asks for so much has begun there: whoever may try need not any more.
    fn begun(&mut self, site: usize, entry: &PodEntry) {
        if let Some(at) = self.sites.get_mut(&site) {
            let is_tried = |bound: &Bound, state: &BoundState| state.is_half_open && bound.refuses(&entry.request);
            at.bounds.retain(|bound, state| !is_tried(bound, state));
            at.outdated = true;
        }
    }

    /// When something changes by the mere passing of time.
    pub(super) fn next_change(&self) -> Option<Moment> {
        let of_bounds = self.sites.values().filter_map(|site| site.due);
        of_bounds.chain(self.silent.first().map(|(until, _)| *until)).min()
    }

    /// How many bounds are known.
    #[cfg(test)]
    pub(super) fn bounds(&self) -> usize {
        self.sites.values().map(|site| site.bounds.len()).sum()
    }

    /// The next pod that was silent for too long.
    fn pop_silent(&mut self, now: Moment) -> Option<Arc<str>> {
        self.silent.first().filter(|(until, _)| *until <= now)?;
        self.silent.pop_first().map(|(_, uid)| uid)
    }
}

impl SiteWitnesses {
    /// From where on the site is full now. Cost: a pass over the bounds, each compared with those that are published; and over
    /// the pods on their way for each where one may try.
    fn publish<'p>(&mut self, pod: impl Fn(&Arc<str>) -> Option<&'p PodEntry>, now: Moment) -> Vec<FullFrom> {
        let mut published: Vec<FullFrom> = vec![];
        for state in self.bounds.values_mut().filter(|state| state.pods == 0) {
            let since = *state.quiet_since.get_or_insert(now);
            state.is_half_open = now.since(since) >= WAIT_BEFORE_TRY;
        }
        // What nobody says any more keeps no place from what somebody says.
        let mut bounds: Vec<_> = self.bounds.iter_mut().collect();
        bounds.sort_by_key(|(_, state)| state.is_half_open);
        for (bound, state) in bounds {
            let dominates = |uid: &Arc<str>| pod(uid).is_some_and(|pod| bound.refuses(&pod.request));
            let is_tried = state.is_tried(state.is_half_open && self.trying.iter().any(dominates), now);
            let full = FullFrom {
                bound: Arc::clone(bound),
                pods: state.pods,
                may_try: state.is_half_open && !is_tried,
            };
            // One that covers another is before it.
            if let Some(known) = published.iter_mut().find(|known| known.covers(&full)) {
                known.pods += full.pods;
            } else if published.len() < MAX_BOUNDS {
                published.push(full);
            }
        }
        published.sort_by(|one, other| one.bound.cmp(&other.bound));
        // What is not published, and nobody says any more, need not be known.
        let is_published = |bound: &Arc<Bound>| published.iter().any(|full| full.bound == *bound);
        self.bounds
            .retain(|bound, state| !state.is_half_open || is_published(bound));
        let due = |state: &BoundState| match state.is_half_open {
            true => Some(state.tried_since?.after(LONGEST_TRY)),
            false => Some(state.quiet_since?.after(WAIT_BEFORE_TRY)),
        };
        self.due = self.bounds.values().filter_map(due).min();
        self.outdated = false;
        published
    }

    fn is_due(&self, now: Moment) -> bool {
        self.outdated || self.due.is_some_and(|due| due <= now)
    }
}

impl Cache {
    /// A pod is seen to have begun on its node since it was seen last.
    pub(super) fn observe_begun(&mut self, entry: &PodEntry) {
        let site = entry.node.and_then(|node| self.nodes.get(&node)?.site);
        if let Some(site) = site {
            self.witnesses.begun(site, entry);
        }
    }

    /// Brings what is known of the clusters behind clouds' nodes into their sites.
    pub(super) fn publish_witnesses(&mut self, now: Moment) {
        while let Some(uid) = self.witnesses.pop_silent(now) {
            let Some((uid, mut pod)) = self.pods.remove_entry(&uid) else {
                continue;
            };
            self.uncount(&uid, &pod);
            pod.is_silent_for_long = true;
            self.count(&uid, &mut pod);
            self.pods.insert(uid, pod);
        }
        let (mut gained, mut lost) = (vec![], vec![]);
        for (&at, site) in self.witnesses.sites.iter_mut().filter(|(_, site)| site.is_due(now)) {
            let full = site.publish(|uid| self.pods.get(uid).map(Box::as_ref), now);
            let published = &mut self.sites[at].site.full;
            if **published == full {
                continue;
            }
            let is_within = |one: &FullFrom, others: &[FullFrom]| others.iter().any(|other| other.covers(one));
            if published.iter().any(|old| !is_within(old, &full)) {
                gained.push(at);
            }
            if full.iter().any(|new| !is_within(new, published)) {
                lost.push(at);
            }
            *published = Arc::new(full);
        }
        gained.into_iter().for_each(|at| self.site_gained(at));
        lost.into_iter().for_each(|at| self.site_lost(at));
        let is_used = |site: &SiteWitnesses| !site.bounds.is_empty() || !site.trying.is_empty();
        self.witnesses.sites.retain(|_, site| is_used(site));
    }
}
