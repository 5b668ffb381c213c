//! Finds pods that were created without the webhook, and pods that kube-scheduler cannot place where they were sent.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Cache;
use crate::pod_record::{PodRecord, StuckPod};
use edgeward_decision::config::Config;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::slo::Class;
use edgeward_decision::model::snapshot::{QueueGroup, Snapshot};
use edgeward_decision::model::workload::Workload;
use edgeward_decision::placement::decide::decide_with_scores;
use edgeward_decision::placement::ledger::Ledger;
use edgeward_decision::placement::room::Room;
use edgeward_decision::placement::verdict::{Action, Reason, Standing};
use edgeward_kube::units::{Micros, Moment, Now};

/// How long kube-scheduler must have found no node for a pod, as seen by this replica, before the pod is a candidate.
pub const STUCK_AFTER: Micros = Micros::from_secs(30);

/// The most candidates that are evaluated, at the cost of a decision each. Further ones are not reported. The namespaces take
/// turns, so that the pods of one do not hide those of others.
const MAX_EVALUATED: usize = 1_000;

/// The shortest time between two reports.
const PERIOD: Micros = Micros::from_secs(5);

/// Decides when the pods of the cache are checked.
#[derive(Debug, Default)]
pub struct Backstop {
    /// The earliest creation time, in seconds, of a pod that was seen with a decision, by namespace. Forgotten when the
    /// namespace opts out.
    decided_since: BTreeMap<Box<str>, i64>,
    reported_at: Option<Moment>,
    /// When the next report is due.
    due: Option<Moment>,
}

/// The candidates, and the number of pods that run without a decision.
#[derive(Debug, Clone, Default)]
pub struct BackstopReport {
    /// Pods that have been stuck for at least [`STUCK_AFTER`]: the longest of each namespace, then the second of each.
    pub candidates: Vec<Candidate>,
    /// The number of pods in opted-in namespaces that run without a decision, although an earlier pod there has one.
    pub bound: usize,
}

/// A pod for which kube-scheduler has long found no node. Another site may have one.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The pod.
    pub pod: Arc<StuckPod>,
    /// Since when the pod is seen without a node.
    pub since: Moment,
    /// The part of the snapshot that comes from the pod.
    pub contribution: Contribution,
}

/// A candidate that would now be placed at another site, where it fits or misses only a time bound.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The candidate.
    pub candidate: Candidate,
    /// The site where it would be placed.
    pub site: String,
    /// The reason of that placement.
    pub reason: Reason,
    /// The standing of that site.
    pub standing: Standing,
    /// The number of nodes there that it fits.
    pub fitting: usize,
}

impl Backstop {
    /// Applies a pod as it is now.
    pub fn apply(&mut self, record: &PodRecord) {
        let is_decided = record.decision.as_deref().and_then(DecisionId::parse).is_some();
        if let (true, Some(created)) = (is_decided, record.created) {
            let created = created.as_second();
            let since = self.decided_since.entry(record.namespace.clone()).or_insert(created);
            *since = created.min(*since);
        }
        self.wake();
    }

    /// Handles a namespace that is gone or not opted in. It is then unknown whether the webhook is called for its pods.
    pub fn opted_out(&mut self, namespace: &str) {
        self.decided_since.remove(namespace);
    }

    /// When the next report is due.
    pub fn next_change(&self) -> Option<Moment> {
        self.due
    }

    /// The report, if it is due. Cost: a pass over all pods.
    pub fn report(&mut self, cache: &Cache, now: Moment) -> Option<BackstopReport> {
        self.due.filter(|due| *due <= now)?;
        self.reported_at = Some(now);
        let ripe_at = cache.stuck_pods().map(|(_, since)| since.after(STUCK_AFTER)).min();
        self.due = ripe_at.map(|at| at.max(now.after(PERIOD)));
        let candidate = |(pod, since): (&Arc<StuckPod>, Moment)| {
            let is_ripe = since.after(STUCK_AFTER) <= now && cache.is_managed(&pod.workload.namespace);
            Some(Candidate {
                pod: Arc::clone(pod),
                since,
                contribution: cache.contribution(&pod.uid).filter(|_| is_ripe)?,
            })
        };
        let mut candidates: Vec<_> = cache.stuck_pods().filter_map(candidate).collect();
        candidates.sort_by(|a, b| (a.since, &a.pod.uid).cmp(&(b.since, &b.pod.uid)));
        let mut turns = BTreeMap::<Box<str>, usize>::new();
        let numbered = candidates.into_iter().map(|candidate| {
            let turn = turns.entry((*candidate.pod.workload.namespace).into()).or_default();
            *turn += 1;
            (*turn, candidate)
        });
        let mut numbered: Vec<_> = numbered.collect();
        numbered.sort_by_key(|(turn, _)| *turn);
        let is_missed = |(namespace, created): &(&str, i64)| {
            let since = self.decided_since.get(*namespace);
            cache.is_managed(namespace) && since.is_some_and(|since| since < created)
        };
        Some(BackstopReport {
            candidates: numbered.into_iter().map(|(_, candidate)| candidate).collect(),
            bound: cache.undecided_pods().filter(is_missed).count(),
        })
    }

    /// Makes a report due because pods changed.
    pub fn wake(&mut self) {
        let soon = self
            .reported_at
            .map_or(Moment(i64::MIN), |reported_at| reported_at.after(PERIOD));
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }
}

/// The part of a site's queues that comes from a pod that kube-scheduler has refused. Such a pod charges no node.
#[derive(Debug, Clone, Default)]
pub struct Contribution {
    /// The site whose selector the pod carries.
    pub site: Option<Box<str>>,
    /// Whether the pod fits a node by edgeward's arithmetic. If so, it waits for something that edgeward does not evaluate.
    pub fits: bool,
    /// The queue group that counts the pod: class, pod priority and SLO priority; `None` if there is none.
    pub(crate) group: Option<(Class, i32, u8)>,
}

impl Contribution {
    /// Returns the snapshot without this pod. Cost: a copy, without the nodes.
    pub fn removed_from(&self, snapshot: &Snapshot, workload: &Workload<'_>) -> Snapshot {
        let mut snapshot = snapshot.clone();
        let is_its = |name: &str| self.site.as_deref() == Some(name);
        let Some(site) = snapshot.sites.iter_mut().find(|site| is_its(site.name())) else {
            return snapshot;
        };
        let mut queues = site.queues.iter_mut();
        let is_its = |queue: &&mut QueueGroup| Some((queue.class, queue.priority, queue.slo_priority)) == self.group;
        if let Some(queue) = queues.find(is_its) {
            queue.waiting = queue.waiting.saturating_sub(1);
        }
        if let Some(membership) = workload.membership() {
            Arc::make_mut(&mut site.members).leave_out(&workload.namespace, membership);
        }
        if let (true, Some(uid)) = (self.fits, workload.controller.as_deref()) {
            Arc::make_mut(&mut site.closed).change(&workload.namespace, uid, -1);
        }
        snapshot
    }
}

impl BackstopReport {
    /// The candidates that would now be placed at another site, each on its own. Empty if the snapshot is too old to choose
    /// between sites. Cost: for each candidate, a decision and a copy of the snapshot without its nodes.
    pub fn evaluate(&self, snapshot: &Snapshot, ledger: &Ledger, config: &Config, now: Now) -> Vec<Finding> {
        if snapshot.is_stale(config.telemetry_ttl, now.moment) {
            return vec![];
        }
        let candidates = self.candidates.iter().take(MAX_EVALUATED);
        candidates
            .filter_map(|candidate| candidate.evaluate(snapshot, ledger, config, now))
            .collect()
    }
}

impl Candidate {
    /// Whether the candidate is at this site. A pod without a placement is taken to be at the edge if it fits a node,
    /// because kube-scheduler puts such pods there.
    fn is_at(&self, name: &str, kind: SiteKind) -> bool {
        match &self.contribution.site {
            Some(site) => **site == *name,
            None => self.contribution.fits && kind == SiteKind::Edge,
        }
    }

    /// The finding if the pod would be placed at another site that has room, if it were created again.
    pub(crate) fn evaluate(&self, snapshot: &Snapshot, ledger: &Ledger, config: &Config, now: Now) -> Option<Finding> {
        // kube-scheduler asks about such a pod on each try. A new one would get no other answer.
        if config.extender.enabled && self.pod.decision.is_none() {
            return None;
        }
        let snapshot = self.contribution.removed_from(snapshot, &self.pod.workload);
        // The pod as its owner would create it, without the placement.
        let of_site = |name: &str| snapshot.sites.iter().find(|site| site.name() == name);
        let site = self.contribution.site.as_deref().and_then(of_site);
        let decided = self
            .pod
            .decision
            .map(|_| self.pod.reason.as_deref().unwrap_or_default());
        let workload = self.pod.workload();
        let workload = workload.without_placement(decided, site.map(|site| &*site.definition));
        let queue_key = workload.queue_key(&config.priority_caps, None);
        let room = Room::new(&snapshot, ledger, queue_key, &workload.namespace);
        let verdict = decide_with_scores(&workload, &room, config, now);
        let Action::Place(site) = verdict.action else {
            return None;
        };
        let chosen = verdict.chosen().filter(|chosen| chosen.standing() <= Standing::Late)?;
        let moves = !self.is_at(site.name(), site.kind());
        moves.then(|| Finding {
            candidate: self.clone(),
            site: site.name().to_owned(),
            reason: verdict.reason,
            standing: chosen.standing(),
            fitting: chosen.fitting.len(),
        })
    }
}

#[cfg(test)]
mod tests;
