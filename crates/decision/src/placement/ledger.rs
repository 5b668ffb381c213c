//! Reservations: room for pods that are decided but not in the snapshot yet. kube-scheduler's cache treats the pods that it
//! assumes likewise: it confirms, forgets or expires them.
//!
//! A reservation ends in one of three ways. It is confirmed when its pod is seen, forgotten when no pod will come, and
//! expires when no pod comes in time. A confirmed reservation is marked with the first revision that shows the pod. It then
//! counts only for reviews that read an older one. So exactly one of a pod and its reservation counts.
//!
//! A user can ask for a decision without creating the pod. So an unconfirmed reservation keeps room from other namespaces
//! only within half of the free room. Beyond the half, it counts only for its own namespace.
//!
//! One [`Ledger`] lives under one lock. A review loads the snapshot, decides and reserves while it holds the lock. The
//! engine confirms reservations before it publishes a snapshot, and drops them afterwards.

mod assumed_volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::decision_id::DecisionId;
use crate::model::group::Membership;
use crate::model::slo::Class;
use crate::model::snapshot::{Site, Snapshot};
use crate::model::workload::Workload;
use crate::placement::room::{all_of, fits_beside};
use crate::placement::score::best_node;
use crate::recent::Recent;
pub use assumed_volumes::AssumedVolumes;
use edgeward_kube::node::{Node, NodeId, Share};
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Micros, Moment};

/// Room that is reserved for one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The id of the decision, which the pod carries in an annotation.
    pub id: DecisionId,
    /// Namespace of the pod.
    pub namespace: Box<str>,
    /// Uid of the pod's controller. A pod can state any text; one that is too long counts as none.
    pub controller: Option<Box<str>>,
    /// The site on which the pod is placed.
    pub site: Box<str>,
    /// The charged node, which kube-scheduler would pick.
    pub node: NodeId,
    /// The pod's effective request. One pod slot is reserved too.
    pub amount: Amounts,
    /// The pod's labels.
    pub labels: Arc<str>,
    /// The pod's group.
    pub membership: Option<Arc<Membership>>,
    /// The pod's `spec.priority`.
    pub priority: i32,
    /// The uid of the gated pod that is being released; `None` for a pod that is being created.
    pub releases: Option<Arc<str>>,
    /// Whether kube-scheduler asked. It offers no room twice, whichever replica answers.
    pub is_for_scheduler: bool,
}

/// Maximum length in bytes of a uid with its revision. A uid from the API server has 36 bytes.
const MAX_UID_BYTES: usize = 81;

impl Reservation {
    /// Reserves room on a node of a site for a pod that is being created.
    pub fn new(id: DecisionId, workload: &Workload<'_>, site: &str, node: NodeId) -> Self {
        let controller = workload.controller.as_deref();
        Self {
            id,
            namespace: (*workload.namespace).into(),
            controller: controller.filter(|uid| uid.len() <= MAX_UID_BYTES).map(Into::into),
            site: site.into(),
            node,
            amount: workload.request.clone(),
            labels: Arc::clone(&workload.labels),
            membership: workload.membership().cloned(),
            priority: workload.priority,
            releases: None,
            is_for_scheduler: workload.unpatchable,
        }
    }
}

fn trial(site: &str, workload: &Workload<'_>) -> Option<(Box<str>, Box<str>, Class)> {
    let class = workload.intent.as_ref()?.slo.class;
    Some((site.into(), (*workload.namespace).into(), class))
}

/// A reservation for a pod that the snapshot does not show, and how many times its request and pod slot are charged.
pub type Charge<'l> = (&'l Reservation, u32);

/// The open reservations. Two ledgers are equal after the same calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ledger {
    ttl: Micros,
    /// The number of replicas that decide besides this one.
    other_replicas: u32,
    nodes: BTreeMap<NodeId, Vec<Entry>>,
    /// Gated pods that are being released, by uid, with the id of each reservation.
    releases: BTreeMap<Arc<str>, DecisionId>,
    /// The number of times that reserved room became free since the start.
    freed: u64,
    /// The number of reservations that have expired since the start.
    expired: u64,
    /// Sites of pods whose volumes are still to be made.
    pub assumed_volumes: AssumedVolumes,
    /// Namespaces and classes of which a pod was sent to a site to find out how fast it is now.
    trials: Recent<(Box<str>, Box<str>, Class), (), 600, 4_096>,
}

/// A reservation that is not counted, and may be put back.
#[derive(Debug)]
pub struct Aside(Entry);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    reservation: Reservation,
    since: Moment,
    /// Whether its namespace reserves more than half of what is free at the site. False for a release, because its pod exists.
    is_beyond_half: bool,
    /// The first revision that shows the pod; `None` until the pod is seen.
    shown_in: Option<u64>,
}

impl Entry {
    fn is_of(&self, namespace: &str) -> bool {
        *self.reservation.namespace == *namespace
    }

    /// Whether this is the unconfirmed reservation with this id.
    fn is_open(&self, id: DecisionId) -> bool {
        self.reservation.id == id && self.shown_in.is_none()
    }
}

impl Ledger {
    /// An empty ledger. Reservations expire after `ttl` unless they are confirmed; with a `ttl` of zero, none is made. It
    /// counts one replica until [`Ledger::set_replicas`] is called.
    pub fn new(ttl: Micros) -> Self {
        Self { ttl, ..Self::default() }
    }

    /// Sets how long reservations last, including open ones. With zero, no more are made.
    pub fn set_ttl(&mut self, ttl: Micros) {
        self.ttl = ttl;
    }

    /// Sets the number of replicas that decide, this one included; zero counts as one. An unconfirmed reservation is
    /// charged once for each replica, because the others may be reserving the same room.
    pub fn set_replicas(&mut self, ready: u32) {
        let before = std::mem::replace(&mut self.other_replicas, ready.saturating_sub(1));
        self.freed += u64::from(self.other_replicas < before && self.open() > 0);
    }

    /// Records that this pod is sent to the site to find out how fast it is now. No other pod of its namespace and class is for
    /// ten minutes.
    pub fn record_trial(&mut self, site: &str, workload: &Workload<'_>, now: Moment) {
        if let Some(key) = trial(site, workload) {
            self.trials.insert(key, (), now);
        }
    }

    /// Whether a pod of the same namespace and class was sent to the site within ten minutes to find out how fast it is.
    pub(super) fn has_tried(&self, site: &str, workload: &Workload<'_>, now: Moment) -> bool {
        trial(site, workload).is_some_and(|key| self.trials.get(&key, now).is_some())
    }

    /// The number of replicas that decide, this one included.
    pub(super) fn replicas(&self) -> u32 {
        self.other_replicas.saturating_add(1)
    }

    /// Reserves the room, as of `since`. Returns false and reserves nothing while a reservation with this id is
    /// unconfirmed. `is_within_half` is called with everything that the namespace would keep from others at the site, this
    /// reservation included. It is not called for a release, because that pod exists. Cost: a pass over the open
    /// reservations.
    pub fn reserve(
        &mut self,
        mut reservation: Reservation,
        since: Moment,
        is_within_half: impl FnOnce(&Share) -> bool,
    ) -> bool {
        if self.ttl == Micros(0) || self.open_entry(reservation.id).is_some() {
            return false;
        }
        reservation.amount.forget_zeros();
        let is_beyond_half = match &reservation.releases {
            Some(uid) => {
                self.releases.insert(Arc::clone(uid), reservation.id);
                false
            }
            None => !is_within_half(&self.kept_with(&reservation)),
        };
        let entry = Entry {
            reservation,
            since,
            is_beyond_half,
            shown_in: None,
        };
        self.nodes.entry(entry.reservation.node).or_default().push(entry);
        true
    }

    /// Forgets a reservation because its pod is reviewed again or will not come. Returns the time from which it counted.
    /// `None` if no unconfirmed reservation has this id and namespace.
    pub fn forget(&mut self, id: DecisionId, namespace: &str) -> Option<Moment> {
        self.open_entry(id).filter(|entry| entry.is_of(namespace))?;
        self.freed += 1;
        Some(self.take_unconfirmed(id)?.since)
    }

    /// Takes out the reservation of a pod about which kube-scheduler asks again.
    pub fn set_aside(&mut self, id: DecisionId, namespace: &str) -> Option<Aside> {
        let is_its = |entry: &&Entry| entry.is_of(namespace) && entry.reservation.is_for_scheduler;
        self.open_entry(id).filter(is_its)?;
        self.take_unconfirmed(id).map(Aside)
    }

    /// Puts back the reservation of a pod whose new decision was not given.
    pub fn put_back(&mut self, Aside(entry): Aside) {
        self.nodes.entry(entry.reservation.node).or_default().push(entry);
    }

    /// Drops the reservation of a pod that was decided again. Its room is free unless a new one took it.
    pub fn replace(&mut self, Aside(entry): Aside) {
        let new = self.open_entry(entry.reservation.id);
        let is_same =
            |new: &Entry| (&new.reservation, new.is_beyond_half) == (&entry.reservation, entry.is_beyond_half);
        self.freed += u64::from(!new.is_some_and(is_same));
    }

    /// Confirms the reservations of pods that the snapshot charges at the site of their reservation.
    pub fn confirm_charged(&mut self, snapshot: &Snapshot) {
        let charged = &snapshot.charged_by_unbound;
        if charged.is_empty() {
            return;
        }
        let open = self.nodes.values_mut().flatten();
        for entry in open.filter(|entry| entry.shown_in.is_none() && entry.reservation.is_for_scheduler) {
            let Some(node) = charged.get(&*entry.reservation.id.to_string()) else {
                continue;
            };
            let site = snapshot
                .sites
                .iter()
                .find(|site| site.name() == &*entry.reservation.site);
            if site.is_some_and(|site| site.nodes().any(|found| found.id == *node)) {
                entry.shown_in = Some(snapshot.revision);
                self.freed += u64::from(*node != entry.reservation.node);
            }
        }
    }

    /// Forgets the reservation of a gated pod that is gone, or that another decision has released. Cost: a pass over the
    /// reservations.
    pub fn forget_release(&mut self, uid: &str) {
        if let Some(id) = self.releases.get(uid).copied()
            && self.take_unconfirmed(id).is_some()
        {
            self.freed += 1;
        }
    }

    /// Confirms the reservation of a pod that is seen with this id, namespace and site, and returns its node. The snapshot
    /// of `revision`, which is not published yet, will be the first to show the pod. Only the first such pod has a
    /// reservation; any other gets `None`.
    pub fn confirm(&mut self, id: DecisionId, namespace: &str, site: &str, revision: u64) -> Option<NodeId> {
        let mut open = self.nodes.values_mut().flatten().filter(|entry| entry.is_open(id));
        let entry = open.find(|entry| entry.is_of(namespace) && *entry.reservation.site == *site)?;
        entry.shown_in = Some(revision);
        // From now on it is charged once, and no longer once for each replica. A pod that kube-scheduler placed may have another
        // node.
        self.freed += u64::from(self.other_replicas > 0 || entry.reservation.is_for_scheduler);
        Some(entry.reservation.node)
    }

    /// Confirms the reservation with this id and namespace at any site. It was made for kube-scheduler, so the pod's spec does not
    /// name the site. See [`Self::confirm`].
    pub fn confirm_anywhere(&mut self, id: DecisionId, namespace: &str, revision: u64) -> Option<NodeId> {
        let site = self.open_entry(id)?.reservation.site.clone();
        self.confirm(id, namespace, &site, revision)
    }

    /// Drops confirmed reservations whose pods the snapshot of this revision shows. That snapshot is published, so every
    /// review from now on reads it or a later one. Cost: a pass over the open reservations.
    pub fn published(&mut self, revision: u64) {
        let releases = &mut self.releases;
        self.nodes.retain(|_, on_node| {
            for shown in on_node.extract_if(.., |entry| entry.shown_in.is_some_and(|shown_in| shown_in <= revision)) {
                if let Some(uid) = &shown.reservation.releases {
                    releases.remove(uid);
                }
            }
            !on_node.is_empty()
        });
    }

    /// Moves unconfirmed reservations off nodes that other pods have filled, because the room would be promised twice. Each
    /// moves to the node of its site that kube-scheduler would pick, or stays if no node has room. Cost: a pass over the
    /// nodes and the open reservations, and for each move a pass over the nodes of the site.
    pub fn move_displaced(&mut self, snapshot: &Snapshot) {
        let mut displaced = vec![];
        for node in snapshot.sites.iter().flat_map(Site::nodes) {
            let Some(on_node) = self.nodes.get_mut(&node.id) else {
                continue;
            };
            let mut taken = all_of(node);
            let mut keeps = |entry: &Entry| {
                let amount = &entry.reservation.amount;
                let keeps = fits_beside(amount, node, &taken);
                taken.add(amount, u32::from(keeps));
                keeps
            };
            displaced.extend(on_node.extract_if(.., |entry| entry.shown_in.is_none() && !keeps(entry)));
        }
        for mut entry in displaced {
            let reservation = &mut entry.reservation;
            reservation.node = self.other_node(reservation, snapshot).unwrap_or(reservation.node);
            self.nodes.entry(reservation.node).or_default().push(entry);
        }
    }

    fn other_node<'s>(&self, reservation: &Reservation, snapshot: &'s Snapshot) -> Option<NodeId> {
        let site = snapshot.sites.iter().find(|site| site.name() == &*reservation.site)?;
        let with_reservations = |node: &'s Node| {
            let mut taken = all_of(node);
            let on_node = self.nodes.get(&node.id).into_iter().flatten();
            let open = on_node.filter(|entry| entry.shown_in.is_none());
            open.for_each(|entry| taken.add(&entry.reservation.amount, 1));
            (node, taken)
        };
        let nodes = site.usable_nodes().map(with_reservations);
        let with_room = nodes.filter(|(node, taken)| fits_beside(&reservation.amount, node, taken));
        let node = best_node(
            &reservation.amount,
            with_room.map(|(node, taken)| (node, taken.amounts)),
        );
        node.map(|node| node.id)
    }

    /// Drops reservations that were not confirmed in time, and returns their number. Cost: a pass over the open
    /// reservations.
    pub fn expire(&mut self, now: Moment) -> u64 {
        self.freed += u64::from(self.assumed_volumes.expire(now));
        let limit = now.before(self.ttl);
        let over = self.unconfirmed().filter(|entry| entry.since <= limit);
        let over: Vec<DecisionId> = over.map(|entry| entry.reservation.id).collect();
        let expired = over.len() as u64;
        for id in over {
            self.take_unconfirmed(id);
        }
        self.expired += expired;
        self.freed += expired;
        expired
    }

    /// The charges on `node` for a pod of this namespace, in a review that reads the snapshot of `revision`.
    ///
    /// An unconfirmed reservation is charged once for each replica, if it is of this namespace or within the half of its
    /// own. A release is charged once. A confirmed reservation is charged once if the snapshot does not show its pod yet.
    /// Cost: a search if anything is reserved.
    pub fn charges<'l>(&'l self, node: NodeId, revision: u64, namespace: &'l str) -> impl Iterator<Item = Charge<'l>> {
        let entries = self.nodes.get(&node).into_iter().flatten();
        entries.filter_map(move |entry| self.charge(entry, revision, namespace))
    }

    /// The charges on all nodes of a site, counted as in [`Self::charges`]. Cost: a pass over the open reservations.
    pub fn reserved<'l>(
        &'l self,
        site: &'l str,
        revision: u64,
        namespace: &'l str,
    ) -> impl Iterator<Item = Charge<'l>> {
        self.entries_at(site)
            .filter_map(move |entry| self.charge(entry, revision, namespace))
    }

    /// The charges of all namespaces at a site, also beyond their half. Cost: a pass over the open reservations.
    pub fn reserved_by_all<'l>(&'l self, site: &'l str, revision: u64) -> impl Iterator<Item = Charge<'l>> {
        self.entries_at(site)
            .filter_map(move |entry| self.charge(entry, revision, &entry.reservation.namespace))
    }

    /// The reservations at a site whose pods the snapshot of `revision` does not show. Cost: a pass over the open reservations.
    pub fn coming(&self, site: &str, revision: u64) -> impl Iterator<Item = &Reservation> {
        let is_hidden = move |entry: &&Entry| entry.shown_in.is_none_or(|shown_in| shown_in > revision);
        self.entries_at(site).filter(is_hidden).map(|entry| &entry.reservation)
    }

    /// Whether the gated pod of this uid is being released. It then has a reservation, and its queue claim does not count.
    /// Cost: a search.
    pub fn releases(&self, uid: &str) -> bool {
        self.releases.contains_key(uid)
    }

    /// The number of times that reserved room became free since the start, because a reservation was forgotten, expired, or
    /// is charged fewer times.
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// The number of reservations that have expired since the start.
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// When the next unconfirmed reservation or assumed volume expires.
    pub fn next_expiry(&self) -> Option<Moment> {
        let oldest = self.unconfirmed().map(|entry| entry.since).min();
        let of_reservations = oldest.map(|since| since.after(self.ttl));
        let of_volumes = self.assumed_volumes.next_expiry();
        [of_reservations, of_volumes].into_iter().flatten().min()
    }

    /// The number of unconfirmed reservations.
    pub fn open(&self) -> usize {
        self.unconfirmed().count()
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.nodes.values().flatten()
    }

    fn entries_at(&self, site: &str) -> impl Iterator<Item = &Entry> {
        self.entries().filter(move |entry| *entry.reservation.site == *site)
    }

    fn unconfirmed(&self) -> impl Iterator<Item = &Entry> {
        self.entries().filter(|entry| entry.shown_in.is_none())
    }

    /// What the namespace would keep from others at the site if this reservation were within the half.
    /// Everything is charged once for each replica, and once if kube-scheduler asked.
    fn kept_with(&self, reservation: &Reservation) -> Share {
        let namespace = &reservation.namespace;
        let is_in_half = |entry: &&Entry| !entry.is_beyond_half && entry.reservation.releases.is_none();
        let is_kept = |entry: &&Entry| entry.is_of(namespace) && entry.reservation.site == reservation.site;
        let mut kept = Share::default();
        let others = self.unconfirmed().filter(is_in_half).filter(is_kept);
        let others = others.map(|entry| &entry.reservation);
        for reservation in others.chain([reservation]) {
            let times = if reservation.is_for_scheduler {
                1
            } else {
                self.replicas()
            };
            kept.amounts.add(&reservation.amount, times);
            kept.pods = kept.pods.saturating_add(times.into());
        }
        kept
    }

    fn charge<'l>(&self, entry: &'l Entry, revision: u64, namespace: &str) -> Option<Charge<'l>> {
        let times = match entry.shown_in {
            None if entry.is_beyond_half && !entry.is_of(namespace) => return None,
            // Other replicas count the pod's queue claim for as long as they see it gated.
            None if entry.reservation.releases.is_some() || entry.reservation.is_for_scheduler => 1,
            None => self.replicas(),
            Some(shown_in) if shown_in > revision => 1,
            Some(_) => return None,
        };
        Some((&entry.reservation, times))
    }

    /// The unconfirmed reservation with this id.
    fn open_entry(&self, id: DecisionId) -> Option<&Entry> {
        self.entries().find(|entry| entry.is_open(id))
    }

    /// Removes and returns the unconfirmed reservation with this id.
    fn take_unconfirmed(&mut self, id: DecisionId) -> Option<Entry> {
        let open = |on_node: &Vec<Entry>| on_node.iter().position(|entry| entry.is_open(id));
        let (node, at) = self
            .nodes
            .iter()
            .find_map(|(node, on_node)| Some((*node, open(on_node)?)))?;
        let on_node = self.nodes.get_mut(&node)?;
        let entry = on_node.swap_remove(at);
        if on_node.is_empty() {
            self.nodes.remove(&node);
        }
        if let Some(uid) = &entry.reservation.releases {
            self.releases.remove(uid);
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests;
