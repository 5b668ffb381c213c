//! Finds pods that were created without the webhook, and pods that kube-scheduler cannot place where they were sent.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::cache::{Cache, Contribution};
use crate::pod_record::{Phase, PodRecord, StuckPod};
use edgeward_decision::config::Config;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::placement::decide::decide;
use edgeward_decision::placement::ledger::Ledger;
use edgeward_decision::placement::room::Room;
use edgeward_decision::placement::verdict::{Action, Reason, Standing};
use edgeward_kube::units::{Micros, Moment, Now};

/// How long kube-scheduler must have found no node for a pod, as seen by this replica, before the pod is a candidate.
pub const STUCK_AFTER: Micros = Micros::from_secs(30);

/// The most kinds of pods that are evaluated, at the cost of a decision each. Pods of further kinds are not reported.
const MAX_KINDS: usize = 1_000;

/// The shortest time between two reports.
const PERIOD: Micros = Micros::from_secs(5);

/// Keeps the pods that the backstop checks.
#[derive(Debug, Default)]
pub struct Backstop {
    /// Pods for which kube-scheduler finds no node, by uid, and since when that is seen.
    stuck: HashMap<Arc<str>, (Arc<StuckPod>, Moment)>,
    /// Pods that are bound without a decision, by uid: namespace and creation time.
    bound: HashMap<Box<str>, (Box<str>, jiff::Timestamp)>,
    /// The earliest creation time of a pod that was seen with a decision, by namespace. Forgotten when the namespace opts
    /// out.
    decided_since: BTreeMap<Box<str>, jiff::Timestamp>,
    reported_at: Option<Moment>,
    /// When the next report is due.
    due: Option<Moment>,
}

/// The candidates, and the number of pods that run without a decision.
#[derive(Debug, Clone, Default)]
pub struct BackstopReport {
    /// Pods that have been stuck for at least [`STUCK_AFTER`], the longest first.
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
    /// The number of nodes there that it fits.
    pub fitting: usize,
}

impl Backstop {
    /// Applies a pod as it is now.
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
            let since = before.map_or(now, |(_, since)| since);
            self.stuck.insert(Arc::clone(&pod.uid), (Arc::clone(pod), since));
        }
    }

    /// Removes a pod that is gone.
    pub fn delete(&mut self, uid: &str) {
        if self.stuck.remove(uid).is_some() | self.bound.remove(uid).is_some() {
            self.wake();
        }
    }

    /// Keeps the pods that still exist.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.stuck.retain(|uid, _| is_there(uid));
        self.bound.retain(|uid, _| is_there(uid));
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

    /// The report, if it is due. Cost: a pass over the kept pods.
    pub fn report(&mut self, cache: &Cache, now: Moment) -> Option<BackstopReport> {
        self.due.filter(|due| *due <= now)?;
        self.reported_at = Some(now);
        let ripe_at = self.stuck.values().map(|(_, since)| since.after(STUCK_AFTER)).min();
        self.due = ripe_at.map(|at| at.max(now.after(PERIOD)));
        let candidate = |(pod, since): &(Arc<StuckPod>, Moment)| {
            let is_ripe = since.after(STUCK_AFTER) <= now && cache.is_managed(&pod.workload.namespace);
            Some(Candidate {
                pod: Arc::clone(pod),
                since: *since,
                contribution: cache.contribution(&pod.uid).filter(|_| is_ripe)?,
            })
        };
        let mut candidates: Vec<_> = self.stuck.values().filter_map(candidate).collect();
        candidates.sort_by(|a, b| (a.since, &a.pod.uid).cmp(&(b.since, &b.pod.uid)));
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
    /// The candidates that would now be placed at another site, each on its own. Empty if the snapshot is too old to choose
    /// between sites. Cost: for each kind of candidate, a decision and a copy of the snapshot without its nodes.
    pub fn evaluate(&self, snapshot: &Snapshot, ledger: &Ledger, config: &Config, now: Now) -> Vec<Finding> {
        if snapshot.is_stale(config.telemetry_ttl, now.moment) {
            return vec![];
        }
        let mut destinations = HashMap::new();
        let mut findings = vec![];
        for candidate in &self.candidates {
            let (contribution, pod) = (&candidate.contribution, &*candidate.pod);
            let asks = (&pod.workload, &pod.placement);
            let kind = (contribution, asks, &pod.reason, pod.decision.is_some());
            if destinations.len() == MAX_KINDS && !destinations.contains_key(&kind) {
                continue;
            }
            let destination = destinations
                .entry(kind)
                .or_insert_with(|| candidate.destination(snapshot, ledger, config, now));
            if let Some((site, reason, fitting)) = destination.clone() {
                findings.push(Finding {
                    candidate: candidate.clone(),
                    site,
                    reason,
                    fitting,
                });
            }
        }
        findings
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

    /// The site where the pod would be placed if it were created again, the reason, and the number of nodes there that it
    /// fits. `None` if it is there already, or if the site has no room.
    fn destination(
        &self,
        snapshot: &Snapshot,
        ledger: &Ledger,
        config: &Config,
        now: Now,
    ) -> Option<(String, Reason, usize)> {
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
        let verdict = decide(&workload, &room, config, now);
        let Action::Place(site) = verdict.action else {
            return None;
        };
        let chosen = verdict.chosen().filter(|chosen| chosen.standing() <= Standing::Late)?;
        let moves = !self.is_at(site.name(), site.kind());
        moves.then(|| (site.name().to_owned(), verdict.reason, chosen.fitting.len()))
    }
}

#[cfg(test)]
mod tests;
