//! A plan in the making: gated pods are decided one after the other, each on the room that the earlier ones left.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::{Age, Entry, PER_POD, PlanAction, Step, WAIT_BEFORE_CLAIM};
use crate::config::Config;
use crate::model::node::{Node, NodeId};
use crate::model::pod_record::GatedPod;
use crate::model::queue_claims::{QueueClaim, QueueClaims};
use crate::model::snapshot::Snapshot;
use crate::model::workload::{QueueKey, Workload};
use crate::placement::decide::{cost, decide, nearest_room};
use crate::placement::ledger::Ledger;
use crate::placement::room::Room;
use crate::placement::verdict::{Action, Assessment, Reason, Standing, Verdict};
use crate::units::{Micros, Now};

/// A plan in the making.
pub(super) struct Planning<'p> {
    pub(super) snapshot: &'p Snapshot,
    pub(super) ledger: &'p Ledger,
    pub(super) config: &'p Config,
    pub(super) now: Now,
    /// How many comparisons are left.
    pub(super) budget: usize,
    pub(super) claims: QueueClaims,
    /// Nodes that are claimed by a pod which does not fit there yet.
    pub(super) claimed_nodes: BTreeSet<NodeId>,
    /// Pods for which there is no room, nor a node to claim, each on behalf of all that are like it: there is only less for
    /// those that come later. And why it waits.
    pub(super) unplaceable: HashMap<(Cow<'p, Workload<'static>>, Age), Reason>,
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
            } else if entry.is_unmanaged(&is_managed, self.now.moment) {
                self.step(entry, PlanAction::RemoveGate(Reason::NotManaged));
            }
        }
    }

    /// Whether the plan could decide about this pod; else it has come to its end.
    pub(super) fn consider(&mut self, entry: &Entry, workload: &'p Workload<'static>, queue_key: QueueKey) -> bool {
        let pod = &entry.pod;
        self.comparisons = self.comparisons.saturating_add(PER_POD);
        if pod.has_other_gates {
            self.update_reason(entry, Reason::HeldForeignGate);
            return true;
        }
        // It is being released already.
        if self.ledger.releases(&pod.uid) {
            return true;
        }
        let gated_for = self.now.moment.since(entry.since);
        let kind = (
            self.kind_of(workload),
            Age::of(pod, self.config, gated_for, entry.is_late),
        );
        if let Some(reason) = self.unplaceable.get(&kind) {
            self.update_reason(entry, *reason);
            return true;
        }
        let cost = cost(workload, self.snapshot).saturating_add(self.snapshot.node_count());
        // One can always be decided about.
        match self.budget.checked_sub(cost) {
            Some(rest) => self.budget = rest,
            None if self.decisions == 0 => self.budget = 0,
            None => return false,
        }
        self.decisions += 1;
        self.comparisons = self.comparisons.saturating_add(cost);
        let workload = Workload {
            gated_for: Some(gated_for),
            ..workload.clone()
        };
        let room = Room::beside(self.snapshot, self.ledger, &self.claims, queue_key, &workload.namespace);
        let room = room.with_headroom(&workload, self.config);
        let verdict = decide(&workload, &room, self.config, self.now);
        match verdict.action {
            Action::Place(site) => {
                let claim = verdict
                    .node
                    .map(|node| (node, claim(pod, &workload, queue_key, site.name(), true)));
                claim.into_iter().for_each(|(node, claim)| self.claims.add(node, claim));
                self.step(entry, PlanAction::Release);
            }
            Action::Gate => {
                if wants_room(&verdict) {
                    let claimed = self.node_to_claim(&workload, &verdict, &room, gated_for);
                    let claimed = claimed.map(|(node, site)| (node, claim(pod, &workload, queue_key, site, false)));
                    self.leave_waiting(&verdict, kind, queue_key, claimed);
                } else {
                    // It blocks no other pod.
                    self.unplaceable.insert(kind, verdict.reason);
                }
                self.update_reason(entry, verdict.reason);
            }
            Action::PassThrough | Action::Deny => self.step(entry, PlanAction::RemoveGate(verdict.reason)),
        }
        true
    }

    /// Goes on with the gated pods behind one that has to wait. Cost: none for later pods of the same kind where the plan notes that
    /// there is nothing for them.
    fn leave_waiting(
        &mut self,
        verdict: &Verdict<'_>,
        kind: (Cow<'p, Workload<'static>>, Age),
        queue_key: QueueKey,
        claimed: Option<(NodeId, QueueClaim)>,
    ) {
        self.claims.leave_waiting(queue_key);
        // A younger one has more time left, and may go where this one would be late.
        let has_less_time = verdict.sites.iter().any(|site| site.standing() == Standing::Late);
        if let Some((node, claim)) = claimed {
            self.claimed_nodes.insert(node);
            self.claims.add(node, claim);
        } else if !has_less_time {
            self.unplaceable.insert(kind, verdict.reason);
        }
    }

    /// What a decision reads of a pod: nothing of its controller, where nothing is known of that. The pods of many Jobs are alike.
    fn kind_of(&self, workload: &'p Workload<'static>) -> Cow<'p, Workload<'static>> {
        match &workload.controller {
            Some(uid) if !self.snapshot.knows_controller(&workload.namespace, uid) => Cow::Owned(Workload {
                controller: None,
                ..workload.clone()
            }),
            _ => Cow::Borrowed(workload),
        }
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

/// Whether room could help the gated pod: some site is possible, or the view is too old to say, and it does not wait for a site.
fn wants_room(verdict: &Verdict<'_>) -> bool {
    let is_possible = verdict.sites.is_empty() || verdict.sites.iter().any(Assessment::is_possible);
    verdict.reason != Reason::HeldSiteAway && is_possible
}

fn claim(pod: &GatedPod, workload: &Workload<'_>, queue_key: QueueKey, site: &str, has_room: bool) -> QueueClaim {
    QueueClaim {
        uid: Arc::clone(&pod.uid),
        queue_key,
        site: site.into(),
        amount: workload.request.clone(),
        has_room,
    }
}
