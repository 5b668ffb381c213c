//! What one decision sees of the fleet, at one revision.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::config::Config;
use crate::model::node::{Node, NodeId, Share};
use crate::model::owner::Owner;
use crate::model::queue_claims::{Claimed, QueueClaim, QueueClaims};
use crate::model::snapshot::{Free, Site, Snapshot};
use crate::model::workload::{QueueKey, Workload};
use crate::placement::headroom::Headroom;
use crate::placement::ledger::{Charge, Ledger};
use crate::placement::score::{SCORED, best_node};
use crate::resources::Amounts;

/// The snapshot together with everything reserved since, as it is to one pod. A verdict borrows from the snapshot alone, so
/// the ledger's lock need not outlive the decision.
#[derive(Debug, Clone)]
pub struct Room<'s, 'l> {
    /// All sites.
    pub snapshot: &'s Snapshot,
    /// What is reserved and not in that snapshot.
    pub ledger: &'l Ledger,
    /// What gated pods claim.
    claims: &'l QueueClaims,
    /// The pod's place in the queue: the claims of those behind it do not count.
    queue_key: QueueKey,
    /// Its namespace: what others reserved beyond their share does not count.
    namespace: &'l str,
    /// Queue claims of those ahead, by node, that do not count: these pods are being released, with a reservation each.
    released: Vec<(NodeId, &'l QueueClaim)>,
    /// Which placeholders make room for the pod.
    headroom: Option<Headroom>,
}

/// What is taken from a node.
#[derive(Debug)]
pub struct Taken<'n> {
    /// Of its resources.
    pub amounts: Cow<'n, Amounts>,
    /// Of its pod slots.
    pub pods: i64,
}

impl Taken<'_> {
    /// And so many pods that ask for this.
    pub(super) fn add(&mut self, request: &Amounts, pods: u32) {
        self.amounts.to_mut().add(request, pods);
        self.pods = self.pods.saturating_add(pods.into());
    }

    pub(super) fn add_share(&mut self, share: &Share) {
        self.amounts.to_mut().add(&share.amounts, 1);
        self.pods = self.pods.saturating_add(share.pods);
    }

    /// Less what so many pods take together.
    pub(super) fn remove(&mut self, amounts: &Amounts, pods: i64) {
        self.amounts = Cow::Owned(self.amounts.less(amounts));
        self.pods = self.pods.saturating_sub(pods);
    }

    /// How much of one resource; `pods` are slots.
    pub(super) fn get(&self, name: &str) -> i64 {
        match name {
            "pods" => self.pods,
            name => self.amounts.get(name),
        }
    }

    /// How much of one resource is left on the node.
    pub(super) fn free(&self, name: &str, node: &Node) -> i64 {
        let all = match name {
            "pods" => node.slots,
            name => node.allocatable.capacity(name),
        };
        all.saturating_sub(self.get(name))
    }
}

static NO_CLAIMS: LazyLock<QueueClaims> = LazyLock::new(QueueClaims::default);

impl<'s> Room<'s, 'static> {
    /// A snapshot since which nothing was reserved.
    pub fn of(snapshot: &'s Snapshot) -> Self {
        static NOTHING: LazyLock<Ledger> = LazyLock::new(Ledger::default);
        Self {
            snapshot,
            ledger: &NOTHING,
            claims: &NO_CLAIMS,
            queue_key: QueueKey::LAST,
            namespace: "",
            released: vec![],
            headroom: None,
        }
    }
}

impl<'s: 'l, 'l> Room<'s, 'l> {
    /// What a pod with this key finds, of this namespace. Cost: a search for each pod that is being released.
    pub fn new(snapshot: &'s Snapshot, ledger: &'l Ledger, queue_key: QueueKey, namespace: &'l str) -> Self {
        Self::beside(snapshot, ledger, &snapshot.queue_claims, queue_key, namespace)
    }
}

impl<'s, 'l> Room<'s, 'l> {
    /// The same beside other claims than those in the snapshot.
    pub fn beside(
        snapshot: &'s Snapshot,
        ledger: &'l Ledger,
        claims: &'l QueueClaims,
        queue_key: QueueKey,
        namespace: &'l str,
    ) -> Self {
        let released = ledger.releasing().filter_map(|uid| claims.of(uid));
        let mut released: Vec<_> = released.filter(|(_, claim)| claim.queue_key < queue_key).collect();
        released.sort_unstable_by_key(|(node, _)| *node);
        Self {
            snapshot,
            ledger,
            claims,
            queue_key,
            namespace,
            released,
            headroom: None,
        }
    }

    /// The same as it is to this pod: [`Headroom`] is room. Cost: a copy, where there is another than before.
    pub fn with_headroom(&self, workload: &Workload<'_>, config: &Config) -> Cow<'_, Self> {
        let headroom = Headroom::of(workload, self.snapshot, config);
        if headroom == self.headroom {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self {
            headroom,
            ..self.clone()
        })
    }
}

impl<'s> Room<'s, '_> {
    /// Whether `request` fits on `node` now: a free pod slot, and enough of every resource it asks for. Taints,
    /// labels and readiness are not the room's matter.
    pub fn fits(&self, request: &Amounts, node: &Node) -> bool {
        // Where most nodes are full, this is what a decision takes.
        let is_full = node.pods >= node.slots || !request.fits(&node.allocatable, &node.used);
        if is_full && self.headroom.is_none() {
            return false;
        }
        let used = self.used(node);
        fits_beside(request, node, &used)
            && self.claims.is_open(node.id, self.queue_key)
            && fits_beside(request, node, &self.with_promised(used, node))
    }

    /// Whether `request`, which fits on `node`, does so only because placeholders make room.
    pub fn needs_headroom(&self, request: &Amounts, node: &Node) -> bool {
        self.headroom_on(node).is_some() && !fits_beside(request, node, &self.with_promised(all_of(node), node))
    }

    /// Of nodes on which `request` fits, the one that kube-scheduler would take, of the first hundred; of equals, the first
    /// by name. It preempts nobody as long as there is another node. Cost: a score for each.
    pub fn best_node<'n>(&self, request: &Amounts, fitting: &[&'n Node]) -> Option<&'n Node> {
        let taken = |node: &'n Node| (node, self.taken(node).amounts);
        let free = fitting.iter().filter(|node| !self.needs_headroom(request, node));
        best_node(request, free.take(SCORED).copied().map(taken))
            .or_else(|| best_node(request, fitting.iter().take(SCORED).copied().map(taken)))
    }

    /// What placeholders on `node` take that make room for the pod. Cost: nothing where there are none.
    pub fn headroom_on(&self, node: &Node) -> Option<Share> {
        self.headroom.and_then(|headroom| headroom.on(node))
    }

    /// Which placeholders make room for the pod.
    pub(super) fn headroom(&self) -> Option<Headroom> {
        self.headroom
    }

    /// Whether `request` would fit on one of these nodes if nothing were claimed.
    pub(super) fn is_claimed<'n>(&self, request: &Amounts, mut nodes: impl Iterator<Item = &'n Node>) -> bool {
        let unclaimed = Self {
            claims: &NO_CLAIMS,
            released: vec![],
            ..*self
        };
        !self.claims.is_empty() && nodes.any(|node| unclaimed.fits(request, node))
    }

    /// The topology domains of `site` that this request keeps apart from: labels of nodes that have pods with an equal term, or are promised
    /// to some. Cost: a pass over the nodes for each term that is not of the hostname.
    pub(super) fn domains_apart<'n>(&self, request: &'n Amounts, site: &'n Site) -> Vec<(&'n str, &'n str)> {
        let mut domains = vec![];
        for (apart, _) in &request.apart {
            let Some(key) = apart.topology_key.as_deref() else {
                continue;
            };
            let occupied = site
                .nodes()
                .filter(|node| self.taken(node).amounts.pods_apart(apart) > 0);
            domains.extend(occupied.filter_map(|node| Some((key, node.labels.get(key)?))));
        }
        domains
    }

    /// What is reserved on `node`, for this pod to find, for pods that the snapshot does not show. Cost: a search if anything is
    /// reserved at all.
    pub fn charges(&self, node: &Node) -> impl Iterator<Item = Charge<'_>> {
        self.ledger.charges(node.id, self.snapshot.revision, self.namespace)
    }

    /// What gated pods ahead claim on `node`. Cost: two searches if anything is claimed; a copy where one of these pods is being
    /// released.
    pub fn claimed_ahead(&self, node: &Node) -> Option<Cow<'_, Claimed>> {
        let ahead = self.claims.on(node.id, self.queue_key)?;
        let from = self.released.partition_point(|(id, _)| *id < node.id);
        let released = self.released[from..].iter().take_while(|(id, _)| *id == node.id);
        Some(without(ahead, released.map(|(_, claim)| *claim)))
    }

    /// What is asked for by pods that have room reserved or claimed at `site` and are not in the snapshot. Cost: a pass over the
    /// reservations.
    fn promised(&self, site: &Site) -> Amounts {
        let mut promised = Amounts::default();
        for charge in self
            .ledger
            .reserved(site.name(), self.snapshot.revision, self.namespace)
        {
            promised.add(charge.amount, charge.times);
        }
        if let Some(ahead) = self.claims.at(site.name(), self.queue_key) {
            let released = self.released.iter().map(|(_, claim)| *claim);
            let of_site = released.filter(|claim| *claim.site == *site.name());
            promised.add(&without(ahead, of_site).coming, 1);
        }
        promised
    }

    /// What pods take from `node` that do not make room for this one. Cost: a copy, where some do.
    pub(super) fn used<'n>(&self, node: &'n Node) -> Taken<'n> {
        let mut used = all_of(node);
        if let Some(headroom) = self.headroom_on(node) {
            used.remove(&headroom.amounts, headroom.pods);
        }
        used
    }

    /// What these pods, reservations and claims take from `node`. Cost: a search; copies only where something is reserved, or
    /// placeholders make room.
    pub fn taken<'n>(&self, node: &'n Node) -> Taken<'n> {
        self.with_promised(self.used(node), node)
    }

    /// So much, and what reservations and claims take from `node`.
    fn with_promised<'n>(&self, mut taken: Taken<'n>, node: &Node) -> Taken<'n> {
        for charge in self.charges(node) {
            taken.add(charge.amount, charge.times);
        }
        if let Some(ahead) = self.claimed_ahead(node) {
            taken.add_share(&ahead.taken);
        }
        taken
    }

    /// What is free at `site` as a whole by measurement, less what is reserved there. Cost: a pass over the reservations, where
    /// something was measured.
    pub fn free(&self, site: &Site) -> Free {
        if site.free == Free::default() {
            return site.free;
        }
        let promised = self.promised(site);
        Free {
            cpu: site.free.cpu.map(|cpu| cpu - promised.cpu),
            memory: site.free.memory.map(|memory| memory - promised.memory),
        }
    }

    /// How many pods of this one's controller are at `site` or are to be, where that is counted. Cost: a search, and a pass over
    /// the reservations.
    pub(super) fn pods_of_controller(&self, workload: &Workload<'_>, site: &Site) -> u64 {
        let Some(uid) = workload.controller.as_deref() else {
            return 0;
        };
        let there = site.pods_of.get(&workload.namespace, uid).copied().unwrap_or(0);
        let owner = Owner::new(&workload.namespace, Some(uid));
        let coming = self.ledger.coming(site.name(), self.snapshot.revision);
        there + coming.filter(|reservation| reservation.owner == owner).count() as u64
    }

    /// The sites with pods that this one must run with, or to which such are to come. Cost: a comparison with each set of labels in
    /// the namespaces of its affinity, and with each reservation.
    pub(super) fn homes(&self, workload: &Workload<'_>) -> Vec<&'s Site> {
        let Some(first) = workload.near.first() else {
            return vec![];
        };
        let selects = |namespace: &str, labels: &str| workload.near.iter().all(|term| term.selects(namespace, labels));
        let is_home = |site: &&Site| {
            let mut coming = self.ledger.coming(site.name(), self.snapshot.revision);
            let mut there = first.namespaces.iter();
            there.any(|namespace| site.labelled.of(namespace).any(|labels| selects(namespace, labels)))
                || coming.any(|reservation| selects(reservation.owner.namespace(), &reservation.labels))
        };
        self.snapshot.sites.iter().filter(is_home).collect()
    }
}

/// Whether `request` fits on `node` beside so much: a free pod slot, and enough of every resource it asks for.
pub(super) fn fits_beside(request: &Amounts, node: &Node, taken: &Taken<'_>) -> bool {
    taken.pods < node.slots && request.fits(&node.allocatable, &taken.amounts)
}

/// What all pods take from `node`.
pub(super) fn all_of(node: &Node) -> Taken<'_> {
    Taken {
        amounts: Cow::Borrowed(&node.used),
        pods: node.pods,
    }
}

fn without<'c>(all: &'c Claimed, claims: impl Iterator<Item = &'c QueueClaim>) -> Cow<'c, Claimed> {
    claims.fold(Cow::Borrowed(all), |mut rest, claim| {
        rest.to_mut().take(claim);
        rest
    })
}
