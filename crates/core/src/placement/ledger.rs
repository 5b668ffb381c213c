//! Reservations: room for pods that were decided and that the snapshot does not show yet. kube-scheduler's cache does the same
//! with pods that it assumes: they are confirmed, forgotten, or expire.
//!
//! A reservation ends in one of three ways. Its pod is seen: it is confirmed, marked with the revision whose snapshot
//! shows the pod first, and from then on counts only for reviews that read an older one. No pod will come: it is forgotten.
//! Or none comes in time: it expires. So a pod and its reservation never count together, and never neither.
//!
//! Who asks need not create what was asked about. So what nobody has confirmed keeps room from other namespaces only within a
//! share of what is free; beyond it, it counts for its own namespace alone.
//!
//! One [`Ledger`] lives under one lock. A review loads the snapshot, decides and reserves inside it; the one who
//! publishes snapshots marks before and drops after.

mod assumed_volumes;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::decision_id::DecisionId;
use crate::model::node::{Node, NodeId, Share};
use crate::model::owner::Owner;
use crate::model::snapshot::{Site, Snapshot};
use crate::model::workload::Workload;
use crate::placement::room::{all_of, fits_beside};
use crate::placement::score::best_node;
use crate::resources::Amounts;
use crate::units::{Micros, Moment};
pub(crate) use assumed_volumes::AssumedVolumes;

/// Room reserved for one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The decision that reserved it; the pod carries it.
    pub id: DecisionId,
    /// Who creates the pod.
    pub owner: Owner,
    /// The site it was placed on.
    pub site: Box<str>,
    /// The node that is charged: the one kube-scheduler would take.
    pub node: NodeId,
    /// The pod's effective request. A pod slot comes with it.
    pub amount: Amounts,
    /// Its labels.
    pub labels: Arc<str>,
    /// The pod's `spec.priority`.
    pub priority: i32,
    /// The uid of the gated pod that is being released; `None` for one that is being created.
    pub releases: Option<Arc<str>>,
}

impl Reservation {
    /// Room for a pod that is being created, on a node of a site.
    pub fn new(id: DecisionId, workload: &Workload<'_>, site: &str, node: NodeId) -> Self {
        Self {
            id,
            owner: Owner::new(&workload.namespace, workload.controller.as_deref()),
            site: site.into(),
            node,
            amount: workload.request.clone(),
            labels: Arc::clone(&workload.labels),
            priority: workload.priority,
            releases: None,
        }
    }
}

/// What is taken from a node for one pod that the snapshot does not show there.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'l> {
    /// The pod's effective request.
    pub amount: &'l Amounts,
    /// How many times over, and so how many pod slots.
    pub times: u32,
    /// The pod's `spec.priority`.
    pub priority: i32,
}

/// The open reservations. Equal after equal calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ledger {
    ttl: Micros,
    replicas: u32,
    nodes: BTreeMap<NodeId, Vec<Entry>>,
    /// Where the unconfirmed ones are.
    unconfirmed: BTreeMap<DecisionId, NodeId>,
    /// The uids of gated pods that are being released, each with its reservation.
    releases: BTreeMap<Arc<str>, DecisionId>,
    /// How many times reservations gave room back so far.
    freed: u64,
    /// How many expired so far.
    expired: u64,
    /// Where pods were placed whose volumes are not made yet.
    pub(crate) assumed_volumes: AssumedVolumes,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    reservation: Reservation,
    since: Moment,
    /// Whether it is of a pod that need not come to be, and more than its namespace may keep from others by such.
    is_beyond_share: bool,
    /// The first revision that shows its pod; `None` until the pod is seen.
    shown_in: Option<u64>,
}

impl Entry {
    fn is_of(&self, namespace: &str) -> bool {
        self.reservation.owner.namespace() == namespace
    }

    /// Whether it is of a pod that need not come to be, and within the share of its namespace.
    fn is_in_share(&self) -> bool {
        self.shown_in.is_none() && !self.is_beyond_share && self.reservation.releases.is_none()
    }

    /// Whether it is this one, unconfirmed.
    fn is_open(&self, id: DecisionId) -> bool {
        self.reservation.id == id && self.shown_in.is_none()
    }
}

/// Reserves nothing.
impl Default for Ledger {
    fn default() -> Self {
        Self::new(Micros(0))
    }
}

impl Ledger {
    /// An empty ledger whose reservations expire after `ttl`, unless they are confirmed. With a `ttl` of zero nothing is
    /// ever reserved. We are the only replica until [`Ledger::set_replicas`] says otherwise.
    pub fn new(ttl: Micros) -> Self {
        Self {
            ttl,
            replicas: 1,
            nodes: BTreeMap::new(),
            unconfirmed: BTreeMap::new(),
            releases: BTreeMap::new(),
            freed: 0,
            expired: 0,
            assumed_volumes: AssumedVolumes::default(),
        }
    }

    /// How long reservations last from now on, also those that are open. With zero nothing is reserved any more.
    pub fn set_ttl(&mut self, ttl: Micros) {
        self.ttl = ttl;
    }

    /// How many replicas decide, ours included; zero counts as one. What we reserve and nobody has seen yet is charged
    /// so many times: the others may be reserving the same room.
    pub fn set_replicas(&mut self, ready: u32) {
        let before = std::mem::replace(&mut self.replicas, ready.max(1));
        self.freed += u64::from(self.replicas < before && !self.unconfirmed.is_empty());
    }

    /// Takes the room; gated as of `since`. False, and nothing is taken, while another one of this id is unconfirmed. `is_within_share`
    /// is asked about what this one's namespace keeps from others at the site if this one counts for them, too; the pod of a release
    /// is there, so nobody asks about it. Cost: a pass over the open reservations.
    pub fn reserve(
        &mut self,
        mut reservation: Reservation,
        since: Moment,
        is_within_share: impl FnOnce(&Share) -> bool,
    ) -> bool {
        if self.ttl == Micros(0) || self.unconfirmed.contains_key(&reservation.id) {
            return false;
        }
        reservation.amount.forget_zeros();
        self.unconfirmed.insert(reservation.id, reservation.node);
        let is_beyond_share = match &reservation.releases {
            Some(uid) => {
                self.releases.insert(Arc::clone(uid), reservation.id);
                false
            }
            None => !is_within_share(&self.kept_with(&reservation)),
        };
        let entry = Entry {
            reservation,
            since,
            is_beyond_share,
            shown_in: None,
        };
        self.nodes.entry(entry.reservation.node).or_default().push(entry);
        true
    }

    /// The pod is under review again, or will not come: its room is free. Returns the moment as of which it was gated. `None`, and
    /// nothing happens, if it has no unconfirmed reservation: the id and the namespace must be its own.
    pub fn forget(&mut self, id: DecisionId, namespace: &str) -> Option<Moment> {
        self.open_entry(id).filter(|entry| entry.is_of(namespace))?;
        self.freed += 1;
        Some(self.take_unconfirmed(id)?.since)
    }

    /// The gated pod of this uid is gone, or released by another decision than the one that reserved its room. Cost: a
    /// search.
    pub fn forget_release(&mut self, uid: &str) {
        if let Some(id) = self.releases.get(uid).copied()
            && self.take_unconfirmed(id).is_some()
        {
            self.freed += 1;
        }
    }

    /// A pod of this namespace and site that carries this id is seen, and the snapshot of `revision`, which is yet to be
    /// published, will be the first to show it. The first such pod gets the node that was charged for it; a second one, or
    /// one of another namespace or site, has no reservation.
    pub fn confirm(&mut self, id: DecisionId, namespace: &str, site: &str, revision: u64) -> Option<NodeId> {
        let node = *self.unconfirmed.get(&id)?;
        let is_its = |entry: &&Entry| entry.is_of(namespace) && *entry.reservation.site == *site;
        self.open_entry(id).filter(is_its)?;
        let mut on_node = self.nodes.get_mut(&node)?.iter_mut();
        on_node.find(|entry| entry.is_open(id))?.shown_in = Some(revision);
        // From now on it counts once, and for all.
        self.freed += u64::from(self.replicas > 1);
        self.unconfirmed.remove(&id);
        Some(node)
    }

    /// The snapshot of this revision is published: every review from now on reads it or a later one.
    /// Cost: a pass over the open reservations.
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

    /// Moves what nobody has confirmed from nodes that other pods have filled meanwhile to the nodes of the site that kube-scheduler would
    /// take instead, as far as they have room: else that room would be promised twice. Cost: a pass over the nodes and the open
    /// reservations, and for each that is moved one over the nodes of its site.
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
            self.unconfirmed.insert(reservation.id, reservation.node);
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

    /// Drops what nobody has confirmed in time, and returns how many those were. Cost: a pass over the open reservations.
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

    /// What takes from `node` as a pod of this namespace finds it in a review that reads the snapshot of `revision`: what nobody
    /// has confirmed, once for every replica, if it is of the same namespace or within the share of its own; and, once, what that
    /// snapshot does not show yet. Cost: a search if anything is reserved at all.
    pub fn charges<'l>(&'l self, node: NodeId, revision: u64, namespace: &'l str) -> impl Iterator<Item = Charge<'l>> {
        let entries = self.nodes.get(&node).into_iter().flatten();
        entries.filter_map(move |entry| self.charge(entry, revision, namespace))
    }

    /// What takes from all nodes of a site, as [`Self::charges`] counts it. Cost: a pass over the open reservations.
    pub fn reserved<'l>(
        &'l self,
        site: &'l str,
        revision: u64,
        namespace: &'l str,
    ) -> impl Iterator<Item = Charge<'l>> {
        let of_site = self.entries().filter(move |entry| *entry.reservation.site == *site);
        of_site.filter_map(move |entry| self.charge(entry, revision, namespace))
    }

    /// The reservations at a site whose pods the snapshot of `revision` does not show. Cost: a pass over the open reservations.
    pub fn coming(&self, site: &str, revision: u64) -> impl Iterator<Item = &Reservation> {
        let is_hidden = move |entry: &&Entry| entry.shown_in.is_none_or(|shown_in| shown_in > revision);
        let hidden = self.entries().filter(is_hidden).map(|entry| &entry.reservation);
        hidden.filter(move |reservation| *reservation.site == *site)
    }

    /// Whether the gated pod of this uid is being released: it has a reservation then, and no claim counts. Cost: a search.
    pub fn releases(&self, uid: &str) -> bool {
        self.releases.contains_key(uid)
    }

    /// The uids of all gated pods that are being released.
    pub fn releasing(&self) -> impl Iterator<Item = &str> {
        self.releases.keys().map(|uid| &**uid)
    }

    /// How many times room that was reserved became free since the start: a reservation came to nothing, or counts fewer times.
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// How many reservations nobody has confirmed in time since the start.
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// When the next reservation expires, unless it is confirmed, or where a pod was placed says no more where its volumes will be.
    pub fn next_expiry(&self) -> Option<Moment> {
        let oldest = self.unconfirmed().map(|entry| entry.since).min();
        let of_reservations = oldest.map(|since| since.after(self.ttl));
        let of_volumes = self.assumed_volumes.next_expiry();
        [of_reservations, of_volumes].into_iter().flatten().min()
    }

    /// How many reservations nobody has confirmed.
    pub fn open(&self) -> usize {
        self.unconfirmed.len()
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.nodes.values().flatten()
    }

    fn unconfirmed(&self) -> impl Iterator<Item = &Entry> {
        self.entries().filter(|entry| entry.shown_in.is_none())
    }

    /// What the namespace of this reservation would keep from others at its site if this one were within its share, too: once for
    /// every replica.
    fn kept_with(&self, reservation: &Reservation) -> Share {
        let namespace = reservation.owner.namespace();
        let is_kept = |entry: &&Entry| {
            entry.is_in_share() && entry.is_of(namespace) && entry.reservation.site == reservation.site
        };
        let mut kept = Share::default();
        let others = self.entries().filter(is_kept).map(|entry| &entry.reservation);
        for reservation in others.chain([reservation]) {
            kept.amounts.add(&reservation.amount, self.replicas);
            kept.pods = kept.pods.saturating_add(self.replicas.into());
        }
        kept
    }

    fn charge<'l>(&self, entry: &'l Entry, revision: u64, namespace: &str) -> Option<Charge<'l>> {
        let times = match entry.shown_in {
            None if entry.is_beyond_share && !entry.is_of(namespace) => return None,
            // Whoever else could reserve the room counts the claim of the pod, as long as it sees it gated.
            None if entry.reservation.releases.is_some() => 1,
            None => self.replicas,
            Some(shown_in) if shown_in > revision => 1,
            Some(_) => return None,
        };
        Some(Charge {
            amount: &entry.reservation.amount,
            times,
            priority: entry.reservation.priority,
        })
    }

    /// The one under this id that nobody has confirmed.
    fn open_entry(&self, id: DecisionId) -> Option<&Entry> {
        let on_node = self.nodes.get(self.unconfirmed.get(&id)?)?;
        on_node.iter().find(|entry| entry.is_open(id))
    }

    /// Takes out the one under this id that nobody has confirmed.
    fn take_unconfirmed(&mut self, id: DecisionId) -> Option<Entry> {
        let node = self.unconfirmed.remove(&id)?;
        let on_node = self.nodes.get_mut(&node)?;
        let at = on_node.iter().position(|entry| entry.is_open(id))?;
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
