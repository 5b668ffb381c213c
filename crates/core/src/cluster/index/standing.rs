//! Where a pod without a node stands: on its way to one, waiting for room, or waiting for something that edgeward does
//! not evaluate (DESIGN section 5).
//!
//! kube-scheduler says once that it found no node for a pod, and then stays silent as long as the answer is the same. So
//! such a pod is read by our own arithmetic. Its last *chance* is when it last began to fit a node of its site, or when a
//! node there was added or changed. One that fits and had a chance since kube-scheduler's word will be tried again soon;
//! one that fits and had none waits for something else.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::index::entry::{Before, PodEntry, Rank, Standing, Unbound};
use crate::cluster::index::{Index, NodeEntry};
use crate::model::node::NodeId;
use crate::model::pod_record::Placement;
use crate::placement::score::best_node;
use crate::resources::Amounts;
use crate::units::{Micros, Moment};

/// How long after a chance a pod counts as on its way: kube-scheduler tries it again after 10 seconds at most.
const CHANCE: Micros = Micros::from_secs(15);

impl Unbound {
    /// The state of a pod as it is now. `word` is kube-scheduler's word of now; what was said before a pod is first seen
    /// counts as said before everything.
    pub(super) fn new(
        placement: Arc<Placement>,
        site: Option<usize>,
        nominated: Option<NodeId>,
        word: Option<u64>,
        before: Before,
        now: Moment,
    ) -> Self {
        let said_at = match before {
            Before::Unseen { .. } => Moment(i64::MIN),
            Before::Seen(_) => now,
        };
        let (old, inherited) = match before {
            Before::Unseen { inherited } => (None, inherited),
            Before::Seen(old) => (old, None),
        };
        let said_before = old.as_ref().and_then(|old| old.report);
        let report = word.map(|word| said_before.filter(|(same, _)| *same == word).unwrap_or((word, said_at)));
        let node = old.as_ref().map_or(inherited, |old| old.node);
        let standing = match &old {
            _ if nominated.is_some() || inherited.is_some() => Standing::OnItsWay,
            // Only nominated so far.
            Some(old) if old.standing == Standing::OnItsWay && old.node.is_none() => Standing::New,
            Some(old) => old.standing,
            None => Standing::New,
        };
        Self {
            placement,
            site,
            nominated,
            report,
            node,
            fits_since: old.as_ref().map_or(inherited.map(|_| now), |old| old.fits_since),
            settled_at: None,
            timer: None,
            standing,
        }
    }

    /// The node it charges.
    pub(super) fn charges(&self) -> Option<NodeId> {
        (self.standing == Standing::OnItsWay)
            .then_some(self.nominated.or(self.node))
            .flatten()
    }

    /// Whether the node is one of its site's that kube-scheduler's filters on resources, labels, taints and cordon allow,
    /// beside so much that is taken of it.
    fn fits(&self, request: &Amounts, entry: &NodeEntry, used: &Amounts, pods: i64) -> bool {
        let node = &entry.node;
        entry.known
            && (self.site.is_none() || self.site == entry.site)
            && pods < node.slots
            && request.fits(&node.allocatable, used)
            && node.admits(&self.placement.constraints, self.placement.tolerations.iter())
    }
}

/// The pods without a node, and what must be looked at before the next publication.
#[derive(Debug, Default)]
pub(super) struct Unsettled {
    /// To be looked at whatever has changed.
    due: BTreeSet<Rank>,
    /// Those that charge nothing.
    idle: BTreeSet<Rank>,
    /// Nodes that have more room than before, or changed.
    gained: BTreeSet<NodeId>,
    /// Nodes that have less.
    lost: BTreeSet<NodeId>,
    /// When a chance is over.
    timers: BTreeSet<(Moment, Rank)>,
}

impl Unsettled {
    pub(super) fn look_at(&mut self, rank: Rank) {
        self.due.insert(rank);
    }

    pub(super) fn forget(&mut self, rank: &Rank, unbound: &Unbound) {
        self.due.remove(rank);
        self.idle.remove(rank);
        if let Some(timer) = unbound.timer {
            self.timers.remove(&(timer, rank.clone()));
        }
    }

    pub(super) fn node_gained(&mut self, id: NodeId) {
        self.gained.insert(id);
    }

    pub(super) fn node_lost(&mut self, id: NodeId) {
        self.lost.insert(id);
    }

    pub(super) fn next_timer(&self) -> Option<Moment> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn take_due_timers(&mut self, now: Moment) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, rank)) = self.timers.pop_first() {
                self.due.insert(rank);
            }
        }
    }
}

/// Where a node is looked for.
enum Among<'g> {
    /// Wherever the pod may run.
    All,
    /// On the nodes that gained room or changed: the pod fits no other.
    Gained(&'g BTreeSet<NodeId>),
}

impl Index {
    /// Brings every pod without a node to where it stands now. Cost: proportional to the nodes of a site times the pods
    /// that changed, and to the nodes that gained room times the pods that wait.
    pub(super) fn settle(&mut self, now: Moment) {
        self.unsettled.take_due_timers(now);
        loop {
            let gained = std::mem::take(&mut self.unsettled.gained);
            let lost = std::mem::take(&mut self.unsettled.lost);
            for id in gained.union(&lost) {
                let displaced = self.displaced(*id);
                self.unsettled.due.extend(displaced);
            }
            let mut due: BTreeMap<_, _> = if gained.is_empty() && lost.is_empty() {
                BTreeMap::new()
            } else {
                let idle = self.unsettled.idle.iter();
                idle.filter_map(|rank| Some((rank.clone(), self.affected(rank, &gained, &lost)?)))
                    .collect()
            };
            let anywhere = std::mem::take(&mut self.unsettled.due).into_iter();
            due.extend(anywhere.map(|rank| (rank, Among::All)));
            if due.is_empty() {
                return;
            }
            for (rank, among) in due {
                self.settle_pod(rank, &among, now);
            }
        }
    }

    /// Pods on their way to a node that no longer takes all of them: those that stand last in line.
    fn displaced(&self, id: NodeId) -> Vec<Rank> {
        let Some(entry) = self.nodes.get(&id).filter(|entry| !entry.on_their_way.is_empty()) else {
            return vec![];
        };
        let mut used = entry.used.clone();
        let expected = || {
            let pods = entry.on_their_way.iter();
            pods.filter_map(|rank| Some((rank, self.pods.get(&rank.uid)?)))
        };
        expected().for_each(|(_, pod)| used.take(&pod.request));
        let mut displaced = vec![];
        for (rank, pod) in expected() {
            let Some(unbound) = &pod.unbound else { continue };
            if unbound.fits(&pod.request, entry, &used.amounts(), used.pods()) {
                used.add(&pod.request);
            } else {
                displaced.push(rank.clone());
            }
        }
        displaced
    }

    /// Whether a pod that charges nothing may stand elsewhere since these nodes changed, and where to look then.
    fn affected<'g>(&self, rank: &Rank, gained: &'g BTreeSet<NodeId>, lost: &BTreeSet<NodeId>) -> Option<Among<'g>> {
        let (pod, unbound) = self.unbound(&rank.uid)?;
        match unbound.node {
            Some(node) => {
                let is_affected =
                    gained.contains(&node) || lost.contains(&node) || self.changed(unbound.site) >= unbound.settled_at;
                is_affected.then_some(Among::All)
            }
            // It fitted none, and cannot fit others by now.
            None => gained
                .iter()
                .any(|id| self.takes(*id, pod, unbound))
                .then_some(Among::Gained(gained)),
        }
    }

    /// Decides where one pod stands, and moves its charge there.
    fn settle_pod(&mut self, rank: Rank, among: &Among<'_>, now: Moment) {
        let Some((pod, unbound)) = self.unbound(&rank.uid) else {
            return;
        };
        let fits = match pod.charged {
            // Kept as long as it fits.
            Some(id) if self.takes_beside_itself(id, pod, unbound) => Some(id),
            _ => self.best_node(pod, unbound, among),
        };
        // Room that another pod has, which is only tried again, is no news when that one's time is over.
        let fits_at_all = fits.is_some() || self.is_crowded_out(pod, unbound, among);
        let fits_since = unbound.fits_since.or(Some(now)).filter(|_| fits_at_all);
        let chance = fits_since.max(self.changed(unbound.site));
        let (standing, timer) = match (unbound.nominated, fits, unbound.report) {
            (Some(_), _, _) | (None, Some(_), None) => (Standing::OnItsWay, None),
            (None, None, None) => (Standing::New, None),
            (None, None, Some(_)) => (Standing::WaitsForRoom, None),
            (None, Some(_), Some((_, said_at))) => match chance.map(|chance| chance.after(CHANCE)) {
                Some(end) if chance >= Some(said_at) && now < end => (Standing::OnItsWay, Some(end)),
                _ => (Standing::Closes, None),
            },
        };
        let Some((uid, mut pod)) = self.pods.remove_entry(&rank.uid) else {
            return;
        };
        let Some(unbound) = &mut pod.unbound else { return };
        self.unsettled.forget(&rank, unbound);
        unbound.node = fits;
        unbound.fits_since = fits_since;
        unbound.settled_at = Some(now);
        unbound.standing = standing;
        unbound.timer = timer;
        let charges = unbound.charges();
        if let Some(timer) = timer {
            self.unsettled.timers.insert((timer, rank.clone()));
        }
        if charges.is_none() {
            self.unsettled.idle.insert(rank);
        }
        self.uncount(&pod);
        if charges != pod.charged {
            self.release(&uid, &pod);
            pod.charged = charges;
            self.begin(&uid, &mut pod, now);
            self.take(&uid, &pod);
        }
        self.count(&mut pod);
        self.pods.insert(uid, pod);
    }

    fn unbound(&self, uid: &Arc<str>) -> Option<(&PodEntry, &Unbound)> {
        let pod = self.pods.get(uid)?;
        Some((pod, pod.unbound.as_deref()?))
    }

    /// When a node of the site was last added or changed; of any site, for a pod of none.
    fn changed(&self, site: Option<usize>) -> Option<Moment> {
        match site {
            Some(site) => self.sites[site].changed,
            None => self.sites.iter().filter_map(|entry| entry.changed).max(),
        }
    }

    fn takes(&self, id: NodeId, pod: &PodEntry, unbound: &Unbound) -> bool {
        let fits = |entry: &NodeEntry| unbound.fits(&pod.request, entry, &entry.node.used, entry.node.pods);
        self.nodes.get(&id).is_some_and(fits)
    }

    fn takes_beside_itself(&self, id: NodeId, pod: &PodEntry, unbound: &Unbound) -> bool {
        self.nodes.get(&id).is_some_and(|entry| {
            let mut used = entry.used.clone();
            used.take(&pod.request);
            unbound.fits(&pod.request, entry, &used.amounts(), used.pods())
        })
    }

    /// Whether the pod would fit a node but for pods on their way there which kube-scheduler has refused before. Where
    /// nodes gained room, it is first looked for there.
    fn is_crowded_out(&self, pod: &PodEntry, unbound: &Unbound, among: &Among<'_>) -> bool {
        let refused = |rank: &Rank| {
            let (pod, unbound) = self.unbound(&rank.uid)?;
            unbound.report.is_some().then_some(&pod.request)
        };
        let is_crowded_out_of = |id: &NodeId| {
            let Some(entry) = self.nodes.get(id).filter(|entry| !entry.on_their_way.is_empty()) else {
                return false;
            };
            let mut used = entry.used.clone();
            let requests = entry.on_their_way.iter().filter_map(refused);
            requests.for_each(|request| used.take(request));
            unbound.fits(&pod.request, entry, &used.amounts(), used.pods())
        };
        let gained = match among {
            Among::All => None,
            Among::Gained(gained) => Some(gained.iter()),
        };
        gained.into_iter().flatten().chain(&self.guessed).any(is_crowded_out_of)
    }

    /// The node that kube-scheduler would take, of those the pod fits; ties by name.
    fn best_node(&self, pod: &PodEntry, unbound: &Unbound, among: &Among<'_>) -> Option<NodeId> {
        let taking = |id: &NodeId| {
            let node = &*self.nodes.get(id)?.node;
            self.takes(*id, pod, unbound)
                .then_some((node, Cow::Borrowed(&node.used)))
        };
        let best = match (among, unbound.site) {
            (Among::Gained(gained), _) => best_node(&pod.request, gained.iter().filter_map(taking)),
            (Among::All, Some(site)) => {
                let members = self.sites[site].members.values();
                best_node(&pod.request, members.filter_map(taking))
            }
            (Among::All, None) => best_node(&pod.request, self.nodes.keys().filter_map(taking)),
        };
        best.map(|node| node.id)
    }
}
