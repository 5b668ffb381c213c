//! Gated pods: the order in which they are given room, what they claim, and which are released ("Gated pods" in
//! docs/decision.md).
//!
//! Every replica keeps the list and makes the same plan of the same snapshot: its claims keep the room for those who are
//! ahead. One replica carries the plan out.

mod planning;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::config::Config;
use crate::model::node::NodeId;
use crate::model::pod_record::GatedPod;
use crate::model::queue_claims::QueueClaims;
use crate::model::slo::Class;
use crate::model::snapshot::Snapshot;
use crate::model::workload::{QueueKey, Workload};
use crate::placement::estimate::slack;
use crate::placement::ledger::Ledger;
use crate::placement::verdict::{Action, Reason, Verdict};
use crate::units::{Micros, Moment, Now};
use planning::Planning;

/// For how long a pod is gated for want of room before it claims the node that comes closest to having it.
const WAIT_BEFORE_CLAIM: Micros = Micros::from_secs(60);

/// How late the watch may show a namespace's label: it may have opted in a moment before its pod was created.
const NAMESPACE_DELAY: Micros = Micros::from_secs(5);

/// The most comparisons of pods' constraints and tolerations with nodes that one plan takes, about a tenth of a second. The
/// next plan goes on from there.
const MAX_COMPARISONS: usize = 10_000_000;

/// What a gated pod costs a plan beside the comparisons of its decision, in comparisons.
const PER_POD: usize = 100;

/// How long a comparison takes, on the safe side. The pace of plans counts comparisons, not time: the same plans are made of
/// the same snapshots, however fast the machine is.
const COMPARISON_NANOSECONDS: usize = 50;

/// A plan takes one part in so many of the time, until the next one is made.
const PLAN_SHARE: usize = 4;

impl GatedPod {
    /// Its place in the queue; `None` if what it asks for is not kept.
    pub fn queue_key(&self, config: &Config) -> Option<QueueKey> {
        Some(self.queue_key_of(self.workload.as_ref()?, config))
    }

    /// Its place in the queue with what it asks for.
    pub fn queue_key_of(&self, workload: &Workload<'_>, config: &Config) -> QueueKey {
        let created = self.created.unwrap_or(jiff::Timestamp::MIN);
        workload.queue_key(&config.priority_caps, Some((created, &self.uid)))
    }

    /// Whether it was for the gates of others that it waited so far, by its annotation.
    fn waited_for_others(&self) -> bool {
        self.reason.as_deref() == Some(Reason::HeldForeignGate.as_str())
    }

    /// Whether it is for a site that is away that it waits, by its annotation.
    pub fn waits_for_site(&self) -> bool {
        self.reason.as_deref() == Some(Reason::HeldSiteAway.as_str())
    }

    /// When it should have been released, by its annotations and at this time; `None` where nobody can know, as long as it waits
    /// for others or for a site that is away.
    pub fn limit(&self, config: &Config, now: jiff::Timestamp) -> Option<jiff::Timestamp> {
        if self.waited_for_others() || self.waits_for_site() || self.has_other_gates {
            return None;
        }
        let since = self.stated.filter(|at| *at <= now).or(self.created)?;
        since
            .checked_add(jiff::SignedDuration::from_micros(
                i64::try_from(self.longest(config).0).ok()?,
            ))
            .ok()
    }

    /// For how long it may be gated.
    pub fn longest(&self, config: &Config) -> Micros {
        let [.., limit] = Age::ends(self, config);
        limit
    }
}

/// What is to be done about a gated pod.
#[derive(Debug, Clone)]
pub struct Step {
    /// The pod.
    pub pod: Arc<GatedPod>,
    /// Since when it is gated.
    pub since: Moment,
    /// What.
    pub action: PlanAction,
}

/// What is to be done about a gated pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanAction {
    /// There is room for it: it is decided once more, and released.
    Release,
    /// It is not ours: the gate is removed, and nothing else changes.
    RemoveGate(Reason),
    /// It goes on waiting; the annotation gets this reason, which it does not carry yet.
    UpdateReason(Reason),
}

/// What one snapshot means for the gated pods.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// What is to be done, in the order of the queue.
    pub steps: Vec<Step>,
    /// Pods that are gated, those of other gates too.
    pub gated: usize,
    /// Since when the pod is gated that is gated longest, of those that wait neither for others nor for a site that is away.
    pub oldest: Option<Moment>,
    /// How many decisions it took; a plan that goes on counts its own.
    pub decisions: usize,
}

impl PlanAction {
    /// What a verdict about a gated pod means for it.
    pub fn of(verdict: &Verdict<'_>) -> Self {
        match verdict.action {
            Action::Place(_) => PlanAction::Release,
            Action::Gate => PlanAction::UpdateReason(verdict.reason),
            Action::PassThrough | Action::Deny => PlanAction::RemoveGate(verdict.reason),
        }
    }
}

/// The gated pods.
#[derive(Debug)]
pub struct Waitlist {
    pods: HashMap<Arc<str>, Entry>,
    /// Whether a plan made before is out of date.
    changed: bool,
    /// When the passing of time changes the plan.
    due: Option<Moment>,
    /// The claims of the plan made last.
    claims: Arc<QueueClaims>,
    /// What it says is to be done, if it did not come to its end.
    steps: Vec<Step>,
    /// Whether the snapshot was too old for it.
    stale: bool,
    /// Until when no plan is made.
    paused_until: Moment,
    /// [`MAX_COMPARISONS`].
    budget: usize,
}

impl Default for Waitlist {
    fn default() -> Self {
        Self {
            pods: HashMap::new(),
            changed: false,
            due: None,
            claims: Arc::default(),
            steps: vec![],
            stale: false,
            paused_until: Moment(i64::MIN),
            budget: MAX_COMPARISONS,
        }
    }
}

#[derive(Debug)]
struct Entry {
    pod: Arc<GatedPod>,
    first_seen: Moment,
    since: Moment,
    /// For how long it may be gated and still meet its deadline in microseconds, and whether it was for longer, when the last plan
    /// began: a plan in several parts keeps its order.
    slack: Option<i64>,
    is_late: bool,
}

impl Waitlist {
    /// A pod as it is now. Its time begins when it says, unless that is in the future; and again when the last gate of others is
    /// gone. Otherwise it never begins later than it did: whoever may write annotations cannot stretch it.
    pub fn apply(&mut self, pod: Arc<GatedPod>, now: Now) {
        let old = self.pods.remove(&pod.uid);
        let (slack, is_late) = old.as_ref().map_or((None, false), |old| (old.slack, old.is_late));
        let first_seen = old.as_ref().map_or(now.moment, |old| old.first_seen);
        let stated = pod.stated.filter(|at| *at <= now.wall);
        let age = stated.and_then(|at| u64::try_from(now.wall.duration_since(at).as_micros()).ok());
        let same = old.filter(|old| old.pod.gates == pod.gates);
        let same = same.map(|old| old.since);
        let since = if pod.waited_for_others() {
            same.unwrap_or(now.moment)
        } else {
            let stated = age.map_or(first_seen, |age| now.moment.before(Micros(age)));
            same.map_or(stated, |since| since.min(stated))
        };
        let entry = Entry {
            pod,
            first_seen,
            since,
            slack,
            is_late,
        };
        self.pods.insert(Arc::clone(&entry.pod.uid), entry);
        self.changed = true;
    }

    /// A pod is gone, or carries our gate no more.
    pub fn delete(&mut self, uid: &str) {
        self.changed |= self.pods.remove(uid).is_some();
    }

    /// Keeps the pods that are still there.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        let before = self.pods.len();
        self.pods.retain(|uid, _| is_there(uid));
        self.changed |= self.pods.len() < before;
    }

    /// Something else than the pods, the nodes or the time may have changed what is to be done.
    pub fn reconsider(&mut self) {
        self.changed = true;
    }

    /// The same, and nothing of the plan holds any more: other nodes, or another order. It is made without a pause.
    pub fn reset(&mut self) {
        self.changed = true;
        self.claims = Arc::default();
        self.paused_until = Moment(i64::MIN);
    }

    /// The nodes whose room changed in this snapshot. Until the next plan, those that `gained` room are for the pods that the
    /// last one left waiting, and for those ahead of them. Cost: a search for each node.
    pub fn apply_delta(
        &mut self,
        gained: &BTreeSet<NodeId>,
        lost: &BTreeSet<NodeId>,
        snapshot: &Snapshot,
        config: &Config,
        now: Moment,
    ) {
        if self.pods.is_empty() {
            return;
        }
        let is_stale = snapshot.is_stale(config.telemetry_ttl, now);
        self.changed |= is_stale != self.stale || !gained.is_empty() || lost.iter().any(|id| self.claims.is_on(*id));
        if !gained.is_empty() {
            let claims = Arc::make_mut(&mut self.claims);
            gained.iter().for_each(|id| claims.close_gained(*id));
        }
    }

    /// Whether nobody is gated.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// When the plan must be made again.
    pub fn next_change(&self) -> Option<Moment> {
        let at = if self.is_unfinished() {
            Some(self.paused_until)
        } else {
            self.due
        };
        at.map(|at| at.max(self.paused_until))
    }

    /// The place of this pod in the order of the plan made last, and how many are before it; `None` for one that has none.
    pub fn place(&self, uid: &str, config: &Config) -> Option<(QueueKey, usize)> {
        let key = |entry: &Entry| Some(entry.pod.queue_key(config)?.late(entry.is_late));
        let own = key(self.pods.get(uid)?)?;
        let keys = self.pods.values().filter_map(key);
        Some((own, keys.filter(|other| *other < own).count()))
    }

    /// The claims of the plan made last.
    pub fn claims(&self) -> Arc<QueueClaims> {
        Arc::clone(&self.claims)
    }

    /// Whether a plan is to be made: the last one is out of date or did not come to its end, and the pause after it is over.
    pub fn wants_plan(&self, now: Moment) -> bool {
        self.next_change().is_some_and(|at| at <= now)
    }

    fn is_unfinished(&self) -> bool {
        self.changed || self.claims.not_considered().is_some()
    }

    /// Decides about every gated pod whose only gate is ours, in the order of the queue, each on the room that the earlier ones
    /// left; what the placed ones will take is claimed. Goes on where the plan before ran out of comparisons, if it did.
    /// Cost: a decision for each pod, but only one for those that differ in nothing but their age and find no room, for each of
    /// their ages: as long as terminating pods are waited for, before and after `WAIT_BEFORE_CLAIM`, late or not. And
    /// `MAX_COMPARISONS`, at most.
    pub fn plan(
        &mut self,
        snapshot: &Snapshot,
        ledger: &Ledger,
        config: &Config,
        is_managed: impl Fn(&str) -> bool,
        now: Now,
    ) -> Plan {
        let from = self.claims.not_considered();
        if from.is_none() {
            self.judge_lateness(snapshot, config, now.moment);
        }
        let (claims, steps) = self.begin_plan(now.moment);
        let claimed_nodes = claims.iter().filter(|(_, claim)| !claim.has_room);
        let mut planning = Planning {
            snapshot,
            ledger,
            config,
            now,
            budget: self.budget,
            claimed_nodes: claimed_nodes.map(|(node, _)| node).collect(),
            claims,
            unplaceable: HashMap::new(),
            steps,
            decisions: 0,
            comparisons: 0,
        };
        let (in_order, alone) = self.in_order(&is_managed, config);
        let begin = in_order.partition_point(|(queue_key, ..)| from.is_some_and(|from| *queue_key < from));
        for (queue_key, entry, workload) in &in_order[begin..] {
            if !planning.consider(entry, workload, *queue_key) {
                planning.claims.consider_up_to(Some(*queue_key));
                break;
            }
        }
        // The next plan goes on with the steps of one that ran out of comparisons.
        let unfinished = match planning.claims.not_considered() {
            Some(_) => planning.steps.clone(),
            None => vec![],
        };
        planning.consider_alone(&alone, &is_managed);
        let Planning {
            claims,
            steps,
            decisions,
            comparisons,
            ..
        } = planning;
        self.steps = unfinished;
        self.claims = Arc::new(claims);
        self.stale = snapshot.is_stale(config.telemetry_ttl, now.moment);
        let takes = comparisons.saturating_mul(COMPARISON_NANOSECONDS * PLAN_SHARE) / 1_000;
        self.paused_until = now.moment.after(Micros(takes as u64));
        self.due = self.next_due(snapshot, config, &is_managed, now.moment);
        let is_limited = |entry: &&Entry| !entry.pod.waited_for_others() && !entry.pod.waits_for_site();
        let ours = self.pods.values().filter(is_limited);
        Plan {
            steps,
            gated: self.pods.len(),
            oldest: ours.map(|entry| entry.since).min(),
            decisions,
        }
    }

    /// The claims and steps that a plan begins with: those of the last one, where that ran out of comparisons.
    fn begin_plan(&mut self, now: Moment) -> (QueueClaims, Vec<Step>) {
        let goes_on = self.claims.not_considered().is_some();
        // Pods that were considered before do not see that they grew older.
        self.changed = goes_on && (self.changed || self.due.is_some_and(|due| due <= now));
        if !goes_on {
            return (QueueClaims::default(), vec![]);
        }
        let mut claims = (*self.claims).clone();
        claims.consider_up_to(None);
        let is_current = |step: &Step| {
            let entry = self.pods.get(&step.pod.uid);
            entry.is_some_and(|entry| Arc::ptr_eq(&entry.pod, &step.pod))
        };
        let mut steps = std::mem::take(&mut self.steps);
        steps.retain(is_current);
        (claims, steps)
    }

    /// Finds which pods miss their deadline even if they start now.
    fn judge_lateness(&mut self, snapshot: &Snapshot, config: &Config, now: Moment) {
        for entry in self.pods.values_mut() {
            let workload = entry.pod.workload.as_ref();
            let gated = now.since(entry.since);
            entry.slack = workload.and_then(|workload| slack(workload, snapshot, config));
            entry.is_late = entry.slack.is_some_and(|slack| gated.signed() > slack);
        }
    }

    /// The pods that are planned, in the order of the queue; and those that are not, by creation: their constraints are not kept,
    /// or their namespace has not opted in. The label of a namespace may be seen later than its pods.
    fn in_order(&self, is_managed: impl Fn(&str) -> bool, config: &Config) -> (Vec<Planned<'_>>, Vec<&Entry>) {
        let (mut in_order, mut alone) = (vec![], vec![]);
        for entry in self.pods.values() {
            match &entry.pod.workload {
                Some(workload) if is_managed(&entry.pod.namespace) => {
                    let queue_key = entry.pod.queue_key_of(workload, config).late(entry.is_late);
                    in_order.push((queue_key, entry, workload));
                }
                _ => alone.push(entry),
            }
        }
        in_order.sort_unstable_by_key(|(queue_key, ..)| *queue_key);
        alone.sort_unstable_by_key(|entry| {
            let is_managed = is_managed(&entry.pod.namespace);
            (!is_managed, entry.pod.created, &entry.pod.uid)
        });
        (in_order, alone)
    }

    /// When the passing of time changes the plan next.
    fn next_due(
        &self,
        snapshot: &Snapshot,
        config: &Config,
        is_managed: impl Fn(&str) -> bool,
        now: Moment,
    ) -> Option<Moment> {
        let away_since: Vec<_> = snapshot.sites.iter().filter_map(|site| site.away_since).collect();
        let moments = self.pods.values().flat_map(|entry| {
            let is_managed = is_managed(&entry.pod.namespace);
            entry.moments(config, is_managed, &away_since)
        });
        moments.filter(|at| *at > now).min()
    }
}

/// A gated pod, its place in the queue and what it asks for.
type Planned<'p> = (QueueKey, &'p Entry, &'p Workload<'static>);

/// How far the age of a gated pod decides about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Age {
    waits_for_terminating: bool,
    waits_to_claim: bool,
    is_late: bool,
    is_overdue: bool,
}

impl Age {
    /// The ages at which this changes.
    fn ends(pod: &GatedPod, config: &Config) -> [Micros; 3] {
        let class = pod.class.unwrap_or(Class::Batch);
        let gating = &config.gating;
        [
            gating.wait_for_terminating[class],
            WAIT_BEFORE_CLAIM,
            gating.limits[class],
        ]
    }

    fn of(pod: &GatedPod, config: &Config, gated: Micros, is_late: bool) -> Self {
        let [terminating, claim_wait, limit] = Self::ends(pod, config);
        Self {
            waits_for_terminating: gated < terminating,
            waits_to_claim: gated < claim_wait,
            is_late,
            is_overdue: gated >= limit,
        }
    }
}

impl Entry {
    /// Whether its namespace has not opted in, and would be known if it had.
    fn is_unmanaged(&self, is_managed: impl Fn(&str) -> bool, now: Moment) -> bool {
        !is_managed(&self.pod.namespace) && now.since(self.first_seen) >= NAMESPACE_DELAY
    }

    /// The next full seconds after its age, or the outage of a cloud, changes what is to be done: with many gated pods there is
    /// such a moment all the time.
    fn moments(&self, config: &Config, is_managed: bool, away_since: &[Moment]) -> impl Iterator<Item = Moment> {
        let slack = self.slack.map(|slack| Micros(slack.max(0).unsigned_abs()));
        let late = slack.map(|slack| self.since.after(slack + Micros(1)));
        let longest = self.pod.longest(config);
        let longest = slack.map_or(longest, |slack| slack.min(longest));
        let lost = away_since.iter().map(move |since| since.after(longest));
        let moments = Age::ends(&self.pod, config).map(|age| self.since.after(age));
        let namespace_known = (!is_managed).then(|| self.first_seen.after(NAMESPACE_DELAY));
        let full_second = |at: Moment| {
            let rest = (-at.0).rem_euclid(1_000_000);
            at.after(Micros(rest.unsigned_abs()))
        };
        let moments = moments.into_iter().chain(late).chain(lost);
        moments.chain(namespace_known).map(full_second)
    }
}

#[cfg(test)]
mod tests;
