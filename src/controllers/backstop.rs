//! What the replica that holds the Lease does about pods that kube-scheduler finds no node for, though another site would
//! take them: tells of them, and, where it may, deletes those whose owner creates them anew.

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use kube::Client;
use tokio::sync::watch;

use super::bucket::Bucket;
use super::events::{Events, PodEvent, PodReason};
use super::executor::Books;
use super::lease::{Leadership, Term};
use super::pod_patch::{Outcome, Version};
use crate::backstop::{Finding, Recreation, Survey};
use crate::clock::Clock;
use crate::metrics::{Found, Metrics, RecreationOutcome};
use crate::units::{Micros, Moment, Now};

/// How many pods are deleted at once, and after which time one more.
const BURST: u64 = 10;
const INTERVAL: Micros = Micros::from_secs(6);

/// Looks at what is found, again and again.
pub struct Backstop {
    /// Of the cluster whose pods they are.
    pub client: Client,
    /// What there is to be looked at, always the newest.
    pub surveys: watch::Receiver<Arc<Survey>>,
    /// What is decided by.
    pub books: Books,
    /// Where it is told.
    pub events: Events,
    /// The process's clock.
    pub clock: Clock,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
}

impl Backstop {
    /// Looks for as long as the Lease is ours, for ever.
    pub async fn run(mut self, leadership: Leadership) {
        let mut limits = Limits {
            recreation: Recreation::default(),
            bucket: Bucket::new(BURST, INTERVAL),
        };
        loop {
            let term = leadership.acquired().await;
            tokio::select! {
                () = self.serve(&term, &mut limits) => return,
                () = term.over() => {}
            }
            // Whoever leads now says what there is.
            self.metrics.aftermath().found(Found::default());
        }
    }

    async fn serve(&mut self, term: &Term, limits: &mut Limits) {
        let mut told = BTreeSet::new();
        loop {
            let survey = Arc::clone(&self.surveys.borrow_and_update());
            self.look(&survey, &mut told, limits, term).await;
            if self.surveys.changed().await.is_err() {
                return;
            }
        }
    }

    async fn look(&self, survey: &Survey, told: &mut BTreeSet<Arc<str>>, limits: &mut Limits, term: &Term) {
        let now = self.clock.now();
        let (config, fleet) = (self.books.config.load(), self.books.fleet.load_full());
        let ledger = self.books.ledger.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let findings = survey.findings(&fleet, &ledger, &config, now);
        let undecided = findings.iter().filter(|found| is_undecided(found)).count();
        self.metrics.aftermath().found(Found {
            misplaced: findings.len() - undecided,
            undecided,
            bound: survey.bound,
        });
        told.retain(|uid| survey.suspects.iter().any(|suspect| suspect.pod.uid == *uid));
        for finding in &findings {
            if told.insert(Arc::clone(&finding.suspect.pod.uid)) {
                self.events.tell(event(finding, now));
            }
        }
        if !config.backstop.recreate {
            return;
        }
        for finding in &findings {
            if term.is_held() && limits.take(finding, now.moment) {
                self.delete(finding, limits).await;
            }
        }
    }

    /// Deletes the pod in the version that was looked at. One that is another by now is looked at again.
    async fn delete(&self, finding: &Finding<'_>, limits: &mut Limits) {
        let pod = &finding.suspect.pod;
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
                    "deleted a pod for which there is room elsewhere, for its owner to create it anew"
                );
                RecreationOutcome::Deleted
            }
            Outcome::Outdated => RecreationOutcome::Outdated,
            Outcome::Refused(error) | Outcome::Unavailable(error) => {
                tracing::warn!(namespace, name, error, "a pod could not be deleted");
                RecreationOutcome::Refused
            }
        };
        self.metrics.aftermath().recreation(outcome);
        // What was refused may have been done all the same.
        if outcome != RecreationOutcome::Outdated {
            limits.recreation.note(finding.suspect, self.clock.moment());
        }
    }
}

/// How much may be deleted.
struct Limits {
    recreation: Recreation,
    bucket: Bucket,
}

impl Limits {
    fn take(&mut self, finding: &Finding<'_>, now: Moment) -> bool {
        self.recreation.allows(finding.suspect, now) && self.bucket.take(now)
    }
}

fn is_undecided(finding: &Finding<'_>) -> bool {
    finding.suspect.pod.decision.is_none()
}

fn event(finding: &Finding<'_>, now: Now) -> PodEvent {
    let suspect = finding.suspect;
    let pod = &suspect.pod;
    let (decision, reason) = (pod.decision, pod.reason.as_deref().unwrap_or_default());
    let stands = match (&suspect.footprint.site, decision) {
        (Some(site), Some(_)) => format!("sent to site {site} ({reason})"),
        _ => "created without a decision".to_owned(),
    };
    let seconds = now.moment.since(suspect.since).0 / 1_000_000;
    let (site, nodes) = (&finding.site, finding.fitting);
    let note = format!(
        "{stands}, and kube-scheduler finds no node for it since {seconds} s; created anew it would be sent to site {site}, \
         where it fits {nodes} nodes ({})",
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
