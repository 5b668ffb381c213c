//! The scheduling state of a pod without a node: assumed on one, waiting for room, waiting for something that edgeward does not
//! evaluate, or for a scheduler that says nothing ("What a pod takes" in docs/live-view.md).
//!
//! kube-scheduler reports once that it found no node for a pod, and nothing more as long as the answer is the same. So such a
//! pod is judged by our own arithmetic. kube-scheduler has a reason to retry it, a chance, when it begins to fit a node of its
//! site, or when one that it fits is added or changed. One that fits, with such a chance since the report, will be retried soon;
//! one that fits without any waits for something else.
//!
//! kube-scheduler does not know our guesses: whether a pod begins to fit a node is judged by the pods that are bound or nominated
//! there alone.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::cache::Cache;
use crate::cluster::cache::entry::{Before, PodEntry, SchedulerKey, SchedulingState, Unbound};
use crate::cluster::cache::node_entry::{BoundPods, NodeEntry};
use crate::cluster::cache::request_sum::RequestSum;
use crate::cluster::cache::schedulers::Schedulers;
use crate::model::node::{AssumedPods, NodeId};
use crate::model::pod_record::Placement;
use crate::placement::score::best_node;
use crate::resources::Amounts;
use crate::units::{Micros, Moment};

/// How long after a chance a pod counts as assumed: kube-scheduler retries it after 10 seconds at most.
const RETRY_WINDOW: Micros = Micros::from_secs(15);

impl Unbound {
    /// A pod as it is now. `message` is a number for kube-scheduler's message of now. A list may show a message that is older than
    /// anything that we have seen: such a pod has its chance now.
    pub(super) fn new(
        placement: Arc<Placement>,
        site: Option<usize>,
        scheduler: Option<Arc<str>>,
        nominated: Option<NodeId>,
        message: Option<u64>,
        before: Before,
        now: Moment,
    ) -> Self {
        let (old, is_resized, reserved_node, is_listed) = match before {
            Before::Unseen {
                reserved_node,
                is_listed,
            } => (None, false, reserved_node, is_listed),
            Before::Seen { unbound, is_resized } => (unbound, is_resized, None, false),
        };
        let previous = old.as_ref().and_then(|old| old.unschedulable);
        let unschedulable =
            message.map(|message| previous.filter(|(same, _)| *same == message).unwrap_or((message, now)));
        let node = old.as_ref().map_or(reserved_node, |old| old.node);
        let state = match &old {
            _ if nominated.is_some() || reserved_node.is_some() => SchedulingState::Assumed,
            // Only nominated so far.
            Some(old) if old.state == SchedulingState::Assumed && old.node.is_none() => SchedulingState::New,
            Some(old) => old.state,
            None => SchedulingState::New,
        };
        // kube-scheduler retries a pod that was changed itself, as far as it can be.
        let is_other = |old: &Unbound| is_resized || old.placement != placement;
        let has_chance = (is_listed && message.is_some()) || old.as_deref().is_some_and(is_other);
        Self {
            site,
            scheduler,
            nominated,
            unschedulable,
            chance: match has_chance {
                true => Some(now),
                false => old.as_ref().and_then(|old| old.chance),
            },
            node,
            holder: old.as_ref().and_then(|old| old.holder),
            timer: None,
            state,
            placement,
        }
    }

    /// The node it charges.
    pub(super) fn charges(&self) -> Option<NodeId> {
        (self.state == SchedulingState::Assumed)
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

    /// Whether the node is one of its site's that could hold it if it were empty, Ready and not cordoned.
    fn is_held_by(&self, request: &Amounts, entry: &NodeEntry) -> bool {
        let node = &entry.node;
        entry.known
            && self.site.is_some()
            && self.site == entry.site
            && node.slots > 0
            && request.fits(&node.allocatable, &Amounts::default())
            && self.placement.constraints.allow(&node.name, &node.labels)
            && node.is_tolerated_when_healthy(self.placement.tolerations.iter())
    }

    /// The same beside these pods; `placeholders`, a part of them, are evicted for it.
    fn fits_beside(
        &self,
        pod: &PodEntry,
        entry: &NodeEntry,
        used: &RequestSum,
        placeholders: Option<&RequestSum>,
    ) -> bool {
        let fits = |used: &RequestSum| self.fits(&pod.request, entry, &used.amounts(), used.pods());
        fits(used) || placeholders.is_some_and(|placeholders| fits(&used.without(placeholders)))
    }
}

/// The pods without a node, and which must be checked before the next publication.
#[derive(Debug, Default)]
pub(super) struct UnboundPods {
    /// To be checked whatever has changed.
    due: BTreeSet<SchedulerKey>,
    /// Those that charge nothing.
    idle: BTreeSet<SchedulerKey>,
    /// Those of them that charged a node until another took their room, and that kube-scheduler has not spoken of; and until when
    /// they count.
    pub(super) displaced: BTreeMap<SchedulerKey, Moment>,
    /// Nodes that have more room than before, or changed.
    gained: BTreeSet<NodeId>,
    /// Nodes that have less.
    lost: BTreeSet<NodeId>,
    /// Nodes that were added, changed in anything but their pods, or are gone.
    changed: BTreeSet<NodeId>,
    /// When the window for a retry is over.
    timers: BTreeSet<(Moment, SchedulerKey)>,
    pub(super) schedulers: Schedulers,
}

impl UnboundPods {
    pub(super) fn schedule_check(&mut self, key: SchedulerKey) {
        self.due.insert(key);
    }

    pub(super) fn forget(&mut self, key: &SchedulerKey, unbound: &Unbound) {
        self.due.remove(key);
        self.idle.remove(key);
        self.displaced.remove(key);
        self.schedulers.remove_unreported(unbound.scheduler.as_ref(), key);
        if let Some(timer) = unbound.timer {
            self.timers.remove(&(timer, key.clone()));
        }
    }

    pub(super) fn node_gained(&mut self, id: NodeId) {
        self.gained.insert(id);
    }

    pub(super) fn node_lost(&mut self, id: NodeId) {
        self.lost.insert(id);
    }

    pub(super) fn node_changed(&mut self, id: NodeId) {
        self.changed.insert(id);
    }

    pub(super) fn next_change(&self) -> Option<Moment> {
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.schedulers.next_change()).min()
    }

    fn take_due_timers(&mut self, now: Moment) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.timers.pop_first() {
                self.due.insert(key);
            }
        }
    }
}

/// Where a node is searched for.
enum SearchScope<'g> {
    /// Wherever the pod may run.
    All,
    /// On the nodes that gained room or changed: the pod fits no other.
    Gained(&'g BTreeSet<NodeId>),
}

impl Cache {
    /// Brings every pod without a node to its state of now. Cost: proportional to the nodes of a site times the pods
    /// that changed, and to the nodes that gained room times the pods that wait.
    pub(super) fn update_unbound(&mut self, now: Moment) {
        self.unbound_pods.take_due_timers(now);
        let of_schedulers = self.unbound_pods.schedulers.judge(now);
        self.unbound_pods.due.extend(of_schedulers);
        self.give_chances(now);
        let changed = std::mem::take(&mut self.unbound_pods.changed);
        let idle = self.unbound_pods.idle.iter();
        let of_nodes: Vec<_> = idle
            .filter(|key| self.may_change_holder(key, &changed))
            .cloned()
            .collect();
        self.unbound_pods.due.extend(of_nodes);
        self.update_due(now);
        self.unbound_pods.schedulers.settle(now);
    }

    /// Brings pods to their state of now, and those for which others move.
    fn update_due(&mut self, now: Moment) {
        loop {
            let gained = std::mem::take(&mut self.unbound_pods.gained);
            let lost = std::mem::take(&mut self.unbound_pods.lost);
            for id in gained.union(&lost) {
                let displaced = self.displaced(*id);
                self.unbound_pods.due.extend(displaced);
            }
            let mut due: BTreeMap<_, _> = if gained.is_empty() && lost.is_empty() {
                BTreeMap::new()
            } else {
                let idle = self.unbound_pods.idle.iter();
                idle.filter_map(|key| Some((key.clone(), self.affected(key, &gained, &lost, now)?)))
                    .collect()
            };
            let anywhere = std::mem::take(&mut self.unbound_pods.due).into_iter();
            due.extend(anywhere.map(|key| (key, SearchScope::All)));
            if due.is_empty() {
                return;
            }
            for (key, scope) in due {
                self.update_unbound_pod(key, &scope, now);
            }
        }
    }

    /// Notes for each pod that was refused whether kube-scheduler has a reason to retry it since the last publication: it begins
    /// to fit a node, beside those that are bound or nominated there, or one that it fits was added or changed. Cost: two
    /// comparisons for each of these pods and each node that gained room or changed.
    fn give_chances(&mut self, now: Moment) {
        if self.unbound_pods.gained.is_empty() && self.unbound_pods.lost.is_empty() {
            return;
        }
        let UnboundPods {
            due,
            idle,
            gained,
            lost,
            changed,
            timers,
            ..
        } = &self.unbound_pods;
        let bound_pods = |id: &NodeId| Some((*id, self.nodes.get(id)?.bound_pods()));
        let touched: Vec<(NodeId, BoundPods)> = gained.union(lost).filter_map(bound_pods).collect();
        let begins_to_fit = |pod: &PodEntry, unbound: &Unbound, (id, bound_pods): &(NodeId, BoundPods)| {
            let Some(entry) = self.nodes.get(id).filter(|_| gained.contains(id)) else {
                return false;
            };
            let fits_beside = |bound_pods: &BoundPods| {
                let evicts = pod.evicts_placeholders(self.headroom_below);
                let share = if evicts { &bound_pods.others } else { &bound_pods.taken };
                unbound.fits(&pod.request, entry, &share.amounts, share.pods)
            };
            fits_beside(bound_pods) && (changed.contains(id) || !fits_beside(&entry.bound_when_checked))
        };
        let refused = |key: &&SchedulerKey| {
            let pod = self.unbound(&key.uid).filter(|(_, unbound)| unbound.is_refused());
            pod.is_some_and(|(pod, unbound)| touched.iter().any(|node| begins_to_fit(pod, unbound, node)))
        };
        let windows = timers.iter().map(|(_, key)| key);
        let keys: BTreeSet<_> = due.iter().chain(idle).chain(windows).filter(refused).cloned().collect();
        for key in &keys {
            if let Some(unbound) = self.pods.get_mut(&key.uid).and_then(|pod| pod.unbound.as_mut()) {
                unbound.chance = Some(now);
            }
        }
        // Their windows are longer now.
        let windows = self.unbound_pods.timers.iter().map(|(_, key)| key);
        let longer: Vec<_> = windows.filter(|key| keys.contains(*key)).cloned().collect();
        self.unbound_pods.due.extend(longer);
        for (id, bound_pods) in touched {
            if let Some(entry) = self.nodes.get_mut(&id) {
                entry.bound_when_checked = bound_pods;
            }
        }
    }

    /// Whether a pod that charges nothing may be held by another node, or by none, since these changed.
    fn may_change_holder(&self, key: &SchedulerKey, changed: &BTreeSet<NodeId>) -> bool {
        let Some((pod, unbound)) = self.unbound(&key.uid) else {
            return false;
        };
        unbound.state == SchedulingState::WaitsForRoom
            && match unbound.holder {
                Some(holder) => changed.contains(&holder),
                None => changed.iter().any(|id| self.is_held_by(*id, pod, unbound)),
            }
    }

    /// Pods assumed on a node that no longer takes all of them: the last ones in kube-scheduler's order.
    fn displaced(&self, id: NodeId) -> Vec<SchedulerKey> {
        let Some(entry) = self.nodes.get(&id).filter(|entry| !entry.assumed.is_empty()) else {
            return vec![];
        };
        let mut used = entry.used.clone();
        let assumed = || {
            let pods = entry.assumed.iter();
            pods.filter_map(|key| Some((key, self.pods.get(&key.uid)?)))
        };
        assumed().for_each(|(_, pod)| used.take(&pod.request));
        // Those that are assumed are not counted yet when it is the turn of a pod that evicts them.
        let placeholders = self.placeholders(entry, |_| false);
        let mut displaced = vec![];
        for (key, pod) in assumed() {
            let Some(unbound) = &pod.unbound else { continue };
            let evicted = self.evicted_by(pod, &placeholders);
            if unbound.fits_beside(pod, entry, &used, evicted) {
                used.add(&pod.request);
            } else {
                displaced.push(key.clone());
            }
        }
        displaced
    }

    /// Whether a pod that charges nothing may have another state since these nodes changed, and where to search then.
    fn affected<'g>(
        &self,
        key: &SchedulerKey,
        gained: &'g BTreeSet<NodeId>,
        lost: &BTreeSet<NodeId>,
        now: Moment,
    ) -> Option<SearchScope<'g>> {
        let (pod, unbound) = self.unbound(&key.uid)?;
        match unbound.node {
            Some(node) => {
                let is_affected = gained.contains(&node) || lost.contains(&node) || unbound.chance == Some(now);
                is_affected.then_some(SearchScope::All)
            }
            // It fitted none, and cannot fit others by now.
            None => gained
                .iter()
                .any(|id| self.takes(*id, pod, unbound))
                .then_some(SearchScope::Gained(gained)),
        }
    }

    /// Decides the state of one pod, and moves its charge.
    fn update_unbound_pod(&mut self, key: SchedulerKey, scope: &SearchScope<'_>, now: Moment) {
        let Some((pod, unbound)) = self.unbound(&key.uid) else {
            return;
        };
        let fits = match pod.charged {
            // Kept as long as it fits.
            Some(id) if self.takes_beside_itself(id, pod, unbound) => Some(id),
            _ => self.best_node(pod, unbound, scope),
        };
        let is_expected = self.unbound_pods.schedulers.is_expected(unbound.scheduler.as_ref());
        let (state, timer) = match (unbound.nominated, fits, unbound.unschedulable) {
            (Some(_), _, _) => (SchedulingState::Assumed, None),
            (None, None, None) => (SchedulingState::New, None),
            (None, Some(_), None) if is_expected => (SchedulingState::Assumed, None),
            (None, Some(_), None) => (SchedulingState::WaitsForScheduler, None),
            (None, None, Some(_)) => (SchedulingState::WaitsForRoom, None),
            (None, Some(_), Some((_, reported_at))) => match unbound.chance.map(|chance| chance.after(RETRY_WINDOW)) {
                Some(end) if unbound.chance >= Some(reported_at) && now < end => (SchedulingState::Assumed, Some(end)),
                _ => (SchedulingState::ClosesSite, None),
            },
        };
        let displaced_until = match pod.charged {
            Some(_) => Some(now.after(RETRY_WINDOW)),
            None => self.unbound_pods.displaced.get(&key).copied(),
        };
        let is_displaced = state == SchedulingState::New && !self.is_placeholder(pod);
        let displaced_until = displaced_until.filter(|until| is_displaced && now < *until);
        let timer = timer.or(displaced_until);
        let holder = match state {
            SchedulingState::WaitsForRoom => self.holder(pod, unbound),
            _ => None,
        };
        let is_unreported = fits.is_some() && unbound.is_unreported();
        let Some((uid, mut pod)) = self.pods.remove_entry(&key.uid) else {
            return;
        };
        let Some(unbound) = &mut pod.unbound else { return };
        self.unbound_pods.forget(&key, unbound);
        unbound.node = fits;
        unbound.holder = holder;
        unbound.state = state;
        unbound.timer = timer;
        let charges = unbound.charges();
        if let Some(until) = displaced_until {
            self.unbound_pods.displaced.insert(key.clone(), until);
        }
        if is_unreported {
            let schedulers = &mut self.unbound_pods.schedulers;
            schedulers.add_unreported(unbound.scheduler.as_ref(), key.clone());
        }
        if let Some(timer) = timer {
            self.unbound_pods.timers.insert((timer, key.clone()));
        }
        if charges.is_none() {
            self.unbound_pods.idle.insert(key);
        }
        self.uncount(&uid, &pod);
        if charges != pod.charged {
            self.discharge_pod(&uid, &pod);
            pod.charged = charges;
            self.record_first_charge(&uid, &mut pod, now);
            self.charge_pod(&uid, &pod);
        }
        self.count(&uid, &mut pod);
        self.pods.insert(uid, pod);
    }

    /// Pods of a site that are in the queue of a scheduler and fit no node there as we guess: each had room, and another came to it.
    /// It is on its way all the same, to a node that is charged with someone else. Not for longer than kube-scheduler takes to
    /// try a pod again: one of which it says nothing is not coming. Cost: a search for each at any site.
    pub(super) fn displaced_at(&self, site: usize) -> AssumedPods {
        let mut sum = AssumedPods::default();
        let displaced = self.unbound_pods.displaced.keys();
        let displaced = displaced.filter_map(|key| self.unbound(&key.uid));
        let schedulers = &self.unbound_pods.schedulers;
        for (pod, unbound) in displaced {
            if unbound.site == Some(site) && schedulers.is_expected(unbound.scheduler.as_ref()) {
                sum.add(&pod.request, 1);
            }
        }
        // They exist: nobody who is decided later comes before them.
        sum.largest = Amounts::default();
        sum
    }

    fn is_placeholder(&self, pod: &PodEntry) -> bool {
        pod.placeholder(self.headroom_below).is_some()
    }

    fn unbound(&self, uid: &Arc<str>) -> Option<(&PodEntry, &Unbound)> {
        let pod = self.pods.get(uid)?;
        Some((pod, pod.unbound.as_deref()?))
    }

    fn takes(&self, id: NodeId, pod: &PodEntry, unbound: &Unbound) -> bool {
        self.takes_freely(id, pod, unbound) || self.takes_by_headroom(id, pod, unbound)
    }

    fn takes_freely(&self, id: NodeId, pod: &PodEntry, unbound: &Unbound) -> bool {
        let fits = |entry: &NodeEntry| unbound.fits(&pod.request, entry, &entry.node.used, entry.node.pods);
        self.nodes.get(&id).is_some_and(fits)
    }

    /// Whether the pod fits the node once kube-scheduler has evicted the placeholders there.
    fn takes_by_headroom(&self, id: NodeId, pod: &PodEntry, unbound: &Unbound) -> bool {
        if !pod.evicts_placeholders(self.headroom_below) {
            return false;
        }
        let Some(entry) = self.nodes.get(&id).filter(|entry| !entry.placeholders.is_empty()) else {
            return false;
        };
        let placeholders = self.placeholders(entry, |_| true);
        let evicted = self.evicted_by(pod, &placeholders);
        evicted.is_some() && unbound.fits_beside(pod, entry, &entry.used, evicted)
    }

    fn takes_beside_itself(&self, id: NodeId, pod: &PodEntry, unbound: &Unbound) -> bool {
        self.nodes.get(&id).is_some_and(|entry| {
            let mut used = entry.used.clone();
            used.take(&pod.request);
            let placeholders = self.placeholders(entry, |_| true);
            unbound.fits_beside(pod, entry, &used, self.evicted_by(pod, &placeholders))
        })
    }

    fn is_held_by(&self, id: NodeId, pod: &PodEntry, unbound: &Unbound) -> bool {
        let holds = |entry: &NodeEntry| unbound.is_held_by(&pod.request, entry);
        self.nodes.get(&id).is_some_and(holds)
    }

    /// A node of its site that could hold the pod if it were empty: the one known already, if it still could. Cost: else a pass
    /// over the nodes of the site, until one is found.
    fn holder(&self, pod: &PodEntry, unbound: &Unbound) -> Option<NodeId> {
        let holds = |id: &NodeId| self.is_held_by(*id, pod, unbound);
        let known = unbound.holder.filter(holds);
        known.or_else(|| self.sites[unbound.site?].members.values().copied().find(holds))
    }

    /// The node that kube-scheduler would take, of those the pod fits; ties by name. It evicts nobody as long as there is another.
    fn best_node(&self, pod: &PodEntry, unbound: &Unbound, scope: &SearchScope<'_>) -> Option<NodeId> {
        let freely = self.best_node_of(pod, unbound, scope, |id| self.takes_freely(id, pod, unbound));
        freely.or_else(|| {
            let evicts = pod.evicts_placeholders(self.headroom_below);
            let by_headroom = |id| self.takes_by_headroom(id, pod, unbound);
            evicts
                .then(|| self.best_node_of(pod, unbound, scope, by_headroom))
                .flatten()
        })
    }

    fn best_node_of(
        &self,
        pod: &PodEntry,
        unbound: &Unbound,
        scope: &SearchScope<'_>,
        takes: impl Fn(NodeId) -> bool,
    ) -> Option<NodeId> {
        let taking = |id: &NodeId| {
            let node = &*self.nodes.get(id)?.node;
            takes(*id).then_some((node, Cow::Borrowed(&node.used)))
        };
        let best = match (scope, unbound.site) {
            (SearchScope::Gained(gained), _) => best_node(&pod.request, gained.iter().filter_map(taking)),
            (SearchScope::All, Some(site)) => {
                let members = self.sites[site].members.values();
                best_node(&pod.request, members.filter_map(taking))
            }
            (SearchScope::All, None) => best_node(&pod.request, self.nodes.keys().filter_map(taking)),
        };
        best.map(|node| node.id)
    }
}
