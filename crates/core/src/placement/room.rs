//! What one decision sees of the fleet, at one revision.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use crate::config::Config;
use crate::model::claims::{Claim, Claimed, Claims};
use crate::model::node::{AssumedPods, Node, NodeId, Share};
use crate::model::node_set::NodeSet;
use crate::model::nodes::Nodes;
use crate::model::snapshot::{Free, Site, Snapshot};
use crate::model::workload::{QueueKey, Workload};
use crate::placement::fitting::{CandidateNodes, Fitting};
use crate::placement::headroom::Headroom;
use crate::placement::ledger::{Charge, Ledger};
use crate::placement::score::{SCORED, Scorer, score};
use crate::resources::Amounts;
use crate::units::Micros;

/// The snapshot together with everything reserved since, as it is to one pod. A verdict borrows from the snapshot alone, so
/// the ledger's lock need not outlive the decision.
#[derive(Debug, Clone)]
pub struct Room<'s, 'l> {
    /// All sites.
    pub snapshot: &'s Snapshot,
    /// What is reserved and not in that snapshot.
    pub ledger: &'l Ledger,
    /// What held pods claim.
    claims: &'l Claims,
    /// The pod's place in the queue: the claims of those behind it do not count.
    queue_key: QueueKey,
    /// Its namespace: what others reserved beyond their share does not count.
    namespace: &'l str,
    /// Claims of those ahead, by node, that do not count: these pods are being released, with a reservation each.
    released: Vec<(NodeId, &'l Claim)>,
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

static NO_CLAIMS: LazyLock<Claims> = LazyLock::new(Claims::default);

impl<'s> Room<'s, 'static> {
    /// A snapshot since which nothing was reserved.
    pub fn of(snapshot: &'s Snapshot) -> Self {
        static NOTHING: Ledger = Ledger::new(Micros(0));
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
        Self::beside(snapshot, ledger, &snapshot.claims, queue_key, namespace)
    }
}

impl<'s, 'l> Room<'s, 'l> {
    /// The same beside other claims than those in the snapshot.
    pub fn beside(
        snapshot: &'s Snapshot,
        ledger: &'l Ledger,
        claims: &'l Claims,
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

impl Room<'_, '_> {
    /// Whether `request` fits on `node` now: a free pod slot, and enough of every resource it asks for. Taints,
    /// labels and readiness are not the room's matter.
    pub fn fits(&self, request: &Amounts, node: &Node) -> bool {
        Headroom::fits(self.headroom, request, node) && self.still_fits(request, node)
    }

    /// Of nodes on which `request` fits by the snapshot, those on which it fits beside what is reserved and claimed. Cost: a search
    /// for each from which something is reserved or claimed, for as many as the site has at most; and for each that is closed.
    pub(super) fn fitting<'n>(&self, request: &Amounts, candidates: &Arc<CandidateNodes<'n>>) -> Fitting<'n> {
        let Some(closed) = self.claims.closed(self.queue_key) else {
            return Fitting::none(candidates);
        };
        let mut fitting = Fitting::all(candidates);
        let scorer = Scorer::new(request);
        let (nodes, set) = (candidates.of_site(), candidates.set());
        let is_plain = request.scalars.is_empty() && self.headroom.is_none() && self.claims.is_empty();
        if is_plain && self.ledger.nodes() <= nodes.len() {
            let on_nodes = self.ledger.on_nodes(self.snapshot.revision, self.namespace);
            on_nodes.for_each(|(id, shares)| {
                if let Some(position) = nodes.position_in(set, id) {
                    fitting.update(position, plain_score(&scorer, request, &nodes[position], shares));
                }
            });
            return fitting;
        }
        let closed = closed.filter_map(|id| nodes.position_in(set, id));
        closed.for_each(|position| fitting.update(position, None));
        for (position, node, taken) in self.charged(nodes, set) {
            if self.claims.is_open(node.id, self.queue_key) {
                let score = || scorer.score(&node.allocatable, &taken.amounts);
                fitting.update(position, fits_beside(request, node, &taken).then(score));
            }
        }
        fitting
    }

    /// Those of a set of a site's nodes, each with its position, from which something is reserved or claimed, and what is taken from
    /// them. Cost: a search for each from which something is, for as many as the site has at most.
    pub(super) fn charged<'n>(
        &self,
        nodes: &'n Nodes,
        set: &NodeSet,
    ) -> impl Iterator<Item = (usize, &'n Node, Taken<'n>)> {
        let each = self.ledger.nodes() + self.claims.nodes().len() > nodes.len();
        let all = set.iter().take_while(move |_| each);
        let claimed = self.claims.nodes().take_while(move |_| !each);
        let claimed = claimed.filter_map(|id| nodes.position_in(set, id));
        let searched = all.chain(claimed).map(|position| (position, &*nodes[position]));
        let searched = searched.filter(|(_, node)| self.is_charged(node));
        let searched = searched.map(|(position, node)| (position, node, self.taken(node)));
        let on_nodes = self.ledger.on_nodes(self.snapshot.revision, self.namespace);
        let reserved = on_nodes.take_while(move |_| !each);
        let reserved = reserved.filter(|(id, _)| !self.claims.is_on(*id));
        let reserved = reserved.filter_map(|(id, shares)| {
            let position = nodes.position_in(set, id)?;
            let (node, mut shares) = (&*nodes[position], shares.peekable());
            shares.peek()?;
            Some((position, node, with_shares(self.used(node), shares)))
        });
        searched.chain(reserved)
    }

    fn still_fits(&self, request: &Amounts, node: &Node) -> bool {
        self.still_fits_beside(|| self.used(node), request, node)
    }

    /// The same beside so much that pods take.
    fn still_fits_beside<'n>(&self, used: impl FnOnce() -> Taken<'n>, request: &Amounts, node: &Node) -> bool {
        self.claims.is_open(node.id, self.queue_key)
            && (!self.is_charged(node) || fits_beside(request, node, &self.with_promised(used(), node)))
    }

    /// Whether `request`, which fits on `node`, does so only because placeholders make room. Cost: a search, where there are any.
    pub fn needs_headroom(&self, request: &Amounts, node: &Node) -> bool {
        self.headroom_on(node).is_some()
            && !(Headroom::fits(None, request, node) && self.still_fits_beside(|| all_of(node), request, node))
    }

    /// Of nodes on which `request` fits, the one that kube-scheduler would take, of the first hundred; of equals, the first
    /// by name. It preempts nobody as long as there is another node. Cost: a pass over these, and a score for those that have none
    /// yet.
    pub fn best_node<'n>(&self, request: &Amounts, fitting: &Fitting<'n>) -> Option<&'n Node> {
        if self.headroom.is_none()
            && let Some(best) = fitting.best_scored()
        {
            return Some(best);
        }
        let score_of = |(node, known): (&'n Node, Option<i64>)| {
            // What makes room for the pod is not in the score.
            let known = known.filter(|_| self.headroom.is_none() || self.headroom_on(node).is_none());
            let now = || score(request, &node.allocatable, &self.taken(node).amounts);
            (node, known.unwrap_or_else(now))
        };
        let best = |one: (&'n Node, i64), other: (&'n Node, i64)| if other.1 > one.1 { other } else { one };
        let is_free = |(node, _): &(&Node, _)| self.headroom.is_none() || !self.needs_headroom(request, node);
        let free = fitting.scored().filter(is_free).take(SCORED);
        // They are by name.
        let found = free.map(score_of).reduce(best);
        let found = found.or_else(|| fitting.scored().take(SCORED).map(score_of).reduce(best));
        found.map(|(node, _)| node)
    }

    /// What placeholders on `node` take that make room for the pod. Cost: nothing where there are none.
    pub fn headroom_on(&self, node: &Node) -> Option<Share> {
        self.headroom.and_then(|headroom| headroom.on(node))
    }

    /// Which placeholders make room for the pod.
    pub(super) fn headroom(&self) -> Option<Headroom> {
        self.headroom
    }

    /// Whether `request` would fit on one of these nodes, on which it fits by the snapshot, but for claims. Cost: a search for each,
    /// where anything is claimed.
    pub(super) fn is_claimed(&self, request: &Amounts, candidates: &CandidateNodes<'_>) -> bool {
        !self.claims.is_empty() && {
            let unclaimed = self.unclaimed();
            candidates.iter().any(|node| unclaimed.still_fits(request, node))
        }
    }

    /// The same without claims.
    pub fn unclaimed(&self) -> Self {
        Self {
            claims: &NO_CLAIMS,
            released: vec![],
            ..*self
        }
    }

    /// What is reserved on `node`, for this pod to find, for pods that the snapshot does not show. Cost: a search if anything is
    /// reserved at all.
    pub fn charges(&self, node: &Node) -> impl Iterator<Item = Charge<'_>> {
        self.ledger.charges(node.id, self.snapshot.revision, self.namespace)
    }

    /// The same as sums, each so many times over.
    fn reserved(&self, node: &Node) -> impl Iterator<Item = (&Share, u32)> {
        self.ledger.taken(node.id, self.snapshot.revision, self.namespace)
    }

    /// What held pods ahead claim on `node`. Cost: two searches if anything is claimed; a copy where one of these pods is being
    /// released.
    pub fn claimed_ahead(&self, node: &Node) -> Option<Cow<'_, Claimed>> {
        let from = self.released.partition_point(|(id, _)| *id < node.id);
        let released = self.released[from..].iter().take_while(|(id, _)| *id == node.id);
        let ahead = self.claims.on(node.id, self.queue_key)?;
        Some(without(ahead, released.map(|(_, claim)| *claim)))
    }

    /// Whether anything beside its pods takes from `node`.
    pub fn is_charged(&self, node: &Node) -> bool {
        self.reserved(node).next().is_some() || self.claims.on(node.id, self.queue_key).is_some()
    }

    /// Those that have room reserved or claimed at `site` and are not in the snapshot. Cost: a few additions for each
    /// different request among those reserved.
    fn promised(&self, site: &Site) -> AssumedPods {
        let mut pods = self.ledger.assumed(site.name(), self.snapshot.revision, self.namespace);
        if let Some(ahead) = self.claims.at(site.name(), self.queue_key) {
            let released = self.released.iter().map(|(_, claim)| *claim);
            let of_site = released.filter(|claim| *claim.site == *site.name());
            pods.merge(&without(ahead, of_site).assumed);
        }
        pods
    }

    /// Whether nobody `is_meant` who has room reserved or claimed at `site` and is not in the snapshot, by what they ask for. Cost:
    /// a pass over the reservations and the claims until one is found.
    pub fn none_promised(&self, site: &Site, is_meant: impl Fn(&Amounts) -> bool) -> bool {
        let mut reserved = self
            .ledger
            .reserved(site.name(), self.snapshot.revision, self.namespace);
        let is_ahead =
            |claim: &Claim| claim.has_room && *claim.site == *site.name() && claim.queue_key < self.queue_key;
        !reserved.any(|charge| is_meant(charge.amount))
            && !self
                .claims
                .iter()
                .any(|(_, claim)| is_ahead(claim) && is_meant(&claim.amount))
    }

    /// What pods take from `node` that do not make room for this one.
    pub(super) fn used<'n>(&self, node: &'n Node) -> Taken<'n> {
        beside(self.headroom, node)
    }

    /// What these pods, reservations and claims take from `node`. Cost: a search; copies only where something is reserved, or
    /// placeholders make room.
    pub fn taken<'n>(&self, node: &'n Node) -> Taken<'n> {
        self.with_promised(self.used(node), node)
    }

    /// So much, and what reservations and claims take from `node`.
    fn with_promised<'n>(&self, taken: Taken<'n>, node: &Node) -> Taken<'n> {
        let mut taken = with_shares(taken, self.reserved(node));
        if let Some(ahead) = self.claimed_ahead(node) {
            taken.amounts.to_mut().add(&ahead.taken.amounts, 1);
            taken.pods = taken.pods.saturating_add(ahead.taken.pods);
        }
        taken
    }

    /// What is free at `site` as a whole by measurement, less what is reserved there. Cost: that of [`Self::assumed`],
    /// where something was measured.
    pub fn free(&self, site: &Site) -> Free {
        if site.free == Free::default() {
            return site.free;
        }
        let reserved = self.promised(site).amounts;
        Free {
            cpu: site.free.cpu.map(|cpu| cpu - reserved.cpu),
            memory: site.free.memory.map(|memory| memory - reserved.memory),
        }
    }

    /// How many pods of this one's controller are at `site` or are to be, where that is counted. Cost: a search, and a pass over
    /// the reservations.
    pub(super) fn pods_of_controller(&self, workload: &Workload<'_>, site: &Site) -> u64 {
        let Some(uid) = workload.controller.as_deref() else {
            return 0;
        };
        let there = site.pods_of.get(&workload.namespace, uid).copied().unwrap_or(0);
        let revision = self.snapshot.revision;
        there + self.ledger.pods_of(&workload.namespace, uid, site.name(), revision)
    }

    /// The pods that are assumed at `site`: those without a node that the snapshot shows, and those with a reservation.
    /// Cost: a few additions for each different request among those reserved.
    pub fn assumed(&self, site: &Site) -> AssumedPods {
        let mut pods = self.promised(site);
        pods.merge(&site.assumed);
        pods
    }

    /// Those of them that are charged to one of `nodes`. Cost: a search for each.
    pub fn assumed_on<'n>(&self, nodes: impl Iterator<Item = &'n Node>) -> AssumedPods {
        let mut pods = AssumedPods::default();
        for node in nodes {
            pods.merge(&node.assumed);
            self.charges(node)
                .for_each(|charge| pods.add(charge.amount, charge.times));
            if let Some(ahead) = self.claimed_ahead(node) {
                pods.merge(&ahead.assumed);
            }
        }
        pods
    }
}

/// So much, and these shares, each so many times over.
fn with_shares<'n, 's>(mut taken: Taken<'n>, shares: impl Iterator<Item = (&'s Share, u32)>) -> Taken<'n> {
    for (share, times) in shares {
        taken.amounts.to_mut().add(&share.amounts, times);
        taken.pods = taken.pods.saturating_add(share.pods.saturating_mul(times.into()));
    }
    taken
}

/// How much kube-scheduler likes `node` beside its pods and these shares, each so many times over, if `request` fits there, which asks
/// for nothing but what every node has.
fn plain_score<'s>(
    scorer: &Scorer,
    request: &Amounts,
    node: &Node,
    shares: impl Iterator<Item = (&'s Share, u32)>,
) -> Option<i64> {
    let (request, allocatable) = (request.native(), node.allocatable.native());
    let (mut used, mut pods) = (node.used.native(), node.pods);
    for (share, times) in shares {
        let shared = share.amounts.native();
        for (used, share) in used.iter_mut().zip(shared) {
            *used = used.saturating_add(share.saturating_mul(times.into()));
        }
        pods = pods.saturating_add(share.pods.saturating_mul(times.into()));
    }
    let fits = |at: usize| request[at] <= 0 || request[at] <= allocatable[at].saturating_sub(used[at]);
    let scored = |[cpu, memory, _]: [i64; 3]| [cpu, memory];
    let score = || scorer.score_of(scored(allocatable), scored(used));
    (pods < node.slots && (0..3).all(fits)).then(score)
}

/// Whether `request` fits on `node` beside so much: a free pod slot, and enough of every resource it asks for.
fn fits_beside(request: &Amounts, node: &Node, taken: &Taken<'_>) -> bool {
    taken.pods < node.slots && request.fits(&node.allocatable, &taken.amounts)
}

/// What pods take from `node` that do not make room for another. Cost: a copy, where some do.
pub(super) fn beside(headroom: Option<Headroom>, node: &Node) -> Taken<'_> {
    match headroom.and_then(|headroom| headroom.on(node)) {
        Some(headroom) => Taken {
            amounts: Cow::Owned(node.used.less(&headroom.amounts)),
            pods: node.pods.saturating_sub(headroom.pods),
        },
        None => all_of(node),
    }
}

/// What all pods take from `node`.
fn all_of(node: &Node) -> Taken<'_> {
    Taken {
        amounts: Cow::Borrowed(&node.used),
        pods: node.pods,
    }
}

fn without<'c>(all: &'c Claimed, claims: impl Iterator<Item = &'c Claim>) -> Cow<'c, Claimed> {
    claims.fold(Cow::Borrowed(all), |mut rest, claim| {
        rest.to_mut().take(claim);
        rest
    })
}
