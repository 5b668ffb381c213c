//! What the replica that holds the Lease does about pods that kube-scheduler finds no node for, though another site would
//! take them: tells of them, and, where it may, deletes those whose owner creates them again.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use edgeward_core::config::Config;
use edgeward_core::engine::SharedState;
use edgeward_core::guard::backstop::{BackstopReport, CandidateKey, Evaluation, Finding, Recreation};
use edgeward_core::placement::sentences;
use edgeward_core::units::{Micros, Moment, Now};
use kube::Client;
use tokio::sync::watch;

use super::events::{Events, PodEvent, PodReason};
use super::lease::{Leadership, Term};
use super::pod_patch::{Outcome, Version};
use crate::instruments::metrics::{Found, Metrics, RecreationOutcome};
use crate::platform::clock::Clock;
use crate::platform::token_bucket::TokenBucket;

/// How many pods are deleted at once, and after which time one more.
const BURST: u64 = 10;
const INTERVAL: Micros = Micros::from_secs(6);

/// Evaluates the candidates, again and again.
pub struct Backstop {
    /// Of the cluster whose pods they are.
    pub client: Client,
    /// The candidates, always the newest.
    pub reports: watch::Receiver<Arc<BackstopReport>>,
    /// Settings.
    pub config: Arc<ArcSwap<Config>>,
    /// What is decided on.
    pub shared: Arc<SharedState>,
    /// Where it is told.
    pub events: Events,
    /// The process's clock.
    pub clock: Clock,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
}

impl Backstop {
    /// Evaluates for as long as the Lease is ours, for ever.
    pub async fn run(mut self, leadership: Leadership) {
        let mut limits = Limits {
            recreation: Recreation::default(),
            bucket: TokenBucket::new(BURST, INTERVAL),
        };
        loop {
            let term = leadership.acquired().await;
            tokio::select! {
                () = self.serve(&term, &mut limits) => return,
                () = term.over() => {}
            }
            // Whoever leads now says what there is.
            self.metrics.guards.found(Found::default());
        }
    }

    async fn serve(&mut self, term: &Term, limits: &mut Limits) {
        let mut known = Known::default();
        loop {
            let report = Arc::clone(&self.reports.borrow_and_update());
            self.evaluate(report, &mut known, limits, term).await;
            if self.reports.changed().await.is_err() {
                return;
            }
        }
    }

    async fn evaluate(&self, report: Arc<BackstopReport>, known: &mut Known, limits: &mut Limits, term: &Term) {
        let now = self.clock.now();
        let (config, snapshot) = (self.config.load_full(), self.shared.snapshot());
        let ledger = self.shared.ledger().clone();
        let after = known.stopped_at.take();
        let (reported, settings) = (Arc::clone(&report), Arc::clone(&config));
        // Seconds, where there are many and each has many constraints.
        let evaluated =
            tokio::task::spawn_blocking(move || reported.evaluate(after.as_ref(), &snapshot, &ledger, &settings, now));
        let evaluation = match evaluated.await {
            Ok(evaluation) => evaluation,
            Err(error) => {
                tracing::error!(%error, "the evaluation of pods that find no node was not finished");
                return;
            }
        };
        known.learn(&report, &evaluation);
        let undecided = known.found.values().filter(|is_undecided| **is_undecided).count();
        self.metrics.guards.found(Found {
            misplaced: known.found.len() - undecided,
            undecided,
            bound: report.bound,
        });
        for finding in &evaluation.findings {
            if known.told.insert(Arc::clone(&finding.candidate.pod.uid)) {
                self.events.record(event(finding, now));
            }
        }
        if !config.backstop.recreate {
            return;
        }
        for finding in &evaluation.findings {
            if term.is_held() && limits.take(finding, now.moment) {
                self.delete(finding, limits).await;
            }
        }
    }

    /// Deletes the pod in the version that was evaluated. One that is another by now is evaluated again.
    async fn delete(&self, finding: &Finding, limits: &mut Limits) {
        let pod = &finding.candidate.pod;
        let version = Version {
            namespace: &pod.workload.namespace,
            name: &pod.name,
            resource_version: &pod.resource_version,
        };
        let (namespace, name) = (version.namespace, version.name);
        let outcome = match version.delete(&self.client, &pod.uid).await {
            Outcome::Changed => {
                let (site, reason) = (&*finding.site, finding.reason.as_str());
                tracing::info!(
                    namespace,
                    name,
                    site,
                    reason,
                    "deleted a pod for which there is room elsewhere, for its owner to create it again"
                );
                RecreationOutcome::Deleted
            }
            Outcome::Outdated => RecreationOutcome::Outdated,
            Outcome::Refused(error) | Outcome::Unavailable(error) => {
                tracing::warn!(namespace, name, error, "a pod could not be deleted");
                RecreationOutcome::Refused
            }
        };
        self.metrics.guards.recreation(outcome);
        // What was refused may have been done all the same.
        if outcome != RecreationOutcome::Outdated {
            limits
                .recreation
                .record_deletion(&finding.candidate, self.clock.moment());
        }
    }
}

/// What is known of candidates from the evaluations so far, each of which is of some of them.
#[derive(Default)]
struct Known {
    /// Those that were found when they were last evaluated, and whether they carry no decision.
    found: BTreeMap<Arc<str>, bool>,
    /// Those that people were told of.
    told: BTreeSet<Arc<str>>,
    /// Where the last evaluation stopped.
    stopped_at: Option<CandidateKey>,
}

impl Known {
    fn learn(&mut self, report: &BackstopReport, evaluation: &Evaluation) {
        let there: HashSet<&str> = report.candidates.iter().map(|candidate| &*candidate.pod.uid).collect();
        self.found.retain(|uid, _| there.contains(&**uid));
        self.told.retain(|uid| there.contains(&**uid));
        for candidate in &report.candidates[evaluation.seen.clone()] {
            self.found.remove(&candidate.pod.uid);
        }
        for finding in &evaluation.findings {
            let pod = &finding.candidate.pod;
            self.found.insert(Arc::clone(&pod.uid), pod.decision.is_none());
        }
        self.stopped_at.clone_from(&evaluation.stopped_at);
    }
}

/// How much may be deleted.
struct Limits {
    recreation: Recreation,
    bucket: TokenBucket,
}

impl Limits {
    fn take(&mut self, finding: &Finding, now: Moment) -> bool {
        self.recreation.allows(&finding.candidate, now) && self.bucket.take(now)
    }
}

fn event(finding: &Finding, now: Now) -> PodEvent {
    let candidate = &finding.candidate;
    let pod = &candidate.pod;
    let (decision, reason) = (pod.decision, pod.reason.as_deref().unwrap_or_default());
    let stands = match (decision, &candidate.contribution.site) {
        (Some(_), Some(site)) => format!("sent to site {site} ({reason})"),
        (Some(_), None) => format!("sent to a site that is none any more ({reason})"),
        (None, _) => "created without a decision".to_owned(),
    };
    let seconds = now.moment.since(candidate.since).0 / 1_000_000;
    let (site, fits) = (&finding.site, sentences::fits(finding.fitting as u64));
    let note = format!(
        "{stands}, and kube-scheduler finds no node for it since {seconds} s; decided now it would be sent to site {site}, \
         where it {fits} ({})",
        finding.reason.as_str()
    );
    PodEvent {
        namespace: (&*pod.workload.namespace).into(),
        name: pod.name.clone(),
        uid: (&*pod.uid).into(),
        reason: PodReason::Unschedulable,
        decision,
        at: now.wall,
        note,
    }
}

#[cfg(test)]
mod tests;
