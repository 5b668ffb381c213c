//! What one decision sees of the fleet, at one revision.

use std::borrow::Cow;

use crate::fleet::{Claim, Claims, Free, Node, OnTheirWay, Site, Snapshot};
use crate::ledger::{Charge, Ledger};
use crate::resources::Amounts;
use crate::score::{self, SCORED};
use crate::units::Micros;
use crate::workload::Turn;

/// The snapshot together with everything promised since, as it is to one pod. A verdict borrows from the snapshot alone, so
/// the ledger's lock need not outlive the decision.
#[derive(Debug, Clone, Copy)]
pub struct Room<'s, 'l> {
    /// The picture of all sites.
    pub snapshot: &'s Snapshot,
    /// What is promised and not in that picture.
    pub ledger: &'l Ledger,
    /// What is set aside for held pods.
    pub claims: &'l Claims,
    /// Where the pod stands: what is set aside for those behind it does not count.
    pub turn: Turn,
}

/// What is taken from a node.
#[derive(Debug)]
pub struct Taken<'n> {
    /// Of its resources.
    pub amounts: Cow<'n, Amounts>,
    /// Of its pod slots.
    pub pods: i64,
}

static NO_CLAIMS: Claims = Claims::new();

impl<'s> Room<'s, 'static> {
    /// A snapshot since which nothing was promised.
    pub fn of(snapshot: &'s Snapshot) -> Self {
        static NOTHING: Ledger = Ledger::new(Micros(0));
        Self {
            snapshot,
            ledger: &NOTHING,
            claims: &NO_CLAIMS,
            turn: Turn::LAST,
        }
    }
}

impl<'s: 'l, 'l> Room<'s, 'l> {
    /// What a pod that stands there finds.
    pub fn new(snapshot: &'s Snapshot, ledger: &'l Ledger, turn: Turn) -> Self {
        Self {
            snapshot,
            ledger,
            claims: &snapshot.claims,
            turn,
        }
    }
}

impl Room<'_, '_> {
    /// Whether `request` fits on `node` now: a free pod slot, and enough of every resource it asks for. Taints,
    /// labels and readiness are not the room's matter.
    pub fn fits(&self, request: &Amounts, node: &Node) -> bool {
        let fits = |used: &Amounts, pods| pods < node.slots && request.fits(&node.allocatable, used);
        // A node that is full without reservations is not looked up, and one that has none is not summed up.
        fits(&node.used, node.pods)
            && (self.charges(node).next().is_none() || {
                let taken = self.taken(node);
                fits(&taken.amounts, taken.pods)
            })
    }

    /// Of nodes on which `request` fits, the one that kube-scheduler would take, of the first hundred; of equals, the first
    /// by name. Cost: a score for each of these.
    pub fn best_node<'n>(&self, request: &Amounts, fitting: impl Iterator<Item = &'n Node>) -> Option<&'n Node> {
        let taken = |node| (node, self.taken(node).amounts);
        score::best_node(request, fitting.take(SCORED).map(taken))
    }

    /// The same without what is set aside.
    pub fn unclaimed(&self) -> Self {
        Self {
            claims: &NO_CLAIMS,
            ..*self
        }
    }

    /// What is reserved on `node` for pods that the snapshot does not show, and what is set aside for held ones ahead. Cost:
    /// two searches if there is anything of it at all.
    pub fn charges(&self, node: &Node) -> impl Iterator<Item = Charge<'_>> {
        let reserved = self.ledger.charges(node.id, self.snapshot.revision);
        let claimed = self.claims.on(node.id).filter(|claim| self.counts(claim));
        reserved.chain(claimed.map(|claim| Charge {
            amount: &claim.amount,
            times: 1,
            priority: claim.priority,
            comes: claim.comes,
        }))
    }

    /// Whether the claim is one of a pod ahead that is not being released already.
    fn counts(&self, claim: &Claim) -> bool {
        claim.turn < self.turn && !self.ledger.releases(&claim.uid)
    }

    /// Those that are promised `site` and not in the snapshot. Cost: a pass over reservations and claims.
    fn promised(&self, site: &Site) -> OnTheirWay {
        let mut pods = self.ledger.on_their_way(site.name(), self.snapshot.revision);
        let claims = self
            .claims
            .iter()
            .filter(|claim| claim.comes && *claim.site == *site.name());
        for claim in claims.filter(|claim| self.counts(claim)) {
            pods.add(&claim.amount, 1);
        }
        pods
    }

    /// What pods, reservations and claims take from `node`. Cost: a search; copies only where something is reserved.
    pub fn taken<'n>(&self, node: &'n Node) -> Taken<'n> {
        let mut taken = Taken {
            amounts: Cow::Borrowed(&node.used),
            pods: node.pods,
        };
        for charge in self.charges(node) {
            taken.amounts.to_mut().add(charge.amount, charge.times);
            taken.pods = taken.pods.saturating_add(charge.times.into());
        }
        taken
    }

    /// What is free at `site` as a whole by measurement, less what is reserved there. Cost: a pass over the reservations,
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

    /// The pods on their way to `site`: those that its nodes are charged for by guess, and those with a reservation.
    /// Cost: a pass over the reservations.
    pub fn on_their_way(&self, site: &Site) -> OnTheirWay {
        let mut pods = self.promised(site);
        pods.merge(&site.on_their_way);
        pods
    }

    /// Those of them that are charged to one of `nodes`. Cost: a search for each.
    pub fn on_their_way_to<'n>(&self, nodes: impl Iterator<Item = &'n Node>) -> OnTheirWay {
        let mut pods = OnTheirWay::default();
        for node in nodes {
            pods.merge(&node.on_their_way);
            let coming = self.charges(node).filter(|charge| charge.comes);
            coming.for_each(|charge| pods.add(charge.amount, charge.times));
        }
        pods
    }
}
