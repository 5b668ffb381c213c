//! Gated pods: their order, their queue claims and their release ("Gated pods" in docs/guide/decide.md).
//!
//! Every replica keeps this list and makes the same plan from the same snapshot. The plan's claims keep room for pods that
//! are ahead. One replica carries the plan out.

mod groups;
mod planning;
mod progress;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::cache::RoomDelta;
use crate::pod_record::GatedPod;
use edgeward_decision::config::Config;
use edgeward_decision::model::group::{Members, Membership};
use edgeward_decision::model::queue_claims::QueueClaims;
use edgeward_decision::model::slo::{Class, PerClass};
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::model::workload::{QueueKey, Workload};
use edgeward_decision::placement::decide::cost;
use edgeward_decision::placement::estimate::{is_late, slack};
use edgeward_decision::placement::ledger::Ledger;
use edgeward_decision::placement::verdict::{Action, Reason, Verdict};
use edgeward_kube::node::NodeId;
use edgeward_kube::units::{Micros, Moment, Now};
use groups::{GroupKey, search_cost};
use planning::{Planning, Purse, purses};

pub use groups::GroupCounts;
pub use progress::{AT_ONCE, PatchResult, Progress};

/// How long a pod waits for room before it claims the node that comes closest to having it.
const WAIT_BEFORE_CLAIM: Micros = Micros::from_secs(60);

/// How late the watch may show a namespace's label. The namespace may have been opted in just before its pod was created.
const NAMESPACE_DELAY: Micros = Micros::from_secs(5);

/// The most comparisons of pods' constraints and tolerations with nodes in one plan, which take some tens of milliseconds.
/// Each purse may exceed its part by one decision, or by the search for a place for one group. The pause after the plan, and
/// so the delay of a limit, is below a second if few namespaces have costly pods.
const MAX_COMPARISONS: usize = 3_000_000;

/// The cost of a gated pod to a plan, in comparisons, in addition to its decision.
const PER_POD: usize = 100;

/// The pause after a plan, for each of its comparisons: four times the time that a comparison takes, with a margin. The
/// pace of plans depends on comparisons and not on time, so the same snapshots give the same plans on any machine.
const PAUSE_NANOSECONDS: usize = 200;

impl GatedPod {
    /// The pod's place in the queue; `None` if its workload is not kept.
    pub fn queue_key(&self, config: &Config) -> Option<QueueKey> {
        Some(self.queue_key_of(self.workload.as_ref()?, config))
    }

    /// The pod's place in the queue with this workload.
    pub fn queue_key_of(&self, workload: &Workload<'_>, config: &Config) -> QueueKey {
        let created = self.created.unwrap_or(jiff::Timestamp::MIN);
        workload.queue_key(&config.priority_caps, Some((created, &self.uid)))
    }

    /// Whether the pod has waited only for gates of others so far, by its annotation.
    fn waited_for_others(&self) -> bool {
        self.reason.as_deref() == Some(Reason::HeldForeignGate.as_str())
    }

    /// Whether the pod waits for a site that is `Away`, by its annotation.
    pub fn waits_for_site(&self) -> bool {
        self.reason.as_deref() == Some(Reason::HeldSiteAway.as_str())
    }

    /// When the pod should have been released at the latest, by its annotations, as of `now`. `None` while it waits for gates of
    /// others or for a site that is `Away`, and for a pod that starts together with others, because the time is unknown then.
    pub fn limit(&self, config: &Config, now: jiff::Timestamp) -> Option<jiff::Timestamp> {
        let starts_together = self
            .membership()
            .is_some_and(|group| group.is_gang || group.size.is_some());
        if self.waited_for_others() || self.waits_for_site() || self.has_other_gates || starts_together {
            return None;
        }
        let since = self.stated.filter(|at| *at <= now).max(self.created)?;
        // While a site is too far from the pod's group, the classes of the other pods count too.
        let waits_for_group = self.reason.as_deref() == Some(Reason::HeldGroup.as_str());
        let of_group = config.gating.limits.0.into_iter().max().filter(|_| waits_for_group);
        let longest = self.longest(config).max(of_group.unwrap_or_default());
        let longest = i64::try_from(longest.0).ok()?;
        since.checked_add(jiff::SignedDuration::from_micros(longest)).ok()
    }

    fn membership(&self) -> Option<&Arc<Membership>> {
        self.workload.as_ref().and_then(Workload::membership)
    }

    /// Whether the pod is of a gang.
    pub fn is_of_gang(&self) -> bool {
        self.membership().is_some_and(|group| group.is_gang)
    }

    /// The longest time that the pod may be gated.
    pub fn longest(&self, config: &Config) -> Micros {
        Age::ends(self, config)[2]
    }
}

/// One entry of a plan.
#[derive(Debug, Clone)]
pub struct PlanEntry {
    /// The pod.
    pub pod: Arc<GatedPod>,
    /// Since when the pod is gated.
    pub since: Moment,
    /// The action for the pod.
    pub action: PlanAction,
    /// The group that is released together, and the pod's site.
    pub together: Option<Together>,
}

/// A part of the release of a whole group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Together {
    /// Namespace and name of the group.
    pub group: Arc<str>,
    /// The site where the plan places the pod.
    pub site: Arc<str>,
}

impl PlanEntry {
    /// Whether both pods are released together.
    pub fn is_of_one_step(&self, other: &Self) -> bool {
        let group = |entry: &Self| entry.together.as_ref().map(|together| Arc::clone(&together.group));
        group(self).is_some() && group(self) == group(other)
    }

    /// Whether the pod stays gated.
    pub fn is_update(&self) -> bool {
        matches!(self.action, PlanAction::UpdateReason(_))
    }
}

/// The action of a plan for a gated pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanAction {
    /// Decide the pod once more and release it, because there is room.
    Release,
    /// Remove the gate and change nothing else, for this reason.
    RemoveGate(Reason),
    /// Keep the pod gated, and write this reason to its annotation.
    UpdateReason(Reason),
}

/// The plan for the gated pods, made from one snapshot.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The entries, in the order of the queue.
    pub entries: Vec<PlanEntry>,
    /// The number of gated pods, including pods with gates of others.
    pub gated: usize,
    /// The number of gated pods with an SLO by class.
    pub gated_by_class: PerClass<usize>,
    /// Since when the longest-gated pod is gated. Pods that wait for gates of others or for a site that is `Away` do not
    /// count.
    pub oldest: Option<Moment>,
    /// The number of decisions that the plan took.
    pub decisions: usize,
    /// Groups that start together and wait.
    pub groups: GroupCounts,
}

impl PlanAction {
    /// The action for a gated pod with this verdict.
    pub fn of(verdict: &Verdict<'_>) -> Self {
        match verdict.action {
            Action::Place(_) => PlanAction::Release,
            Action::Gate => PlanAction::UpdateReason(verdict.reason),
            Action::PassThrough | Action::Deny => PlanAction::RemoveGate(verdict.reason),
        }
    }
}

/// The purses that ran out in a plan, each with the first pod that was not considered. The key is the namespace, and
/// whether its pods are past their limit.
type Unfinished = HashMap<(Box<str>, bool), QueueKey>;

/// The gated pods, and the claims of the last plan.
#[derive(Debug, Default)]
pub struct Waitlist {
    pods: HashMap<Arc<str>, Entry>,
    /// The pods by their groups.
    members: Arc<Members>,
    /// Whether the last plan is out of date.
    changed: bool,
    /// When the passing of time makes the plan out of date.
    due: Option<Moment>,
    /// The claims of the last plan.
    claims: Arc<QueueClaims>,
    unfinished: Unfinished,
    /// Whether the snapshot of the last plan was stale.
    stale: bool,
    /// The value of [`Ledger::freed`] when it was last read.
    freed: u64,
    /// When the pause after the last plan ends.
    paused_until: Moment,
    /// Overrides [`MAX_COMPARISONS`].
    budget: Option<usize>,
}

#[derive(Debug)]
struct Entry {
    pod: Arc<GatedPod>,
    first_seen: Moment,
    since: Moment,
    /// Set if no site has been possible since sites last changed: whether the pod was past its limit, and why it waits.
    without_site: Option<(bool, Reason)>,
}

impl Waitlist {
    /// Adds or updates a pod. Its time begins when its annotation says, or at its creation if that is later or the
    /// annotation is in the future. It restarts when the last gate of others is gone. Otherwise it can only become earlier,
    /// so a user who may write annotations cannot extend it.
    pub fn apply(&mut self, pod: Arc<GatedPod>, now: Now) {
        let old = self.pods.remove(&pod.uid);
        old.iter().for_each(|old| self.count_member(&old.pod.clone(), -1));
        self.count_member(&pod, 1);
        let unchanged = old.as_ref().filter(|old| old.pod.workload == pod.workload);
        let without_site = unchanged.and_then(|old| old.without_site);
        let first_seen = old.as_ref().map_or(now.moment, |old| old.first_seen);
        let moment = |at: jiff::Timestamp| {
            let age = u64::try_from(now.wall.duration_since(at).as_micros()).ok()?;
            Some(now.moment.before(Micros(age)))
        };
        // The clock of the replica that gated the pod may differ from this one's. A pod cannot have been gated before it
        // existed.
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

    /// Removes a pod that is gone or no longer carries edgeward's gate.
    pub fn delete(&mut self, uid: &str) {
        if let Some(gone) = self.pods.remove(uid) {
            self.count_member(&gone.pod, -1);
            self.changed = true;
        }
    }

    /// Keeps the pods that still exist.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        let gone: Vec<_> = self.pods.keys().filter(|uid| !is_there(uid)).cloned().collect();
        gone.iter().for_each(|uid| self.delete(uid));
    }

    /// Changes the number of gated pods of the pod's group.
    fn count_member(&mut self, pod: &GatedPod, by: i64) {
        if let Some(membership) = pod.membership().filter(|_| !pod.has_other_gates) {
            Arc::make_mut(&mut self.members).change(&pod.namespace, membership, by);
        }
    }

    /// The gated pods by their groups.
    pub fn members(&self) -> Arc<Members> {
        Arc::clone(&self.members)
    }

    /// Requests a plan because something other than the pods, the nodes or the time changed.
    pub fn reconsider(&mut self) {
        self.changed = true;
    }

    /// Requests a plan because other sites may be possible for a pod.
    pub fn reconsider_sites(&mut self) {
        self.changed = true;
        self.pods.values_mut().for_each(|entry| entry.without_site = None);
    }

    /// Whether any pod has required affinity to other pods.
    fn waits_for_pods(&self) -> bool {
        let workloads = self.pods.values().filter_map(|entry| entry.pod.workload.as_ref());
        workloads.into_iter().any(|workload| !workload.near.is_empty())
    }

    /// Discards the last plan because nodes or the order of pods may be different. The next plan is made without a pause.
    pub fn reset(&mut self) {
        self.reconsider_sites();
        self.claims = Arc::default();
        self.unfinished.clear();
        self.paused_until = Moment::default();
    }

    /// Applies what changed since the last publication, and the value of [`Ledger::freed`]. Until the next plan, nodes that
    /// gained room are closed to pods behind the first that waits. Cost: a search for each changed node.
    pub fn apply_delta(&mut self, delta: &RoomDelta, freed: u64, is_stale: bool) {
        if delta.sites {
            self.reconsider_sites();
        }
        if self.pods.is_empty() {
            return;
        }
        let is_freed = std::mem::replace(&mut self.freed, freed) != freed;
        let is_claimed = |id: &NodeId| self.claims.on(*id).next().is_some();
        self.changed |= is_freed
            || is_stale != self.stale
            || delta.pods && self.waits_for_pods()
            || (delta.members || delta.distances) && !self.members.is_empty()
            || !delta.gained.is_empty()
            || delta.lost.iter().any(is_claimed);
        if !delta.gained.is_empty() {
            Arc::make_mut(&mut self.claims).close_gained(&delta.gained);
        }
    }

    /// Whether no pod is gated.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// When the next plan is due.
    pub fn next_change(&self) -> Option<Moment> {
        let is_due = self.changed || !self.unfinished.is_empty();
        let at = if is_due { Some(self.paused_until) } else { self.due };
        at.map(|at| at.max(self.paused_until))
    }

    /// The pod's position in the order of a plan, and the number of pods before it; `None` if it has none.
    pub fn position(&self, uid: &str, snapshot: &Snapshot, config: &Config, now: Moment) -> Option<(QueueKey, usize)> {
        let key = |entry: &Entry| {
            let workload = entry.pod.workload.as_ref()?;
            let is_late = is_late(workload, snapshot, config, now.since(entry.since));
            Some(entry.pod.queue_key_of(workload, config).late(is_late))
        };
        let own = key(self.pods.get(uid)?)?;
        let keys = self.pods.values().filter_map(key);
        Some((own, keys.filter(|other| *other < own).count()))
    }

    /// The claims of the last plan.
    pub fn claims(&self) -> Arc<QueueClaims> {
        Arc::clone(&self.claims)
    }

    /// Whether a plan is due: the last one is out of date or did not finish, and the pause after it is over.
    pub fn wants_plan(&self, now: Moment) -> bool {
        self.next_change().is_some_and(|at| at <= now)
    }

    /// Decides about every gated pod that has no other gate than edgeward's, in the order of the queue. Each pod gets the
    /// room that earlier pods left, and room for placed pods is claimed. A purse that ran out in the last plan continues
    /// where it stopped.
    ///
    /// Cost: a decision for each pod, with at most `MAX_COMPARISONS` comparisons in total. Pods that differ only in age and
    /// find no room share one decision for each stage of their age. The stages are: waiting for terminating pods, before
    /// and after `WAIT_BEFORE_CLAIM`, late, and past the limit. A pod for which no site is possible takes one decision
    /// until sites change.
    pub fn plan(
        &mut self,
        snapshot: &Snapshot,
        ledger: &Ledger,
        config: &Config,
        is_managed: impl Fn(&str) -> bool,
        now: Now,
    ) -> Plan {
        // Pods before the point where this plan continues do not see what changed, so another plan must follow.
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
            entries: vec![],
            groups: GroupCounts::default(),
            distances: None,
            due: None,
            decisions: 0,
            comparisons: 0,
        };
        let mut groups = groups::groups(&in_order);
        for planned in &in_order {
            // A group is considered at the place of its first pod.
            match planned.group() {
                None => planning.consider(planned),
                Some(key) => planning.consider_group(&groups.remove(&key).unwrap_or_default()),
            }
        }
        planning.consider_alone(&alone, &is_managed);
        let (purses, claims, without_site) = (planning.purses, planning.claims, planning.without_site);
        let (entries, decisions, comparisons) = (planning.entries, planning.decisions, planning.comparisons);
        let (groups, group_due) = (planning.groups, planning.due);
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
        self.due = moments.filter(|at| *at > now.moment).chain(group_due).min();
        let is_limited =
            |entry: &&Entry| !entry.pod.waited_for_others() && !entry.pod.waits_for_site() && !entry.pod.is_of_gang();
        let ours = self.pods.values().filter(is_limited);
        let mut gated_by_class = PerClass::default();
        let classes = self.pods.values().filter_map(|entry| entry.pod.class);
        classes.for_each(|class| gated_by_class[class] += 1);
        Plan {
            entries,
            gated: self.pods.len(),
            gated_by_class,
            oldest: ours.map(|entry| entry.since).min(),
            decisions,
            groups,
        }
    }

    /// Returns the planned pods in the order of the queue, and the other pods by creation. The constraints of the other
    /// pods are not kept, or their namespace has not opted in. A namespace's label may be seen later than its pods.
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
                    let is_late = is_late(workload, snapshot, config, now.since(entry.since));
                    let age = Age::of(&entry.pod, config, now.since(entry.since), is_late);
                    let known = entry.known_reason(age);
                    let group = workload.membership();
                    let size = group.and_then(|group| snapshot.size_of(&entry.pod.namespace, group));
                    let cost = || cost(workload, snapshot) + snapshot.node_count();
                    in_order.push(Planned {
                        queue_key: entry.pod.queue_key_of(workload, config).late(is_late),
                        entry,
                        since: entry.since,
                        workload,
                        age,
                        purse: (&entry.pod.namespace, age.is_overdue),
                        known,
                        size,
                        cost: if known.is_some() { 0 } else { cost() },
                        search_cost: size
                            .filter(|_| known.is_none())
                            .map_or(0, |size| search_cost(snapshot, size)),
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

/// A gated pod with a place in the plan.
#[derive(Clone, Copy)]
struct Planned<'p> {
    queue_key: QueueKey,
    entry: &'p Entry,
    /// Since when the pod counts as gated.
    since: Moment,
    workload: &'p Workload<'static>,
    age: Age,
    /// The purse that pays for the pod: its namespace, and whether the pod is past its limit.
    purse: (&'p str, bool),
    /// Why the pod waits, if that is known without a decision.
    known: Option<Reason>,
    /// The number of pods of its group that start together.
    size: Option<u32>,
    /// The most comparisons that a decision takes.
    cost: usize,
    /// The comparisons that the pod adds to the purse for the search of its group.
    search_cost: usize,
}

impl<'p> Planned<'p> {
    /// The group with which the pod starts together.
    fn group(&self) -> Option<GroupKey<'p>> {
        self.size?;
        let membership = self.workload.membership()?;
        Some((&self.entry.pod.namespace, &membership.group))
    }

    /// Whether the pod's controller spreads its pods over sites.
    fn spreads(&self) -> bool {
        self.workload.intent.as_ref().is_some_and(|intent| intent.spreads)
    }

    /// The pod's namespace and group.
    fn member(&self) -> Option<(Box<str>, Arc<Membership>)> {
        let membership = self.workload.membership()?;
        Some((self.entry.pod.namespace.clone(), Arc::clone(membership)))
    }

    /// The pod as if it were gated since then and past its limit.
    fn overdue_since(&self, since: Moment) -> Self {
        let age = Age {
            is_overdue: true,
            ..self.age
        };
        Self { since, age, ..*self }
    }
}

/// The stages of a gated pod's age that matter to its decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Age {
    waits_for_terminating: bool,
    waits_to_claim: bool,
    is_late: bool,
    is_overdue: bool,
}

impl Age {
    /// The ages at which the pod stops waiting for terminating pods, may claim a node, and reaches its limit.
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
    /// Why the pod waits, if it waits for gates of others or for sites to change.
    fn known_reason(&self, age: Age) -> Option<Reason> {
        if self.pod.has_other_gates {
            return Some(Reason::HeldForeignGate);
        }
        let (was_overdue, reason) = self.without_site?;
        (was_overdue == age.is_overdue).then_some(reason)
    }

    /// The moments at which the pod's age or the outage of a cloud may change the plan, rounded up to full seconds. With
    /// many gated pods, there would otherwise be such a moment all the time.
    fn moments(&self, snapshot: &Snapshot, config: &Config, is_managed: bool) -> impl Iterator<Item = Moment> {
        let workload = self.pod.workload.as_ref();
        let slack = workload.and_then(|workload| slack(workload, snapshot, config));
        let slack = slack.map(|slack| Micros(slack.max(0).unsigned_abs()));
        let late = slack.map(|slack| self.since.after(slack + Micros(1)));
        let longest = self.pod.longest(config);
        let longest = slack.map_or(longest, |slack| slack.min(longest));
        let away = snapshot.sites.iter().filter_map(|site| site.away_since);
        let lost = away.map(move |since| since.after(longest));
        let moments = Age::ends(&self.pod, config).map(|age| self.since.after(age));
        let of_group = self.pod.membership().map(|_| config.gating.limits.0);
        let of_group = of_group.into_iter().flatten().map(|limit| self.since.after(limit));
        let namespace_known = (!is_managed).then(|| self.first_seen.after(NAMESPACE_DELAY));
        let full_second = |at: Moment| {
            let rest = (-at.0).rem_euclid(1_000_000);
            at.after(Micros(rest.unsigned_abs()))
        };
        let moments = moments.into_iter().chain(of_group).chain(late).chain(lost);
        moments.chain(namespace_known).map(full_second)
    }
}

#[cfg(test)]
mod tests;
