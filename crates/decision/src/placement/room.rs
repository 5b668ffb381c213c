//! The fleet as one decision sees it, at one revision.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use crate::config::Config;
use crate::model::link::Bandwidth;
use crate::model::queue_claims::{QueueClaim, QueueClaims};
use crate::model::report::Shapes;
use crate::model::scorer::Scores;
use crate::model::snapshot::{Free, Site, Snapshot};
use crate::model::workload::{QueueKey, Workload};
use crate::placement::features::CloudScores;
use crate::placement::filters::group::Peer;
use crate::placement::ledger::{Charge, Ledger, Reservation};
use crate::placement::score::{SCORED, best_node};
use edgeward_kube::node::{Node, Placeholder, Share};
use edgeward_kube::resources::{Amounts, Traffic};
use edgeward_kube::units::Micros;

/// The snapshot together with everything reserved or claimed since, as one pod finds it. A verdict borrows only from the
/// snapshot, so the ledger's lock need not outlive the decision.
#[derive(Debug, Clone, Copy)]
pub struct Room<'s, 'l> {
    /// The snapshot with all sites.
    pub snapshot: &'s Snapshot,
    /// The reservations. The snapshot may show the pods of some already.
    pub ledger: &'l Ledger,
    /// The queue claims of gated pods.
    claims: &'l QueueClaims,
    /// The pod's place in the queue. Claims of pods behind it do not count.
    queue_key: QueueKey,
    /// The pod's namespace. Reservations of other namespaces beyond their half do not count.
    namespace: &'l str,
    /// The placeholders that make room for the pod.
    pub(super) headroom: Option<Headroom>,
    /// The site where the release plan places the pod with its group.
    pub(super) only: Option<&'l str>,
    /// The sites with nodes, none of which kube-scheduler offers to the pod.
    pub(super) not_offered: &'l [&'l str],
    /// Whether a replica decides about a pod that is being created. Others may do so at the same time.
    pub(super) is_of_arrival: bool,
    /// Scores of the clouds by the learned scorer, in the order of the snapshot.
    pub(super) cloud_scores: Option<&'l Scores>,
}

/// Resources and pod slots that are taken from a node.
#[derive(Debug)]
pub struct Taken<'n> {
    /// The resources, by name.
    pub amounts: Cow<'n, Amounts>,
    /// The pod slots.
    pub pods: i64,
}

impl Taken<'_> {
    /// Adds `pods` pods with this request each.
    pub(super) fn add(&mut self, request: &Amounts, pods: u32) {
        self.amounts.to_mut().add(request, pods);
        self.pods = self.pods.saturating_add(pods.into());
    }

    /// Subtracts these amounts and `pods` pod slots.
    pub(super) fn remove(&mut self, amounts: &Amounts, pods: i64) {
        self.amounts = Cow::Owned(self.amounts.less(amounts));
        self.pods = self.pods.saturating_sub(pods);
    }

    /// The amount taken of one resource; `pods` means pod slots.
    pub(super) fn get(&self, name: &str) -> i64 {
        match name {
            "pods" => self.pods,
            name => self.amounts.get(name),
        }
    }

    /// The amount of one resource that is left on the node.
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
    /// Room in a snapshot without reservations and queue claims.
    pub fn of(snapshot: &'s Snapshot) -> Self {
        static NOTHING: LazyLock<Ledger> = LazyLock::new(Ledger::default);
        Self::beside(snapshot, &NOTHING, &NO_CLAIMS, QueueKey::LAST, "")
    }
}

impl<'s: 'l, 'l> Room<'s, 'l> {
    /// Room for a pod with this place in the queue and this namespace.
    pub fn new(snapshot: &'s Snapshot, ledger: &'l Ledger, queue_key: QueueKey, namespace: &'l str) -> Self {
        Self::beside(snapshot, ledger, &snapshot.queue_claims, queue_key, namespace)
    }
}

impl<'s, 'l> Room<'s, 'l> {
    /// Room as [`Room::new`] returns it, with other queue claims than those of the snapshot.
    pub fn beside(
        snapshot: &'s Snapshot,
        ledger: &'l Ledger,
        claims: &'l QueueClaims,
        queue_key: QueueKey,
        namespace: &'l str,
    ) -> Self {
        Self {
            snapshot,
            ledger,
            claims,
            queue_key,
            namespace,
            headroom: None,
            only: None,
            not_offered: &[],
            is_of_arrival: false,
            cloud_scores: None,
        }
    }

    /// Room at this site only.
    pub fn only_at(self, site: Option<&'l str>) -> Self {
        Self { only: site, ..self }
    }

    /// Room for a pod that kube-scheduler is placing, to which it offers no node of these sites.
    pub fn without_offer(self, sites: &'l [&'l str]) -> Self {
        Self {
            not_offered: sites,
            ..self
        }
    }

    /// Room for a pod with these scores of the clouds. They may come from an earlier snapshot. If that had other clouds, they are
    /// ignored, and `sitePolicy` ranks clouds.
    pub fn with_scores(self, scores: Option<&'l CloudScores>) -> Self {
        let scores = scores.filter(|scores| scores.is_of(self.snapshot));
        Self {
            cloud_scores: scores.map(|scores| &scores.scores),
            ..self
        }
    }

    /// Room for a pod that is being created.
    pub fn of_arrival(self) -> Self {
        Self {
            is_of_arrival: true,
            ..self
        }
    }

    /// Room for this workload, in which [`Headroom`] is free.
    pub fn with_headroom(self, workload: &Workload<'_>, config: &Config) -> Self {
        let headroom = Headroom::of(workload, self.snapshot, config);
        Self { headroom, ..self }
    }
}

impl<'s> Room<'s, '_> {
    /// Whether `request` fits on `node` now: a free pod slot, and enough of every requested resource. Does not check
    /// taints, labels or readiness.
    pub fn fits(&self, request: &Amounts, node: &Node) -> bool {
        // If most nodes are full, a decision spends its time here.
        let is_full = node.charges.pods >= node.slots || !request.fits(&node.allocatable, &node.charges.used);
        if is_full && self.headroom.is_none() {
            return false;
        }
        let used = self.used(node);
        fits_beside(request, node, &used)
            && self.claims.is_open(node.id, self.queue_key)
            && fits_beside(request, node, &self.with_promised(used, node))
    }

    /// Whether `request`, which fits on `node`, fits only because placeholders make room.
    pub fn needs_headroom(&self, request: &Amounts, node: &Node) -> bool {
        self.headroom_on(node).is_some() && !fits_beside(request, node, &self.with_promised(all_of(node), node))
    }

    /// The node that kube-scheduler would pick among nodes on which `request` fits; ties go to the first by name. Only the
    /// first [`SCORED`] nodes are scored. A node where placeholders must be evicted is picked only if there is no other.
    /// Cost: one score per node.
    pub fn best_node<'n>(&self, request: &Amounts, fitting: &[&'n Node]) -> Option<&'n Node> {
        let taken = |node: &'n Node| (node, self.taken(node).amounts);
        let free = fitting.iter().filter(|node| !self.needs_headroom(request, node));
        best_node(request, free.take(SCORED).copied().map(taken))
            .or_else(|| best_node(request, fitting.iter().take(SCORED).copied().map(taken)))
    }

    /// The share of `node` that placeholders take and the pod may use. Cost: nothing if there are none.
    pub fn headroom_on(&self, node: &Node) -> Option<Share> {
        self.headroom.and_then(|headroom| headroom.on(node))
    }

    /// Whether `request` would fit on one of these nodes if there were no queue claims.
    pub(super) fn is_claimed<'n>(&self, request: &Amounts, mut nodes: impl Iterator<Item = &'n Node>) -> bool {
        let unclaimed = Self {
            claims: &NO_CLAIMS,
            ..*self
        };
        !self.claims.is_empty() && nodes.any(|node| unclaimed.fits(request, node))
    }

    /// The topology domains of `site` that the request's anti-affinity excludes, as node labels. They have pods with an
    /// equal term, or are promised to such pods. Cost: a pass over the nodes for each term with a key other than the
    /// hostname.
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

    /// The reservations on `node` that count for this pod and that the snapshot does not show. Cost: a search if anything
    /// is reserved.
    pub fn charges(&self, node: &Node) -> impl Iterator<Item = Charge<'_>> {
        self.ledger.charges(node.id, self.snapshot.revision, self.namespace)
    }

    /// The claims on `node` of gated pods ahead of this one. Cost: a search if anything is claimed.
    pub fn claimed_ahead(&self, node: &Node) -> impl Iterator<Item = &QueueClaim> {
        self.claims.on(node.id).filter(|claim| self.is_ahead(claim))
    }

    /// Whether the claim is of a pod ahead of this one. A pod that is being released has a reservation instead.
    fn is_ahead(&self, claim: &QueueClaim) -> bool {
        claim.queue_key < self.queue_key && !self.ledger.releases(&claim.uid)
    }

    /// Requests of pods outside the snapshot that have room reserved at `site`, or claimed there for a release. Cost: a
    /// pass over the reservations and the claims.
    fn promised(&self, site: &Site) -> Amounts {
        let mut promised = Amounts::default();
        let reserved = self
            .ledger
            .reserved(site.name(), self.snapshot.revision, self.namespace);
        reserved.for_each(|(reservation, times)| promised.add(&reservation.amount, times));
        self.coming(site).for_each(|claim| promised.add(&claim.amount, 1));
        promised
    }

    /// The claims at `site` of gated pods ahead that are about to be released.
    fn coming<'a>(&'a self, site: &'a Site) -> impl Iterator<Item = &'a QueueClaim> {
        let here = self.claims.iter().filter(|claim| *claim.site == *site.name());
        here.filter(|claim| claim.has_room && self.is_ahead(claim))
    }

    /// Resources and pod slots that pods take from `node`, without placeholders that make room for this pod. Cost: a copy
    /// if there are such placeholders.
    pub(super) fn used<'n>(&self, node: &'n Node) -> Taken<'n> {
        let mut used = all_of(node);
        if let Some(headroom) = self.headroom_on(node) {
            used.remove(&headroom.amounts, headroom.pods);
        }
        used
    }

    /// Resources and pod slots that pods, reservations and queue claims take from `node`, as this pod finds it. Cost: a
    /// search. It copies only if something is reserved or claimed, or placeholders make room.
    pub fn taken<'n>(&self, node: &'n Node) -> Taken<'n> {
        self.with_promised(self.used(node), node)
    }

    /// Adds what reservations and queue claims take from `node`.
    fn with_promised<'n>(&self, mut taken: Taken<'n>, node: &Node) -> Taken<'n> {
        for (reservation, times) in self.charges(node) {
            taken.add(&reservation.amount, times);
        }
        for claim in self.claimed_ahead(node) {
            taken.add(&claim.amount, 1);
        }
        taken
    }

    /// The measured free capacity of `site` as a whole, less what is reserved there. Cost: a pass over the reservations if
    /// it is measured.
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

    /// The room that the cluster behind `site` reports, less what is reserved and claimed there. `None` without a fresh report.
    /// Cost: a pass over the reservations and the claims, and over the shapes for each of them.
    pub fn reported(&self, site: &Site) -> Option<Shapes> {
        let mut room = site.report.as_ref()?.room.clone();
        // The half of a namespace is that of the virtual nodes, which may promise more. So reservations count for all namespaces.
        let reserved = self.ledger.reserved_by_all(site.name(), self.snapshot.revision);
        reserved.for_each(|(reservation, times)| room.take(&reservation.amount, times));
        self.coming(site).for_each(|claim| room.take(&claim.amount, 1));
        Some(room)
    }

    /// Whether the links of `site` have less bandwidth left than a pod with this request states.
    pub fn lacks_bandwidth(&self, request: &Amounts, site: &Site) -> bool {
        request.bandwidth.exceeds(self.bandwidth_left(request.bandwidth, site))
    }

    /// The number of replicas that may each place a pod here before they see those of the others. The leader alone places gated
    /// pods.
    pub(super) fn replicas(&self) -> u32 {
        if self.is_of_arrival { self.ledger.replicas() } else { 1 }
    }

    /// The traffic that the links of `site` have left, at most the largest number where nothing is asked for or the bandwidth is
    /// unknown. Cost: nothing if nothing is asked for, else a pass over its nodes, the reservations and the claims.
    pub(super) fn bandwidth_left(&self, asked: Traffic, site: &Site) -> Traffic {
        let bits =
            |link: Option<Bandwidth>, asked: i64| link.filter(|_| asked > 0).map(|Bandwidth(bits)| bits.cast_signed());
        let [up, down] = [bits(site.uplink, asked.egress), bits(site.downlink, asked.ingress)];
        if up.is_none() && down.is_none() {
            return Traffic {
                egress: i64::MAX,
                ingress: i64::MAX,
            };
        }
        // kube-scheduler does not know links, so reservations count for all namespaces, and claims also while they wait.
        let mut taken = Amounts::default();
        let reserved = self.ledger.reserved_by_all(site.name(), self.snapshot.revision);
        reserved.for_each(|(reservation, times)| taken.add(&reservation.amount, times));
        let ahead = self
            .claims
            .iter()
            .filter(|claim| *claim.site == *site.name() && self.is_ahead(claim));
        ahead.for_each(|claim| taken.add(&claim.amount, 1));
        site.nodes().for_each(|node| taken.add(&node.charges.used, 1));
        let left = |all: Option<i64>, taken: i64| all.map_or(i64::MAX, |all| all.saturating_sub(taken));
        Traffic {
            egress: left(up, taken.bandwidth.egress),
            ingress: left(down, taken.bandwidth.ingress),
        }
    }

    /// The number of pods of this pod's controller that are at `site` or have reservations there. Zero if they are not
    /// counted. Cost: a search, and a pass over the reservations.
    pub(super) fn pods_of_controller(&self, workload: &Workload<'_>, site: &Site) -> u64 {
        let Some(uid) = workload.controller.as_deref() else {
            return 0;
        };
        let there = site.pods_of.get(&workload.namespace, uid).copied().unwrap_or(0);
        let coming = self.ledger.coming(site.name(), self.snapshot.revision);
        let is_sibling = |reservation: &&Reservation| {
            reservation.controller.as_deref() == Some(uid) && *reservation.namespace == *workload.namespace
        };
        there + coming.filter(is_sibling).count() as u64
    }

    /// The live pods of the pod's group: pods at sites, pods with reservations, and gated pods that are about to be released.
    /// Cost: a few searches, and a pass over the reservations and claims, if the pod has a group.
    pub(super) fn peers(&self, workload: &Workload<'_>) -> Vec<Peer<'s>> {
        let Some(own) = workload.membership() else {
            return vec![];
        };
        let mut peers = vec![];
        for site in &self.snapshot.sites {
            let there = site.members.of(&workload.namespace, &own.group).map(|(peer, _)| peer);
            let reserved = self.ledger.coming(site.name(), self.snapshot.revision);
            let reserved = reserved.filter(|reservation| *reservation.namespace == *workload.namespace);
            let reserved = reserved.filter_map(|reservation| reservation.membership.as_ref());
            let claimed = self
                .claims
                .iter()
                .filter(|claim| claim.has_room && *claim.site == *site.name());
            let claimed = claimed.filter_map(|claim| claim.membership.as_ref());
            let claimed = claimed.filter(|(namespace, _)| **namespace == *workload.namespace);
            let coming = reserved.chain(claimed.map(|(_, peer)| peer));
            let here: BTreeSet<_> = there.chain(coming.filter(|peer| peer.group == own.group)).collect();
            peers.extend(here.into_iter().map(|peer| (site, Arc::clone(peer))));
        }
        peers
    }

    /// The sites that have pods, or reservations for pods, that this pod's required affinity selects. Cost: a comparison
    /// with each set of labels in the namespaces of the affinity, and with each reservation.
    pub(super) fn homes(&self, workload: &Workload<'_>) -> Vec<&'s Site> {
        let Some(first) = workload.near.first() else {
            return vec![];
        };
        let selects = |namespace: &str, labels: &str| workload.near.iter().all(|term| term.selects(namespace, labels));
        let is_home = |site: &&Site| {
            let mut coming = self.ledger.coming(site.name(), self.snapshot.revision);
            let mut there = first.namespaces.iter();
            there.any(|namespace| site.labelled.of(namespace).any(|labels| selects(namespace, labels)))
                || coming.any(|reservation| selects(&reservation.namespace, &reservation.labels))
        };
        self.snapshot.sites.iter().filter(is_home).collect()
    }
}

/// Headroom is room that placeholder pods keep free for other pods ("Headroom" in docs/guide/decide.md). kube-scheduler
/// evicts placeholders for a pod of higher priority that fits nowhere else. This selects the placeholders that make room
/// for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headroom {
    /// Selects placeholders with a lower `spec.priority` than this.
    below: i32,
    /// Selects placeholders whose termination grace period is at most this.
    grace: Micros,
}

impl Headroom {
    /// Selects the placeholders that make room for this pod; `None` if none can. They must be gone within the time that the
    /// pod may wait for terminating pods.
    pub fn of(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config) -> Option<Self> {
        if !snapshot.has_placeholders {
            return None;
        }
        let class = workload.intent.as_ref()?.slo.class;
        let below = config.headroom_below.0;
        (workload.may_preempt && workload.priority >= below).then(|| Self {
            below,
            grace: config.gating.wait_for_terminating[class],
        })
    }

    /// Whether this placeholder makes room for the pod.
    pub fn covers(self, placeholder: Placeholder) -> bool {
        placeholder.priority < self.below && placeholder.grace <= self.grace
    }

    /// The share of `node` that the selected placeholders take; `None` if there are none, which costs nothing to find out.
    pub fn on(self, node: &Node) -> Option<Share> {
        let mut covered = node.charges.placeholders.iter().filter(|(kind, _)| self.covers(*kind));
        let (_, first) = covered.next()?;
        Some(covered.fold(first.clone(), |mut sum, (_, share)| {
            sum.add(share);
            sum
        }))
    }
}

/// Whether `request` fits on `node` if `taken` is in use: a free pod slot, and enough of every requested resource.
pub(super) fn fits_beside(request: &Amounts, node: &Node, taken: &Taken<'_>) -> bool {
    taken.pods < node.slots && request.fits(&node.allocatable, &taken.amounts)
}

/// Resources and pod slots that all pods take from `node`, placeholders included.
pub(super) fn all_of(node: &Node) -> Taken<'_> {
    Taken {
        amounts: Cow::Borrowed(&node.charges.used),
        pods: node.charges.pods,
    }
}
