//! Pods that were created while the webhook was away, and pods that kube-scheduler cannot place where they were sent.
//!
//! What was decided cannot be taken back on a pod that exists. But a pod whose owner creates another in its place can be
//! deleted, and the other is decided by what is there then.

mod recreation;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::cluster::cache::{Cache, Contribution};
use crate::config::Config;
use crate::model::claims::{Claim, Claims};
use crate::model::decision_id::DecisionId;
use crate::model::pod_record::{Phase, PodRecord, StuckPod};
use crate::model::site::SiteKind;
use crate::model::snapshot::{ByController, Snapshot};
use crate::model::workload::Workload;
use crate::placement::decide::decide;
use crate::placement::ledger::Ledger;
use crate::placement::room::Room;
use crate::placement::verdict::{Action, Reason};
use crate::units::{Micros, Moment, Now};

pub use recreation::Recreation;

/// For how long kube-scheduler must have found no node for a pod, as far as we have seen, for it to be a candidate.
pub const STUCK_AFTER: Micros = Micros::from_secs(30);

/// The shortest time between two reports.
const PERIOD: Micros = Micros::from_secs(5);

/// How many decisions an evaluation takes at most; of pods with many constraints each can take some milliseconds.
const BUDGET: usize = 200;

/// Keeps the pods that the backstop is for.
#[derive(Debug, Default)]
pub struct Backstop {
    stuck: HashMap<Arc<str>, Stuck>,
    /// Pods that are bound without a decision, by uid: namespace and time of creation.
    bound: HashMap<Box<str>, (Box<str>, jiff::Timestamp)>,
    /// When the oldest pod was created that was seen with a decision, by namespace; of those that have not opted out since.
    decided_since: BTreeMap<Box<str>, jiff::Timestamp>,
    reported_at: Option<Moment>,
    /// When the next report is to be made.
    due: Option<Moment>,
}

#[derive(Debug)]
struct Stuck {
    pod: Arc<StuckPod>,
    since: Moment,
}

/// The candidates, and what else the backstop counts.
#[derive(Debug, Clone, Default)]
pub struct BackstopReport {
    /// Pods that are stuck for [`STUCK_AFTER`] and more, those first that are stuck longest.
    pub candidates: Vec<Candidate>,
    /// How many pods of opted-in namespaces run without a decision, although others there were decided before them.
    pub bound: usize,
}

/// A pod that kube-scheduler has found no node for, for long: perhaps there is one at another site.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The pod.
    pub pod: Arc<StuckPod>,
    /// Since when it was seen like that.
    pub since: Moment,
    /// What it adds to the snapshot.
    pub contribution: Contribution,
    /// How many pods its controller has, as far as they have not ended.
    pub siblings: u32,
}

/// A candidate's place in the order in which they are evaluated.
pub type CandidateKey = (Moment, Arc<str>);

/// What one evaluation has found out.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Those that would be sent to another site now.
    pub findings: Vec<Finding>,
    /// The candidates that were evaluated, by their place in the report.
    pub seen: Range<usize>,
    /// Behind which of them the next evaluation goes on; `None` where this one has come to the end.
    pub stopped_at: Option<CandidateKey>,
}

/// A candidate that would be sent to another site now, where it fits.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The pod.
    pub candidate: Candidate,
    /// The site it would be sent to.
    pub site: String,
    /// Why.
    pub reason: Reason,
    /// On how many nodes it fits there.
    pub fitting: usize,
}

impl Backstop {
    /// A pod as it is now.
    pub fn apply(&mut self, record: &PodRecord, now: Moment) {
        let is_decided = record.decision.as_deref().and_then(DecisionId::parse).is_some();
        if let (true, Some(created)) = (is_decided, record.created) {
            let since = self.decided_since.entry(record.namespace.clone()).or_insert(created);
            if created < *since {
                *since = created;
                self.wake();
            }
        }
        let is_bound = record.node.is_some() && record.phase != Phase::Finished;
        let is_known = match record.created.filter(|_| record.undecided && is_bound) {
            Some(created) => {
                let known = (record.namespace.clone(), created);
                self.bound.insert(record.uid.clone(), known).is_some()
            }
            None => self.bound.remove(&record.uid).is_none(),
        };
        let before = self.stuck.remove(&*record.uid);
        if !is_known || before.is_some() || record.stuck.is_some() {
            self.wake();
        }
        if let Some(pod) = &record.stuck {
            let stuck = Stuck {
                pod: Arc::clone(pod),
                since: before.map_or(now, |before| before.since),
            };
            self.stuck.insert(Arc::clone(&stuck.pod.uid), stuck);
        }
    }

    /// A pod is gone.
    pub fn delete(&mut self, uid: &str) {
        if self.stuck.remove(uid).is_some() | self.bound.remove(uid).is_some() {
            self.wake();
        }
    }

    /// Keeps the pods that are still there.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.stuck.retain(|uid, _| is_there(uid));
        self.bound.retain(|uid, _| is_there(uid));
        self.wake();
    }

    /// A namespace is gone, or not opted in: whether the webhook is called for its pods is not known any more.
    pub fn opted_out(&mut self, namespace: &str) {
        self.decided_since.remove(namespace);
    }

    /// When the next report is to be made.
    pub fn next_change(&self) -> Option<Moment> {
        self.due
    }

    /// The report, if it is time for that. Cost: a pass over the pods that are kept; over all pods where one of them is a
    /// candidate that would be replaced.
    pub fn report(&mut self, cache: &Cache, now: Moment) -> Option<BackstopReport> {
        self.due.filter(|due| *due <= now)?;
        self.reported_at = Some(now);
        let ripe_at = self.stuck.values().map(|stuck| stuck.since.after(STUCK_AFTER)).min();
        self.due = ripe_at.map(|at| at.max(now.after(PERIOD)));
        let candidate = |stuck: &Stuck| {
            let is_ripe = stuck.since.after(STUCK_AFTER) <= now && cache.is_managed(&stuck.pod.workload.namespace);
            Some(Candidate {
                pod: Arc::clone(&stuck.pod),
                since: stuck.since,
                contribution: cache.contribution(&stuck.pod.uid).filter(|_| is_ripe)?,
                siblings: 0,
            })
        };
        let mut candidates: Vec<_> = self.stuck.values().filter_map(candidate).collect();
        candidates.sort_by(|a, b| a.key().cmp(&b.key()));
        let mut owners = ByController::default();
        let replaced = candidates.iter().filter(|candidate| candidate.pod.is_replaced);
        for candidate in replaced {
            let workload = &candidate.pod.workload;
            if let Some(uid) = &workload.controller {
                owners.entry(&workload.namespace, uid).or_insert(0_u32);
            }
        }
        cache.count_pods_of(&mut owners);
        for candidate in &mut candidates {
            let workload = &candidate.pod.workload;
            let owner = workload.controller.as_deref();
            candidate.siblings = owner
                .and_then(|uid| owners.get(&workload.namespace, uid))
                .copied()
                .unwrap_or(0);
        }
        let is_missed = |(namespace, created): &&(Box<str>, jiff::Timestamp)| {
            let since = self.decided_since.get(namespace);
            cache.is_managed(namespace) && since.is_some_and(|since| since < created)
        };
        Some(BackstopReport {
            candidates,
            bound: self.bound.values().filter(is_missed).count(),
        })
    }

    fn wake(&mut self) {
        let soon = self
            .reported_at
            .map_or(Moment(i64::MIN), |reported_at| reported_at.after(PERIOD));
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }
}

impl BackstopReport {
    /// Which candidates would be sent to another site now and fit there, beside those before them in this evaluation, which
    /// begins behind `after`, where the one before it stopped. Nothing is found in a snapshot that is too old to send a pod away on.
    /// Cost: a decision and a copy of the snapshot for each that is not like one before it which is well where it is; after 200
    /// of them it stops.
    pub fn evaluate(
        &self,
        after: Option<&CandidateKey>,
        snapshot: &Snapshot,
        ledger: &Ledger,
        config: &Config,
        now: Now,
    ) -> Evaluation {
        let all = self.candidates.len();
        if snapshot.is_stale(config.telemetry_ttl, now.moment) {
            return Evaluation {
                findings: vec![],
                seen: 0..all,
                stopped_at: None,
            };
        }
        let is_seen = |candidate: &Candidate| after.is_some_and(|after| candidate.key() <= (after.0, &after.1));
        let begin = Some(self.candidates.partition_point(is_seen)).filter(|begin| *begin < all);
        let mut seen = begin.unwrap_or(0)..all;
        let mut claims = Claims::clone(&snapshot.claims);
        let mut unplaceable: Vec<&Candidate> = vec![];
        let mut findings = vec![];
        for (at, candidate) in self.candidates.iter().enumerate().skip(seen.start) {
            // Since there was no place for its like, there was only taken from what is left.
            if unplaceable.iter().any(|other| candidate.is_like(other)) {
                continue;
            }
            if findings.len() + unplaceable.len() == BUDGET {
                seen.end = at;
                break;
            }
            match candidate.evaluate(snapshot, ledger, &mut claims, config, now) {
                Some(finding) => findings.push(finding),
                None => unplaceable.push(candidate),
            }
        }
        let last = self.candidates[seen.clone()].last().filter(|_| seen.end < all);
        Evaluation {
            findings,
            stopped_at: last.map(|last| (last.since, Arc::clone(&last.pod.uid))),
            seen,
        }
    }
}

impl Candidate {
    fn key(&self) -> (Moment, &Arc<str>) {
        (self.since, &self.pod.uid)
    }

    /// Whether it is at this site. A pod without a placement that kube-scheduler refuses although it fits a node is at the edge,
    /// where pods go that nobody sends away.
    fn is_at(&self, name: &str, kind: SiteKind) -> bool {
        match &self.contribution.site {
            Some(site) => **site == *name,
            None => self.contribution.fits && kind == SiteKind::Edge,
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.contribution == other.contribution
            && self.pod.reason == other.pod.reason
            && self.pod.workload == other.pod.workload
            && self.pod.placement == other.pod.placement
    }

    /// Where it would be sent if it were created again, unless that is where it is; what it takes there is claimed.
    fn evaluate(
        &self,
        snapshot: &Snapshot,
        ledger: &Ledger,
        claims: &mut Claims,
        config: &Config,
        now: Now,
    ) -> Option<Finding> {
        let snapshot = self.contribution.removed_from(snapshot, &self.pod.workload);
        let workload = self.recreated(&snapshot);
        let room = Room::beside(
            &snapshot,
            ledger,
            claims,
            workload.queue_key(&config.priority_caps, None),
            &workload.namespace,
        );
        let verdict = decide(&workload, &room, config, now);
        let Action::Place(site) = verdict.action else {
            return None;
        };
        let chosen = verdict.chosen().filter(|chosen| chosen.takes_for_sure())?;
        if self.is_at(site.name(), site.kind()) {
            return None;
        }
        let finding = Finding {
            candidate: self.clone(),
            site: site.name().to_owned(),
            reason: verdict.reason,
            fitting: chosen.fitting.len(),
        };
        let claim = Claim {
            uid: Arc::clone(&self.pod.uid),
            // Before whoever is created again.
            queue_key: workload.queue_key(&config.priority_caps, Some((jiff::Timestamp::MIN, &self.pod.uid))),
            site: site.name().into(),
            amount: workload.request.clone(),
            has_room: true,
        };
        if let Some(node) = verdict.node {
            claims.add(node, claim);
        }
        Some(finding)
    }

    /// The pod as its owner would create it.
    fn recreated(&self, snapshot: &Snapshot) -> Workload<'static> {
        let of_site = |name: &str| snapshot.sites.iter().find(|site| site.name() == name);
        let site = self.contribution.site.as_deref().and_then(of_site);
        let reason = self.pod.reason.as_deref().unwrap_or_default();
        let workload = self.pod.workload();
        workload.without_placement(self.pod.decision.map(|_| reason), site.map(|site| &*site.definition))
    }
}

#[cfg(test)]
mod tests;
