//! Reports pods that kube-scheduler finds no node for although another site would take them. This runs on the replica
//! that holds the Lease.

use std::collections::HashSet;
use std::sync::Arc;

use edgeward_cluster::backstop::{BackstopReport, Finding};
use edgeward_decision::placement::sentences;
use edgeward_kube::units::Now;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::Context;
use super::events::{PodEvent, PodReason};
use crate::platform::blocking::at_leisure;

/// Evaluates the candidate pods each time the engine reports new ones, while this replica holds the Lease. Never
/// returns.
pub async fn run(context: Context, mut reports: watch::Receiver<Arc<BackstopReport>>) {
    while context.leadership.during(serve(&context, &mut reports)).await.is_none() {
        // The next leader reports the findings from now on.
        context.metrics.backstop_finds([0; 3]);
    }
}

async fn serve(context: &Context, reports: &mut watch::Receiver<Arc<BackstopReport>>) {
    let mut told = HashSet::new();
    loop {
        let report = Arc::clone(&reports.borrow_and_update());
        at_leisure(context.clock, evaluate(context, report, &mut told)).await;
        if reports.changed().await.is_err() {
            return;
        }
    }
}

/// Counts the findings. Writes an Event on each pod whose uid is not in `told` yet.
async fn evaluate(context: &Context, report: Arc<BackstopReport>, told: &mut HashSet<Arc<str>>) {
    let now = context.clock.now();
    let (config, snapshot) = (context.config.load_full(), context.shared.snapshot());
    let ledger = context.shared.ledger().clone();
    let bound = report.bound;
    let there: HashSet<&str> = report.candidates.iter().map(|candidate| &*candidate.pod.uid).collect();
    told.retain(|uid| there.contains(&**uid));
    let evaluated = spawn_blocking(move || report.evaluate(&snapshot, &ledger, &config, now)).await;
    let findings = match evaluated {
        Ok(findings) => findings,
        Err(error) => return tracing::error!(%error, "pods that find no node could not be evaluated"),
    };
    let is_undecided = |finding: &&Finding| finding.candidate.pod.decision.is_none();
    let undecided = findings.iter().filter(is_undecided).count();
    let misplaced = findings.len() - undecided;
    context.metrics.backstop_finds([misplaced, undecided, bound]);
    for finding in &findings {
        if told.insert(Arc::clone(&finding.candidate.pod.uid)) {
            context.events.record(event(finding, now));
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
