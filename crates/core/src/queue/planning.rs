//! A plan in the making: gated pods are decided one after the other, each on the room that the earlier ones left.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{Age, Entry, NAMESPACE_DELAY, PER_POD, PlanAction, Planned, Step, Unfinished, WAIT_BEFORE_CLAIM};
use crate::config::Config;
use crate::model::node::{Node, NodeId};
use crate::model::queue_claims::{QueueClaim, QueueClaims};
use crate::model::snapshot::Snapshot;
use crate::model::workload::{QueueKey, Workload};
use crate::placement::decide::{decide, nearest_room};
use crate::placement::ledger::Ledger;
use crate::placement::room::Room;
use crate::placement::verdict::{Action, Assessment, Reason, Standing, Verdict};
use crate::units::{Micros, Now};

/// What a plan may spend on the pods of one namespace that are within their limit, or on those past it. A namespace that spends it
/// holds up its own pods alone.
pub(super) struct Purse {
    /// The pod that it ran out at in the plan before: it goes on from there.
    from: Option<QueueKey>,
    /// How many comparisons are left. The last decision may take more.
    left: usize,
    /// The pod that it ran out at.
    pub(super) next: Option<QueueKey>,
}

/// The purses of these pods: equal parts of the budget, and what one does not need is for the others.
pub(super) fn purses<'p>(
    in_order: &[Planned<'p>],
    unfinished: &Unfinished,
    mut budget: usize,
) -> BTreeMap<(&'p str, bool), Purse> {
    let mut needs = BTreeMap::<_, usize>::new();
    for planned in in_order {
        *needs.entry(planned.purse).or_default() += planned.cost;
    }
    let mut needs: Vec<_> = needs.into_iter().collect();
    needs.sort_by_key(|(_, need)| *need);
    let parts = (1..=needs.len()).rev();
    let purse = |(parts, (key, need)): (usize, ((&'p str, bool), usize))| {
        let left = need.min(budget / parts);
        budget -= left;
        let from = unfinished.get(&(key.0.into(), key.1)).copied();
        let purse = Purse {
            from,
            left: left.max(1),
            next: None,
        };
        (key, purse)
    };
    parts.zip(needs).map(purse).collect()
}

/// A plan in the making.
pub(super) struct Planning<'p> {
    pub(super) snapshot: &'p Snapshot,
    pub(super) ledger: &'p Ledger,
    pub(super) config: &'p Config,
    pub(super) now: Now,
    /// The claims of the plan before.
    pub(super) before: &'p QueueClaims,
    pub(super) purses: BTreeMap<(&'p str, bool), Purse>,
    pub(super) claims: QueueClaims,
    /// Nodes that are claimed by a pod which does not fit there yet.
    pub(super) claimed_nodes: BTreeSet<NodeId>,
    /// Pods for which there is no room, nor a node to claim, each on behalf of all that are like it: there is only less for
    /// those that come later. And why it waits, and whether no site is possible.
    pub(super) unplaceable: HashMap<(Workload<'static>, Age), (Reason, bool)>,
    /// Pods for which no site is possible, by uid.
    pub(super) without_site: Vec<(Arc<str>, (bool, Reason))>,
    pub(super) steps: Vec<Step>,
    pub(super) decisions: usize,
    /// What all of it took so far.
    pub(super) comparisons: usize,
}

impl<'p> Planning<'p> {
    /// Pods that are not in the queue. One whose constraints are not kept is decided when its time is over, and keeps no room until
    /// then. One in a namespace that has not opted in loses the gate.
    pub(super) fn consider_alone(&mut self, entries: &[&Entry], is_managed: impl Fn(&str) -> bool) {
        for entry in entries {
            if is_managed(&entry.pod.namespace) {
                self.comparisons = self.comparisons.saturating_add(PER_POD);
                let is_overdue = self.now.moment.since(entry.since) >= entry.pod.longest(self.config);
                if is_overdue && !entry.pod.has_other_gates && !self.ledger.releases(&entry.pod.uid) {
                    self.step(entry, PlanAction::Release);
                }
            } else if self.now.moment.since(entry.first_seen) >= NAMESPACE_DELAY {
                self.step(entry, PlanAction::RemoveGate(Reason::NotManaged));
            }
        }
    }

    /// Decides about this pod, as far as its purse goes.
    pub(super) fn consider(&mut self, planned: &Planned<'p>) {
        let (entry, age, queue_key) = (planned.entry, planned.age, planned.queue_key);
        self.comparisons = self.comparisons.saturating_add(PER_POD);
        if let Some(reason) = planned.known {
            self.update_reason(entry, reason);
            return;
        }
        // It is being released already.
        if self.ledger.releases(&entry.pod.uid) {
            return;
        }
        let Some(purse) = self.purses.get_mut(&planned.purse) else {
            return;
        };
        if purse.from.is_some_and(|from| queue_key < from) {
            // It keeps what the plan before found, until those behind it were considered.
            if let Some((node, claim)) = self.before.of(&entry.pod.uid) {
                self.claims.add(node, claim.clone());
                if claim.has_room {
                    self.step(entry, PlanAction::Release);
                } else {
                    self.claims.leave_waiting(queue_key);
                    self.claimed_nodes.insert(node);
                }
            }
            return;
        }
        let kind = (kind_of(planned.workload, self.snapshot), age);
        if let Some((reason, has_no_site)) = self.unplaceable.get(&kind).copied() {
            self.go_on_waiting(entry, age, reason, has_no_site);
        } else if purse.left == 0 {
            purse.next.get_or_insert(queue_key);
        } else {
            purse.left = purse.left.saturating_sub(planned.cost);
            self.comparisons = self.comparisons.saturating_add(planned.cost);
            self.decide(planned, kind);
        }
    }

    fn decide(&mut self, planned: &Planned<'p>, kind: (Workload<'static>, Age)) {
        let (entry, age, queue_key) = (planned.entry, planned.age, planned.queue_key);
        self.decisions += 1;
        let gated_for = self.now.moment.since(entry.since);
        let workload = Workload {
            gated_for: Some(gated_for),
            ..planned.workload.clone()
        };
        let room = Room::beside(self.snapshot, self.ledger, &self.claims, queue_key, &workload.namespace);
        let room = room.with_headroom(&workload, self.config);
        let verdict = decide(&workload, &room, self.config, self.now);
        let claim = |site: &str, has_room| QueueClaim {
            uid: Arc::clone(&entry.pod.uid),
            queue_key,
            site: site.into(),
            amount: workload.request.clone(),
            has_room,
        };
        match verdict.action {
            Action::Place(site) => {
                if let Some(node) = verdict.node {
                    self.claims.add(node, claim(site.name(), true));
                }
                self.step(entry, PlanAction::Release);
            }
            Action::Gate => {
                let is_possible = verdict.sites.is_empty() || verdict.sites.iter().any(Assessment::is_possible);
                let wants_room = is_possible && verdict.reason != Reason::HeldSiteAway;
                // Where the volumes of its claims and other pods are changes without a site.
                let has_no_site = !is_possible && workload.volume_claims.is_empty() && workload.near.is_empty();
                let claimed = wants_room.then(|| self.node_to_claim(&workload, &verdict, &room, gated_for));
                if wants_room {
                    self.claims.leave_waiting(queue_key);
                }
                if let Some((node, site)) = claimed.flatten() {
                    self.claimed_nodes.insert(node);
                    self.claims.add(node, claim(site, false));
                } else if !verdict.sites.iter().any(|site| site.standing() == Standing::Late) {
                    // A younger one has more time left, and may go where this one would be late.
                    self.unplaceable.insert(kind, (verdict.reason, has_no_site));
                }
                self.go_on_waiting(entry, age, verdict.reason, has_no_site);
            }
            Action::PassThrough | Action::Deny => self.step(entry, PlanAction::RemoveGate(verdict.reason)),
        }
    }

    /// The pod waits for this reason. If no site is possible for it, that stays so until sites change.
    fn go_on_waiting(&mut self, entry: &Entry, age: Age, reason: Reason, has_no_site: bool) {
        if has_no_site {
            let uid = Arc::clone(&entry.pod.uid);
            self.without_site.push((uid, (age.is_overdue, reason)));
        }
        self.update_reason(entry, reason);
    }

    /// The node that a pod claims which does not fit yet, and its site: the one that it waits for while pods terminate there;
    /// or, once it has waited for long, the one that comes closest.
    fn node_to_claim<'s>(
        &self,
        workload: &Workload<'_>,
        verdict: &Verdict<'s>,
        room: &Room<'s, '_>,
        gated_for: Micros,
    ) -> Option<(NodeId, &'s str)> {
        if let Some(terminating) = verdict.node {
            return Some((terminating, verdict.sites.first()?.site.name()));
        }
        if gated_for < WAIT_BEFORE_CLAIM {
            return None;
        }
        let is_claimed = |node: &Node| self.claimed_nodes.contains(&node.id);
        let (site, node) = nearest_room(workload, verdict, room, is_claimed)?;
        Some((node, site.name()))
    }

    fn update_reason(&mut self, entry: &Entry, reason: Reason) {
        // A stale view says nothing new of why a pod waits.
        let is_stale = self.snapshot.is_stale(self.config.telemetry_ttl, self.now.moment);
        if !is_stale && entry.pod.reason.as_deref() != Some(reason.as_str()) {
            self.step(entry, PlanAction::UpdateReason(reason));
        }
    }

    pub(super) fn step(&mut self, entry: &Entry, action: PlanAction) {
        self.steps.push(Step {
            pod: Arc::clone(&entry.pod),
            since: entry.since,
            action,
        });
    }
}

/// What a decision reads of a pod: not its labels, and nothing of its controller, where nothing is known of that. The pods of many Jobs
/// are alike.
fn kind_of(workload: &Workload<'static>, snapshot: &Snapshot) -> Workload<'static> {
    let is_known = |uid: &Cow<'_, str>| snapshot.knows_controller(&workload.namespace, uid);
    Workload {
        labels: Arc::default(),
        controller: workload.controller.clone().filter(is_known),
        ..workload.clone()
    }
}
