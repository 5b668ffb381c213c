//! Makes a plan: decides gated pods one after the other, each on the room that earlier pods left.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::queue::groups::Distances;
use crate::queue::{
    Age, Entry, GroupCounts, NAMESPACE_DELAY, PER_POD, PlanAction, PlanEntry, Planned, Together, Unfinished,
    WAIT_BEFORE_CLAIM,
};
use edgeward_decision::config::Config;
use edgeward_decision::model::queue_claims::{QueueClaim, QueueClaims};
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::model::workload::{QueueKey, Workload};
use edgeward_decision::placement::decide::{decide_with_scores, nearest_room};
use edgeward_decision::placement::ledger::Ledger;
use edgeward_decision::placement::room::Room;
use edgeward_decision::placement::verdict::{Action, Assessment, Reason, Standing, Verdict};
use edgeward_kube::node::{Node, NodeId};
use edgeward_kube::units::{Micros, Moment, Now};

/// The budget of a plan for the pods of one namespace, either within their limit or past it. A namespace that exhausts it
/// delays only its own pods.
pub(super) struct Purse {
    /// The pod at which the budget ran out in the last plan, where this plan continues.
    from: Option<QueueKey>,
    /// The comparisons that are left. The last decision may take more.
    left: usize,
    /// The pod at which the budget ran out.
    pub(super) next: Option<QueueKey>,
}

/// Divides the budget into equal parts, one for each purse. A remainder that a purse does not need goes to the others.
pub(super) fn purses<'p>(
    in_order: &[Planned<'p>],
    unfinished: &Unfinished,
    mut budget: usize,
) -> BTreeMap<(&'p str, bool), Purse> {
    let mut needs = BTreeMap::<_, usize>::new();
    for planned in in_order {
        *needs.entry(planned.purse).or_default() += planned.cost + planned.search_cost;
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

/// A plan that is being made.
pub(super) struct Planning<'p> {
    pub(super) snapshot: &'p Snapshot,
    pub(super) ledger: &'p Ledger,
    pub(super) config: &'p Config,
    pub(super) now: Now,
    /// The claims of the last plan.
    pub(super) before: &'p QueueClaims,
    pub(super) purses: BTreeMap<(&'p str, bool), Purse>,
    pub(super) claims: QueueClaims,
    /// Nodes that are claimed by a pod that does not fit there yet.
    pub(super) claimed_nodes: BTreeSet<NodeId>,
    /// Pods without room and without a node to claim, with the reason, and whether no site is possible. Each stands for all
    /// pods like it, because later pods find even less room.
    pub(super) unplaceable: HashMap<(Workload<'static>, Age), (Reason, bool)>,
    /// Pods for which no site is possible, by uid, with whether they are past their limit, and the reason.
    pub(super) without_site: Vec<(Arc<str>, (bool, Reason))>,
    pub(super) entries: Vec<PlanEntry>,
    /// Groups that wait.
    pub(super) groups: GroupCounts,
    /// The distances between the sites, once a group has been searched.
    pub(super) distances: Option<Arc<Distances>>,
    /// When the next group reaches its limit.
    pub(super) due: Option<Moment>,
    pub(super) decisions: usize,
    /// The comparisons that the plan took so far.
    pub(super) comparisons: usize,
}

impl<'p> Planning<'p> {
    /// Handles the pods outside the queue. A pod whose constraints are not kept is released at its limit, and claims no
    /// room until then. A pod in a namespace that has not opted in loses the gate.
    pub(super) fn consider_alone(&mut self, entries: &[&Entry], is_managed: impl Fn(&str) -> bool) {
        for entry in entries {
            if is_managed(&entry.pod.namespace) {
                self.comparisons = self.comparisons.saturating_add(PER_POD);
                let is_overdue = self.now.moment.since(entry.since) >= entry.pod.longest(self.config);
                if is_overdue && !entry.pod.has_other_gates && !self.ledger.releases(&entry.pod.uid) {
                    self.push(entry, entry.since, PlanAction::Release, None);
                }
            } else if self.now.moment.since(entry.first_seen) >= NAMESPACE_DELAY {
                self.push(entry, entry.since, PlanAction::RemoveGate(Reason::NotManaged), None);
            }
        }
    }

    /// Decides about this pod if its purse is not exhausted.
    pub(super) fn consider(&mut self, planned: &Planned<'p>) {
        let (entry, age) = (planned.entry, planned.age);
        self.comparisons = self.comparisons.saturating_add(PER_POD);
        if let Some(reason) = planned.known {
            self.update_reason(entry, reason);
            return;
        }
        // The pod is being released already.
        if self.ledger.releases(&entry.pod.uid) {
            return;
        }
        if self.is_earlier(planned) {
            self.keep_last(planned);
            return;
        }
        let kind = (kind_of(planned.workload, self.snapshot), age);
        if let Some((reason, has_no_site)) = self.unplaceable.get(&kind).copied() {
            self.go_on_waiting(entry, age, reason, has_no_site);
        } else if self.pay(planned, planned.cost) {
            self.decide(planned, kind);
        }
    }

    /// Whether the pod comes before the point where this plan continues.
    pub(super) fn is_earlier(&self, planned: &Planned<'p>) -> bool {
        let from = self.purses.get(&planned.purse).and_then(|purse| purse.from);
        from.is_some_and(|from| planned.queue_key < from)
    }

    /// Takes the comparisons from the pod's purse. False if it is exhausted; the next plan then continues at this pod.
    pub(super) fn pay(&mut self, planned: &Planned<'p>, comparisons: usize) -> bool {
        let Some(purse) = self.purses.get_mut(&planned.purse) else {
            return false;
        };
        if purse.left == 0 {
            purse.next.get_or_insert(planned.queue_key);
            return false;
        }
        self.charge(planned, comparisons);
        true
    }

    /// Takes the comparisons from the pod's purse, which may exhaust it.
    pub(super) fn charge(&mut self, planned: &Planned<'p>, comparisons: usize) {
        if let Some(purse) = self.purses.get_mut(&planned.purse) {
            purse.left = purse.left.saturating_sub(comparisons);
        }
        self.comparisons = self.comparisons.saturating_add(comparisons);
    }

    /// Keeps the pod's result of the last plan until the pods behind it have been considered.
    pub(super) fn keep_last(&mut self, planned: &Planned<'p>) {
        let entry = planned.entry;
        if let Some(claim) = self.before.of(&entry.pod.uid) {
            self.claims.add(claim.clone());
            if claim.has_room {
                self.add_entry(planned, PlanAction::Release);
            } else {
                self.claims.leave_waiting(planned.queue_key);
                self.claimed_nodes.insert(claim.node);
            }
        }
    }

    fn decide(&mut self, planned: &Planned<'p>, kind: (Workload<'static>, Age)) {
        let (entry, age, queue_key) = (planned.entry, planned.age, planned.queue_key);
        self.decisions += 1;
        let gated_for = self.now.moment.since(planned.since);
        let workload = Workload {
            gated_for: Some(gated_for),
            ..planned.workload.clone()
        };
        let room = Room::beside(self.snapshot, self.ledger, &self.claims, queue_key, &workload.namespace)
            .with_headroom(&workload, self.config);
        let verdict = decide_with_scores(&workload, &room, self.config, self.now);
        let claim = |node, site: &str, has_room| QueueClaim {
            uid: Arc::clone(&entry.pod.uid),
            queue_key,
            node,
            site: site.into(),
            amount: workload.request.clone(),
            membership: planned.member(),
            has_room,
        };
        match verdict.action {
            Action::Place(site) => {
                if let Some(node) = verdict.node {
                    self.claims.add(claim(node, site.name(), true));
                }
                self.add_entry(planned, PlanAction::Release);
            }
            Action::Gate => {
                let is_possible = verdict.sites.is_empty() || verdict.sites.iter().any(Assessment::is_possible);
                let wants_room = is_possible && verdict.reason != Reason::HeldSiteAway;
                // Where volumes and other pods are can change while the sites stay the same.
                let has_no_site = !is_possible && workload.volume_claims.is_empty() && workload.near.is_empty();
                let claimed = wants_room.then(|| self.node_to_claim(&workload, &verdict, &room, gated_for));
                if wants_room {
                    self.claims.leave_waiting(queue_key);
                }
                if let Some((node, site)) = claimed.flatten() {
                    self.claimed_nodes.insert(node);
                    self.claims.add(claim(node, site, false));
                } else if !verdict.sites.iter().any(|site| site.standing() == Standing::Late) {
                    // A younger pod has more time left, so it may go to a site where this one would be late.
                    self.unplaceable.insert(kind, (verdict.reason, has_no_site));
                }
                self.go_on_waiting(entry, age, verdict.reason, has_no_site);
            }
            Action::PassThrough | Action::Deny => self.add_entry(planned, PlanAction::RemoveGate(verdict.reason)),
        }
    }

    /// Keeps the pod gated for this reason. If no site is possible for it, that holds until sites change.
    fn go_on_waiting(&mut self, entry: &Entry, age: Age, reason: Reason, has_no_site: bool) {
        if has_no_site {
            let uid = Arc::clone(&entry.pod.uid);
            self.without_site.push((uid, (age.is_overdue, reason)));
        }
        self.update_reason(entry, reason);
    }

    /// The node, with its site, that a pod claims although it does not fit there yet. It is the node whose terminating pods
    /// the pod waits for. After a long wait, it is the node that comes closest to having room.
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

    pub(super) fn update_reason(&mut self, entry: &Entry, reason: Reason) {
        // A stale view says nothing new about why a pod waits.
        let is_stale = self.snapshot.is_stale(self.config.telemetry_ttl, self.now.moment);
        if !is_stale && entry.pod.reason.as_deref() != Some(reason.as_str()) {
            self.push(entry, entry.since, PlanAction::UpdateReason(reason), None);
        }
    }

    fn add_entry(&mut self, planned: &Planned<'_>, action: PlanAction) {
        self.push(planned.entry, planned.since, action, None);
    }

    pub(super) fn push(&mut self, entry: &Entry, since: Moment, action: PlanAction, together: Option<Together>) {
        self.entries.push(PlanEntry {
            pod: Arc::clone(&entry.pod),
            since,
            action,
            together,
        });
    }
}

/// The part of a pod that a decision reads. It leaves out the labels, and controller and Job if nothing is known about them. So
/// the pods of many Jobs are equal.
pub(super) fn kind_of(workload: &Workload<'static>, snapshot: &Snapshot) -> Workload<'static> {
    let is_known = |uid: &Cow<'_, str>| snapshot.is_closed_to(&workload.namespace, uid);
    let is_timed = |key: &Cow<'_, str>| snapshot.knows_job(&workload.namespace, key);
    Workload {
        labels: Arc::default(),
        controller: workload.controller.clone().filter(is_known),
        job: workload.job.clone().filter(is_timed),
        ..workload.clone()
    }
}
