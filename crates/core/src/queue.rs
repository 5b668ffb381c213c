//! Gated pods: the order in which they are given room, what they claim, and which are released ("Gated pods" in
//! docs/guide/decide.md).
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
use crate::placement::decide::cost;
use crate::placement::estimate::slack;
use crate::placement::ledger::Ledger;
use crate::placement::verdict::{Action, Reason, Verdict};
use crate::units::{Micros, Moment, Now};
use planning::{Planning, Purse, purses};

/// For how long a pod is gated for want of room before it claims the node that comes closest to having it.
const WAIT_BEFORE_CLAIM: Micros = Micros::from_secs(60);

/// How late the watch may show a namespace's label: it may have opted in a moment before its pod was created.
const NAMESPACE_DELAY: Micros = Micros::from_secs(5);

/// The most comparisons of pods' constraints and tolerations with nodes that one plan takes, some hundredths of a second, and one
/// decision for each purse. The pause after it, and so the delay of a limit, is less than a second, if few namespaces have costly pods.
const MAX_COMPARISONS: usize = 3_000_000;

/// What a gated pod costs a plan beside the comparisons of its decision, in comparisons.
const PER_POD: usize = 100;

/// How long no plan is made after one, for each comparison of it: four times what that takes, on the safe side. The pace of plans
/// counts comparisons, not time: the same plans are made of the same snapshots, however fast the machine is.
const PAUSE_NANOSECONDS: usize = 200;

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
        let since = self.stated.filter(|at| *at <= now).max(self.created)?;
        let longest = i64::try_from(self.longest(config).0).ok()?;
        since.checked_add(jiff::SignedDuration::from_micros(longest)).ok()
    }

    /// For how long it may be gated.
    pub fn longest(&self, config: &Config) -> Micros {
        Age::ends(self, config)[2]
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
    /// How many decisions it took.
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

/// The purses that ran out in a plan, by namespace and whether its pods are past their limit, each with the first pod that was not
/// considered.
type Unfinished = HashMap<(Box<str>, bool), QueueKey>;

/// The gated pods.
#[derive(Debug, Default)]
pub struct Waitlist {
    pods: HashMap<Arc<str>, Entry>,
    /// Whether a plan made before is out of date.
    changed: bool,
    /// When the passing of time changes the plan.
    due: Option<Moment>,
    /// The claims of the plan made last.
    claims: Arc<QueueClaims>,
    unfinished: Unfinished,
    /// Whether the snapshot was too old for it.
    stale: bool,
    /// Until when no plan is made.
    paused_until: Moment,
    /// In the place of [`MAX_COMPARISONS`].
    budget: Option<usize>,
}

#[derive(Debug)]
struct Entry {
    pod: Arc<GatedPod>,
    first_seen: Moment,
    since: Moment,
    /// Why it waits, if no site was possible since sites changed, and whether it was past its limit then.
    without_site: Option<(bool, Reason)>,
}

impl Waitlist {
    /// A pod as it is now. Its time begins when it says, or with the pod, if that is in the future or before the pod existed; and
    /// again when the last gate of others is gone. Otherwise it never begins later than it did: whoever may write annotations cannot stretch it.
    pub fn apply(&mut self, pod: Arc<GatedPod>, now: Now) {
        let old = self.pods.remove(&pod.uid);
        let unchanged = old.as_ref().filter(|old| old.pod.workload == pod.workload);
        let without_site = unchanged.and_then(|old| old.without_site);
        let first_seen = old.as_ref().map_or(now.moment, |old| old.first_seen);
        let moment = |at: jiff::Timestamp| {
            let age = u64::try_from(now.wall.duration_since(at).as_micros()).ok()?;
            Some(now.moment.before(Micros(age)))
        };
        // The clock of the replica that gated it may differ from ours, and it was not gated before it existed.
        let created = pod.created.and_then(moment).unwrap_or(first_seen).min(first_seen);
        let stated = pod.stated.and_then(moment).map_or(created, |at| at.max(created));
        let same = old.filter(|old| old.pod.gates == pod.gates);
        let same = same.map(|old| old.since);
        let since = if pod.waited_for_others() {
            same.unwrap_or(now.moment)
        } else {
            same.map_or(stated, |since| since.min(stated))
        };
        let entry = Entry {
            pod,
            first_seen,
            since,
            without_site,
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

    /// Other sites may be possible for a pod.
    pub fn reconsider_sites(&mut self) {
        self.changed = true;
        self.pods.values_mut().for_each(|entry| entry.without_site = None);
    }

    /// Whether any of them must run with other pods.
    pub fn waits_for_pods(&self) -> bool {
        let workloads = self.pods.values().filter_map(|entry| entry.pod.workload.as_ref());
        workloads.into_iter().any(|workload| !workload.near.is_empty())
    }

    /// Nothing of the plan holds any more: other nodes, or another order. The next one is made without a pause.
    pub fn reset(&mut self) {
        self.reconsider_sites();
        self.claims = Arc::default();
        self.unfinished.clear();
        self.paused_until = Moment::default();
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
            Arc::make_mut(&mut self.claims).close_gained(gained);
        }
    }

    /// Whether nobody is gated.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// When the plan must be made again.
    pub fn next_change(&self) -> Option<Moment> {
        let is_due = self.changed || !self.unfinished.is_empty();
        let at = if is_due { Some(self.paused_until) } else { self.due };
        at.map(|at| at.max(self.paused_until))
    }

    /// The place of this pod in the order of a plan, and how many are before it; `None` for one that has none.
    pub fn place(&self, uid: &str, snapshot: &Snapshot, config: &Config, now: Moment) -> Option<(QueueKey, usize)> {
        let key = |entry: &Entry| {
            let is_late = entry.is_late(snapshot, config, now);
            Some(entry.pod.queue_key(config)?.late(is_late))
        };
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

    /// Decides about every gated pod whose only gate is ours, in the order of the queue, each on the room that the earlier ones
    /// left; what the placed ones will take is claimed. Each purse goes on where it ran out in the plan before, if it did.
    /// Cost: a decision for each pod, but only one for those that differ in nothing but their age and find no room, for each of
    /// their ages: as long as terminating pods are waited for, before and after `WAIT_BEFORE_CLAIM`, late or not; none where no
    /// site is possible, after the first. And `MAX_COMPARISONS`, at most.
    pub fn plan(
        &mut self,
        snapshot: &Snapshot,
        ledger: &Ledger,
        config: &Config,
        is_managed: impl Fn(&str) -> bool,
        now: Now,
    ) -> Plan {
        // Pods before those that the plan goes on from do not see what changed.
        self.changed = !self.unfinished.is_empty() && (self.changed || self.due.is_some_and(|due| due <= now.moment));
        let (in_order, alone) = self.in_order(&is_managed, snapshot, config, now.moment);
        let mut planning = Planning {
            snapshot,
            ledger,
            config,
            now,
            before: &self.claims,
            purses: purses(&in_order, &self.unfinished, self.budget.unwrap_or(MAX_COMPARISONS)),
            claims: QueueClaims::default(),
            claimed_nodes: BTreeSet::new(),
            unplaceable: HashMap::new(),
            without_site: vec![],
            steps: vec![],
            decisions: 0,
            comparisons: 0,
        };
        in_order.iter().for_each(|planned| planning.consider(planned));
        planning.consider_alone(&alone, &is_managed);
        let Planning {
            purses,
            claims,
            without_site,
            steps,
            decisions,
            comparisons,
            ..
        } = planning;
        let next =
            |((namespace, is_overdue), purse): (_, Purse)| Some(((Box::from(namespace), is_overdue), purse.next?));
        self.unfinished = purses.into_iter().filter_map(next).collect();
        for (uid, found) in without_site {
            let entry = self.pods.entry(uid);
            entry.and_modify(|entry| entry.without_site = Some(found));
        }
        self.claims = Arc::new(claims);
        self.stale = snapshot.is_stale(config.telemetry_ttl, now.moment);
        let pause = comparisons.saturating_mul(PAUSE_NANOSECONDS) / 1_000;
        self.paused_until = now.moment.after(Micros(pause as u64));
        let is_ours = |entry: &Entry| is_managed(&entry.pod.namespace);
        let moments = self.pods.values();
        let moments = moments.flat_map(|entry| entry.moments(snapshot, config, is_ours(entry)));
        self.due = moments.filter(|at| *at > now.moment).min();
        let is_limited = |entry: &&Entry| !entry.pod.waited_for_others() && !entry.pod.waits_for_site();
        let ours = self.pods.values().filter(is_limited);
        Plan {
            steps,
            gated: self.pods.len(),
            oldest: ours.map(|entry| entry.since).min(),
            decisions,
        }
    }

    /// The pods that are planned, in the order of the queue; and those that are not, by creation: their constraints are not kept,
    /// or their namespace has not opted in. The label of a namespace may be seen later than its pods.
    fn in_order(
        &self,
        is_managed: impl Fn(&str) -> bool,
        snapshot: &Snapshot,
        config: &Config,
        now: Moment,
    ) -> (Vec<Planned<'_>>, Vec<&Entry>) {
        let (mut in_order, mut alone) = (vec![], vec![]);
        for entry in self.pods.values() {
            match &entry.pod.workload {
                Some(workload) if is_managed(&entry.pod.namespace) => {
                    let is_late = entry.is_late(snapshot, config, now);
                    let age = Age::of(&entry.pod, config, now.since(entry.since), is_late);
                    let known = entry.known_reason(age);
                    let cost = || cost(workload, snapshot) + snapshot.node_count();
                    in_order.push(Planned {
                        queue_key: entry.pod.queue_key_of(workload, config).late(is_late),
                        entry,
                        workload,
                        age,
                        purse: (&entry.pod.namespace, age.is_overdue),
                        known,
                        cost: if known.is_some() { 0 } else { cost() },
                    });
                }
                _ => alone.push(entry),
            }
        }
        in_order.sort_unstable_by_key(|planned| planned.queue_key);
        alone.sort_unstable_by_key(|entry| (!is_managed(&entry.pod.namespace), entry.pod.created, &entry.pod.uid));
        (in_order, alone)
    }
}

/// A gated pod that has a place in the plan.
struct Planned<'p> {
    queue_key: QueueKey,
    entry: &'p Entry,
    workload: &'p Workload<'static>,
    age: Age,
    /// Whose purse pays for it: its namespace, and whether it is past its limit.
    purse: (&'p str, bool),
    /// Why it waits, where that takes no decision.
    known: Option<Reason>,
    /// How many comparisons a decision takes at most.
    cost: usize,
}

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
        let (terminating, limit) = (gating.wait_for_terminating[class], gating.limits[class]);
        [terminating, WAIT_BEFORE_CLAIM, limit]
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
    /// Why it waits: for the gates of others, or for sites to change.
    fn known_reason(&self, age: Age) -> Option<Reason> {
        if self.pod.has_other_gates {
            return Some(Reason::HeldForeignGate);
        }
        let (was_overdue, reason) = self.without_site?;
        (was_overdue == age.is_overdue).then_some(reason)
    }

    /// For how long it may be gated and still meet its deadline, in microseconds.
    fn slack(&self, snapshot: &Snapshot, config: &Config) -> Option<i64> {
        slack(self.pod.workload.as_ref()?, snapshot, config)
    }

    fn is_late(&self, snapshot: &Snapshot, config: &Config, now: Moment) -> bool {
        let gated = now.since(self.since).signed();
        self.slack(snapshot, config).is_some_and(|slack| gated > slack)
    }

    /// The next full seconds after its age, or the outage of a cloud, changes what is to be done: with many gated pods there is
    /// such a moment all the time.
    fn moments(&self, snapshot: &Snapshot, config: &Config, is_managed: bool) -> impl Iterator<Item = Moment> {
        let slack = self.slack(snapshot, config);
        let slack = slack.map(|slack| Micros(slack.max(0).unsigned_abs()));
        let late = slack.map(|slack| self.since.after(slack + Micros(1)));
        let longest = self.pod.longest(config);
        let longest = slack.map_or(longest, |slack| slack.min(longest));
        let away = snapshot.sites.iter().filter_map(|site| site.away_since);
        let lost = away.map(move |since| since.after(longest));
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
