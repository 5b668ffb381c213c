//! Reports pods that kube-scheduler finds no node for although another site would take them. This runs on the replica
//! that holds the Lease.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use edgeward_core::config::Config;
use edgeward_core::engine::SharedState;
use edgeward_core::guard::backstop::{BackstopReport, Finding};
use edgeward_core::placement::sentences;
use edgeward_core::units::Now;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::events::{Events, PodEvent, PodReason};
use super::lease::Leadership;
use crate::instruments::metrics::Metrics;
use crate::platform::blocking::at_leisure;
use crate::platform::clock::Clock;

/// Evaluates the candidate pods each time the engine reports new ones.
pub struct Backstop {
    /// The latest candidates.
    pub reports: watch::Receiver<Arc<BackstopReport>>,
    /// Current configuration.
    pub config: Arc<ArcSwap<Config>>,
    /// Snapshot and ledger of the engine.
    pub shared: Arc<SharedState>,
    /// Recorder for the Events.
    pub events: Events,
    /// The process's clock.
    pub clock: Clock,
    /// Metrics that count the findings.
    pub metrics: Arc<Metrics>,
}

impl Backstop {
    /// Evaluates candidates while this replica holds the Lease. Never returns.
    pub async fn run(mut self, leadership: Leadership) {
        while leadership.during(self.serve()).await.is_none() {
            // The next leader reports the findings from now on.
            self.metrics.backstop_finds([0; 3]);
        }
    }

    async fn serve(&mut self) {
        let mut told = HashSet::new();
        loop {
            let report = Arc::clone(&self.reports.borrow_and_update());
            at_leisure(self.clock, Duration::ZERO, self.evaluate(report, &mut told)).await;
            if self.reports.changed().await.is_err() {
                return;
            }
        }
    }

    /// Counts the findings. Writes an Event on each pod whose uid is not in `told` yet.
    async fn evaluate(&self, report: Arc<BackstopReport>, told: &mut HashSet<Arc<str>>) {
        let now = self.clock.now();
        let (config, snapshot) = (self.config.load_full(), self.shared.snapshot());
        let ledger = self.shared.ledger().clone();
        let bound = report.bound;
        let there: HashSet<&str> = report.candidates.iter().map(|candidate| &*candidate.pod.uid).collect();
        told.retain(|uid| there.contains(&**uid));
        let evaluated = spawn_blocking(move || report.evaluate(&snapshot, &ledger, &config, now)).await;
        let findings = match evaluated {
            Ok(findings) => findings,
            Err(error) => return tracing::error!(%error, "pods that find no node could not be evaluated"),
        };
        let undecided = findings
            .iter()
            .filter(|finding| finding.candidate.pod.decision.is_none())
            .count();
        let misplaced = findings.len() - undecided;
        self.metrics.backstop_finds([misplaced, undecided, bound]);
        for finding in &findings {
            if told.insert(Arc::clone(&finding.candidate.pod.uid)) {
                self.events.record(event(finding, now));
            }
        }
    }
}

fn event(finding: &Finding, now: Now) -> PodEvent {
    let candidate = &finding.candidate;
    let pod = &candidate.pod;
    let (decision, reason) = (pod.decision, pod.reason.as_deref().unwrap_or_default());
    let stands = match (decision, &candidate.contribution.site) {
        (Some(_), Some(site)) => format!("sent to site {site} ({reason})"),
        (Some(_), None) => format!("sent to a site that no longer exists ({reason})"),
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
