//! Carries out the release plan on the replica that holds the Lease.
//!
//! The manifest of a gated pod is not kept in memory. The executor reads the pod when its turn comes. It then decides
//! again under the ledger's lock and reserves the room before it sends the patch. The patch applies only to the
//! version of the pod that the plan and the decision saw. The executor acts on each version once, even if the watch
//! shows the result late.

use std::cell::OnceCell;
use std::sync::Arc;

use edgeward_cluster::engine::{DecisionContext, SharedState};
use edgeward_cluster::pod_record::GatedPod;
use edgeward_cluster::queue::{AT_ONCE, PatchResult, Plan, PlanAction, PlanEntry, Progress};
use edgeward_decision::config::Config;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::placement::patch;
use edgeward_decision::placement::patch::Stamp;
use edgeward_decision::placement::verdict::{Learned, Reason, Standing};
use edgeward_decision::pod::Pod;
use edgeward_kube::units::Now;
use futures::StreamExt as _;
use futures::stream::{self, FuturesUnordered};
use json_patch::PatchOperation;
use tokio::sync::{Semaphore, watch};

use super::Context;
use super::events::PodEvent;
use super::pod_patch;
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::platform::blocking::blocking;
use crate::watch::raw::Raw;

/// Releases gated pods.
struct Executor {
    context: Context,
    plans: watch::Receiver<Arc<Plan>>,
    /// Limits the log lines about pods that stay gated.
    log_limit: LogLimit,
}

/// Limits what steps do at the same time.
struct Turns {
    /// Pods that are read or patched. Each may take a few MiB while it is read.
    requests: Semaphore,
    /// One decision at a time, because reviews wait for the ledger's lock as well.
    decisions: Semaphore,
}

/// Carries out the newest plan while this replica holds the Lease. Never returns.
pub async fn run(context: Context, plans: watch::Receiver<Arc<Plan>>) {
    let log_limit = LogLimit::new(context.clock);
    let executor = Executor {
        context,
        plans,
        log_limit,
    };
    while executor.context.leadership.during(executor.serve()).await.is_none() {}
}

impl Executor {
    async fn serve(&self) {
        let (mut plans, mut progress) = (self.plans.clone(), Progress::default());
        let turns = Turns {
            requests: Semaphore::new(AT_ONCE),
            decisions: Semaphore::new(1),
        };
        let mut under_way = FuturesUnordered::new();
        loop {
            let plan = Arc::clone(&plans.borrow_and_update());
            let (due, retry_at) = progress.begin(&plan, &self.context.config.load(), self.context.clock.moment());
            under_way.extend(due.into_iter().map(|step| self.carry_out(step, &turns)));
            tokio::select! {
                Some(outcomes) = under_way.next() => {
                    for (entry, outcome) in &outcomes {
                        if let Some(PatchResult::Refused(error) | PatchResult::Unavailable(error)) = outcome {
                            self.report(&entry.pod, error, matches!(outcome, Some(PatchResult::Refused(_))));
                        }
                    }
                    progress.finish(outcomes, self.context.clock.moment());
                }
                changed = plans.changed() => if changed.is_err() {
                    return;
                },
                () = self.context.clock.reach(retry_at) => {}
            }
        }
    }

    /// Reads the pods of a step and decides, which reserves their room, and then patches them. If a pod of a group cannot be
    /// placed, none is patched and every reservation is dropped. The outcome is `None` if nothing has to change. Pods ahead
    /// in the plan keep their room by their claims, so the order of reading does not matter.
    async fn carry_out(&self, step: Vec<PlanEntry>, turns: &Turns) -> Vec<(PlanEntry, Option<PatchResult>)> {
        let entries = stream::iter(step.clone()).map(|entry| self.change(entry, turns));
        let (mut changes, mut changed) = (vec![], entries.buffered(AT_ONCE));
        while let Some((entry, change)) = changed.next().await {
            let mut outcome = match change {
                Ok(Some(change)) => {
                    changes.push((entry, change));
                    continue;
                }
                Ok(None) => None,
                Err(outcome) => Some(outcome),
            };
            outcome.iter().for_each(|outcome| self.count(UNREAD, outcome));
            let mut with_outcome = |other: PlanEntry| {
                let is_it = other.pod.uid == entry.pod.uid;
                (other, is_it.then(|| outcome.take()).flatten())
            };
            return step.into_iter().map(&mut with_outcome).collect();
        }
        let patched = stream::iter(changes).map(|(entry, change)| self.patch(entry, change, turns));
        patched.buffered(AT_ONCE).collect().await
    }

    async fn change(&self, entry: PlanEntry, turns: &Turns) -> (PlanEntry, Result<Option<Change>, PatchResult>) {
        let _request = turns.requests.acquire().await;
        let change = match pod_patch::read(&self.context.client, &entry.pod.namespace, &entry.pod.name).await {
            Ok(pod) => {
                let _decision = turns.decisions.acquire().await;
                self.decide(entry.clone(), pod).await
            }
            Err(outcome) => Err(outcome),
        };
        (entry, change)
    }

    async fn patch(&self, entry: PlanEntry, change: Change, turns: &Turns) -> (PlanEntry, Option<PatchResult>) {
        let _request = turns.requests.acquire().await;
        let (pod, operations) = (&entry.pod, &change.operations);
        let name: [&str; 2] = [&pod.namespace, &pod.name];
        let outcome = pod_patch::patch(&self.context.client, name, &pod.resource_version, operations).await;
        let reason = change.reason.as_str();
        if matches!(outcome, PatchResult::Changed) {
            self.log(&entry, reason, change.site, change.scorer_site);
            change.reserved.into_iter().for_each(Reserved::keep);
        }
        self.count(reason, &outcome);
        (entry, Some(outcome))
    }

    fn count(&self, reason: &'static str, outcome: &PatchResult) {
        let changes = &self.context.metrics.gated_pod_changes;
        changes.at([reason, outcome.as_str()]).inc();
    }

    /// Computes the change to the pod. A decision passes over all nodes, so it runs on a blocking thread. Only the
    /// change is kept of the pod that was read.
    async fn decide(&self, entry: PlanEntry, pod: Raw) -> Result<Option<Change>, PatchResult> {
        let (shared, metrics, config, clock) = (
            Arc::clone(&self.context.shared),
            Arc::clone(&self.context.metrics),
            self.context.config.load_full(),
            self.context.clock,
        );
        blocking(move || {
            let Ok(pod) = Pod::from_json(pod.json()) else {
                return Ok(None);
            };
            if pod.resource_version() != Some(&entry.pod.resource_version) {
                return Err(PatchResult::Outdated);
            }
            Ok(change_of(&pod, &entry, &shared, &config, &metrics, clock.now()))
        })
        .await
    }

    fn log(&self, entry: &PlanEntry, reason: &str, site: Option<String>, scorer_site: Option<String>) {
        // A user who edits the annotation makes us write it again, so these lines are limited.
        let held_back = match entry.is_update() {
            true => self.log_limit.due("goes on waiting"),
            false => Some(0),
        };
        let Some(held_back) = held_back else { return };
        let gated_s = self.context.clock.moment().since(entry.since).0 / 1_000_000;
        let GatedPod { namespace, name, .. } = &*entry.pod;
        tracing::info!(
            namespace,
            name,
            reason,
            site,
            scorer_site,
            gated_s,
            held_back,
            "changed a gated pod"
        );
    }

    fn report(&self, pod: &GatedPod, error: &str, is_refusal: bool) {
        if let Some(held_back) = self.log_limit.due("refused") {
            let (namespace, name) = (&*pod.namespace, &*pod.name);
            tracing::warn!(namespace, name, error, held_back, "a gated pod could not be changed");
        }
        if is_refusal {
            let keys = &self.context.config.load().keys;
            let event = PodEvent::release_refused(pod, error, keys, self.context.clock.wall());
            self.context.events.record(event);
        }
    }
}

/// Value of the label `reason` for a pod that could not be read, so that no decision was made.
const UNREAD: &str = "unread";

/// A change to a gated pod, with the reservation for it.
struct Change {
    operations: Vec<PatchOperation>,
    reason: Reason,
    site: Option<String>,
    /// See [`Learned::other_choice`].
    scorer_site: Option<String>,
    reserved: Option<Reserved>,
}

/// Room reserved for a release that is under way. Dropping this frees the room, because the release was refused or
/// its result is unknown. The result is unknown when the Lease was lost; the new leader may release the pod
/// elsewhere.
struct Reserved {
    shared: Arc<SharedState>,
    pod: Arc<GatedPod>,
    /// `None` if the reservation is kept.
    id: Option<DecisionId>,
}

impl Reserved {
    /// Keeps the reservation of a released pod. The watch confirms it when it shows the pod.
    fn keep(mut self) {
        self.id = None;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.shared.forget(id, &self.pod.namespace);
        }
    }
}

/// The change to the pod; `None` if nothing has to change.
fn change_of(
    pod: &Pod<'_>,
    entry: &PlanEntry,
    shared: &Arc<SharedState>,
    config: &Config,
    metrics: &Metrics,
    now: Now,
) -> Option<Change> {
    let gated = &entry.pod;
    let id = DecisionId(uuid::Uuid::new_v4().as_u128());
    let stamp = Stamp {
        at: now.wall,
        id: id.to_string(),
    };
    let mut action = entry.action;
    if action == PlanAction::Release {
        let (read, context) = (OnceCell::new(), DecisionContext { config, id, now });
        let waited = now.moment.since(entry.since);
        let workload = pod.workload((&*gated.namespace).into(), &config.keys);
        let only = entry.together.as_ref().map(|together| &*together.site);
        let (verdict, is_reserved) = shared.release(&read, gated, workload, waited, only, context);
        let reserved = is_reserved.then(|| Reserved {
            shared: Arc::clone(shared),
            pod: Arc::clone(gated),
            id: Some(id),
        });
        let has_room = verdict
            .chosen()
            .is_some_and(|chosen| chosen.standing() <= Standing::Late);
        action = match PlanAction::of(&verdict) {
            // Without room for one, the whole group waits.
            PlanAction::Release if entry.together.is_some() && !has_room => return None,
            PlanAction::Release => {
                metrics.learned(&verdict);
                return Some(Change {
                    operations: patch::release(pod, &verdict, config, &stamp)?,
                    reason: verdict.reason,
                    site: Some(verdict.site()?.name().to_owned()),
                    scorer_site: verdict
                        .learned
                        .as_ref()
                        .and_then(Learned::other_choice)
                        .map(str::to_owned),
                    reserved,
                });
            }
            // The next plan decides this with all pods that are ahead.
            _ if gated.workload.is_some() => return None,
            PlanAction::UpdateReason(reason) if gated.reason.as_deref() == Some(reason.as_str()) => return None,
            action => action,
        };
    }
    let (operations, reason) = match action {
        PlanAction::RemoveGate(reason) => (patch::remove_gate(pod, &config.keys), reason),
        PlanAction::UpdateReason(reason) => (patch::update_reason(pod, reason, config, &stamp), reason),
        PlanAction::Release => return None,
    };
    Some(Change {
        operations: operations?,
        reason,
        site: None,
        scorer_site: None,
        reserved: None,
    })
}

#[cfg(test)]
mod tests;
