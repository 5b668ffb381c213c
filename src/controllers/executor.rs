//! Carries the release plan out, on the replica that holds the Lease.
//!
//! Nobody keeps what a gated pod consists of: it is read when its turn comes. What the plan says is decided once more under the
//! ledger's lock, and its room reserved, before the API server is told: in one patch that holds for the version of the pod
//! that was planned and decided about. A version is acted on once, however late the watch shows what came of it.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use edgeward_core::config::Config;
use edgeward_core::engine::{DecisionContext, SharedState};
use edgeward_core::model::decision_id::DecisionId;
use edgeward_core::model::pod_record::GatedPod;
use edgeward_core::placement::patch;
use edgeward_core::placement::patch::Stamp;
use edgeward_core::placement::verdict::Reason;
use edgeward_core::queue::{Plan, PlanAction, Step};
use edgeward_core::units::{Micros, Moment, Now};
use edgeward_core::wire::pod::Pod;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use json_patch::PatchOperation;
use kube::Client;
use tokio::sync::{Semaphore, watch};

use super::events::{Events, PodEvent};
use super::lease::Leadership;
use super::pod_patch::{Outcome, Version};
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::platform::blocking::blocking;
use crate::platform::clock::Clock;
use crate::sources::raw::Raw;

/// The most pods that are read or patched at once, each of which may take a few MiB. Pods that go on waiting use the places that
/// releases leave.
const AT_ONCE: usize = 8;

/// The first and the longest pause before a pod that could not be patched is tried again.
const PAUSES: [Micros; 2] = [Micros::from_secs(1), Micros::from_secs(60)];

/// After how many refusals of a placement a pod that is overdue loses the gate without one: it would keep its room for ever. One
/// that waits for a site that is away is overdue all the time, and could run nowhere without its placement; one that may run at some
/// sites alone could run anywhere.
const REFUSALS: u32 = 5;

/// For how long it is remembered what was done about a pod.
const MEMORY: Micros = Micros::from_secs(600);

/// Releases gated pods.
pub struct Executor {
    /// Of the cluster whose pods they are.
    pub client: Client,
    /// What is to be done, always the newest.
    pub plans: watch::Receiver<Arc<Plan>>,
    /// Settings.
    pub config: Arc<ArcSwap<Config>>,
    /// What is decided on.
    pub shared: Arc<SharedState>,
    /// The process's clock.
    pub clock: Clock,
    /// Where releases are counted.
    pub metrics: Arc<Metrics>,
    /// Where refusals are told.
    pub events: Events,
    /// Bounds the lines about pods that go on waiting.
    pub log_limit: Arc<LogLimit>,
}

/// What was done about a version of a pod.
#[derive(Debug)]
struct Done {
    version: Box<str>,
    at: Moment,
    /// When it may be tried again; `None` while it is under way, or after it succeeded.
    retry_at: Option<Moment>,
    pause: Micros,
    refusals: u32,
}

/// What was done about pods, and how many are being read and patched.
#[derive(Debug, Default)]
struct Progress {
    done: HashMap<Arc<str>, Done>,
    under_way: usize,
    /// Without those that go on waiting.
    releases: usize,
}

impl Executor {
    /// Carries out plans for as long as the Lease is ours, for ever.
    pub async fn run(self, leadership: Leadership) {
        while leadership.during(self.serve()).await.is_none() {}
    }

    async fn serve(&self) {
        let (mut plans, mut progress) = (self.plans.clone(), Progress::default());
        let turn = Semaphore::new(1);
        let mut under_way = FuturesUnordered::new();
        loop {
            let plan = Arc::clone(&plans.borrow_and_update());
            let (due, retry_at) = progress.begin(&plan, &self.config.load(), self.clock.moment());
            under_way.extend(due.into_iter().map(|step| self.carry_out(step, &turn)));
            tokio::select! {
                Some((step, outcome)) = under_way.next() => {
                    if let Some(Outcome::Refused(error) | Outcome::Unavailable(error)) = &outcome {
                        self.report(&step.pod, error, matches!(outcome, Some(Outcome::Refused(_))));
                    }
                    progress.finish(&step, outcome, self.clock.moment());
                }
                changed = plans.changed() => if changed.is_err() {
                    return;
                },
                () = self.clock.reach(retry_at) => {}
            }
        }
    }

    /// Reads the pod, decides and patches it; `None` if there is nothing to change after all. What is ahead of it keeps its room by
    /// its claims, so whichever is read first is decided first. One is decided at a `turn`: reviews wait for the ledger's lock, too.
    async fn carry_out(&self, step: Step, turn: &Semaphore) -> (Step, Option<Outcome>) {
        let version = Version {
            namespace: &step.pod.namespace,
            name: &step.pod.name,
            resource_version: &step.pod.resource_version,
        };
        let change = match version.read(&self.client).await {
            Ok(pod) => {
                let _turn = turn.acquire().await;
                self.decide(step.clone(), pod).await
            }
            Err(outcome) => Err(outcome),
        };
        let (reason, outcome) = match change {
            Ok(None) => return (step, None),
            Ok(Some(change)) => {
                let outcome = version.patch(&self.client, &change.operations).await;
                let reason = change.reason.as_str();
                if matches!(outcome, Outcome::Changed) {
                    self.log(&step, reason, change.site);
                    change.reserved.into_iter().for_each(Reserved::keep);
                }
                (reason, outcome)
            }
            Err(outcome) => (UNREAD, outcome),
        };
        self.metrics.gated_pod_changes.at([reason, outcome.as_str()]).inc();
        (step, Some(outcome))
    }

    /// What to change on the pod. A decision is a pass over the nodes, and no worker of the runtime waits
    /// for it. Of what was read nothing is left but the change.
    async fn decide(&self, step: Step, pod: Raw) -> Result<Option<Change>, Outcome> {
        let (shared, config, clock) = (Arc::clone(&self.shared), self.config.load_full(), self.clock);
        blocking(move || {
            let Ok(pod) = Pod::from_json(pod.json()) else {
                return Ok(None);
            };
            if pod.resource_version() != Some(&step.pod.resource_version) {
                return Err(Outcome::Outdated);
            }
            Ok(change_of(&pod, &step, &shared, &config, clock.now()))
        })
        .await
    }

    fn log(&self, step: &Step, reason: &str, site: Option<String>) {
        // Whoever changes the annotation makes us write it again.
        let held_back = match is_update(step) {
            true => self.log_limit.due("goes on waiting"),
            false => Some(0),
        };
        let Some(held_back) = held_back else { return };
        let gated_s = self.clock.moment().since(step.since).0 / 1_000_000;
        let GatedPod { namespace, name, .. } = &*step.pod;
        tracing::info!(namespace, name, reason, site, gated_s, held_back, "changed a gated pod");
    }

    fn report(&self, pod: &GatedPod, error: &str, is_refusal: bool) {
        if let Some(held_back) = self.log_limit.due("refused") {
            let (namespace, name) = (&*pod.namespace, &*pod.name);
            tracing::warn!(namespace, name, error, held_back, "a gated pod could not be changed");
        }
        if is_refusal {
            let keys = &self.config.load().keys;
            let event = PodEvent::release_refused(pod, error, keys, self.clock.wall());
            self.events.record(event);
        }
    }
}

impl Progress {
    /// The next steps, as many as may be under way beside those that are; and when there may be another. What goes on waiting
    /// has what is left by those that lose the gate.
    fn begin(&mut self, plan: &Plan, config: &Config, now: Moment) -> (Vec<Step>, Option<Moment>) {
        self.done.retain(|_, done| done.at.after(MEMORY) > now);
        let mut retry_at: Option<Moment> = None;
        let mut due = Vec::new();
        for updates in [false, true] {
            for step in plan.steps.iter().filter(|step| is_update(step) == updates) {
                let known = self.done.get(&step.pod.uid);
                let known = known.filter(|known| *known.version == *step.pod.resource_version);
                match known {
                    Some(Done { retry_at: None, .. }) => continue,
                    Some(Done { retry_at: Some(at), .. }) if *at > now => {
                        retry_at = Some(retry_at.map_or(*at, |earliest| earliest.min(*at)));
                        continue;
                    }
                    _ => {}
                }
                // Pods that go on waiting take no place of a release.
                let pods = if updates { self.under_way } else { self.releases };
                if pods >= AT_ONCE {
                    break;
                }
                self.under_way += 1;
                self.releases += usize::from(!updates);
                let begun = Done {
                    version: step.pod.resource_version.clone(),
                    at: now,
                    retry_at: None,
                    pause: known.map_or(PAUSES[0], |known| known.pause),
                    refusals: known.map_or(0, |known| known.refusals),
                };
                let mut step = step.clone();
                if step.action == PlanAction::Release
                    && begun.refusals >= REFUSALS
                    && !step.pod.waits_for_site()
                    && !step.pod.is_restricted
                    && now.since(step.since) >= step.pod.longest(config)
                {
                    step.action = PlanAction::RemoveGate(Reason::ReleasedTimeout);
                }
                self.done.insert(Arc::clone(&step.pod.uid), begun);
                due.push(step);
            }
        }
        (due, retry_at)
    }

    fn finish(&mut self, step: &Step, outcome: Option<Outcome>, now: Moment) {
        self.under_way -= 1;
        self.releases -= usize::from(!is_update(step));
        let Some(known) = self.done.get_mut(&step.pod.uid) else {
            return;
        };
        match outcome {
            // What it is now is told by the watch.
            Some(Outcome::Changed | Outcome::Outdated) => {}
            // Nothing could be done now. A pod that is not in the plan's order would be read for nothing again and again.
            None if step.pod.workload.is_none() => known.pause_until_retry(now),
            None => known.retry_at = Some(now.after(PAUSES[0])),
            Some(Outcome::Unavailable(_)) => known.pause_until_retry(now),
            Some(Outcome::Refused(_)) => {
                known.refusals += 1;
                known.pause_until_retry(now);
            }
        }
    }
}

/// Whether its pod goes on waiting.
fn is_update(step: &Step) -> bool {
    matches!(step.action, PlanAction::UpdateReason(_))
}

impl Done {
    /// The next pause is longer.
    fn pause_until_retry(&mut self, now: Moment) {
        self.retry_at = Some(now.after(self.pause));
        self.pause = Micros(self.pause.0.saturating_mul(2)).min(PAUSES[1]);
    }
}

/// The label `reason` where a pod was not read, so that nothing was decided about it.
const UNREAD: &str = "unread";

/// A change to a gated pod, whose room is reserved.
struct Change {
    operations: Vec<PatchOperation>,
    reason: Reason,
    site: Option<String>,
    reserved: Option<Reserved>,
}

/// Room for a release that is under way. Dropped, it is free again: the release was refused, or it is not known what became
/// of it, for the Lease was lost, and whoever holds it now may release the pod elsewhere.
struct Reserved {
    shared: Arc<SharedState>,
    pod: Arc<GatedPod>,
    /// `None` where it is kept.
    id: Option<DecisionId>,
}

impl Reserved {
    /// The pod is released: that it is seen confirms the reservation.
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

/// What to change on the pod; `None` if there is nothing to change after all.
fn change_of(pod: &Pod<'_>, step: &Step, shared: &Arc<SharedState>, config: &Config, now: Now) -> Option<Change> {
    let gated = &step.pod;
    let id = DecisionId(uuid::Uuid::new_v4().as_u128());
    let stamp = Stamp {
        at: now.wall,
        id: id.to_string(),
    };
    let mut action = step.action;
    if action == PlanAction::Release {
        let (read, context) = (OnceCell::new(), DecisionContext { config, id, now });
        let waited = now.moment.since(step.since);
        let workload = pod.workload((&*gated.namespace).into(), &config.keys);
        let (verdict, is_reserved) = shared.release(&read, gated, workload, waited, context);
        let reserved = is_reserved.then(|| Reserved {
            shared: Arc::clone(shared),
            pod: Arc::clone(gated),
            id: Some(id),
        });
        action = match PlanAction::of(&verdict) {
            PlanAction::Release => {
                return Some(Change {
                    operations: patch::release(pod, &verdict, config, &stamp)?,
                    reason: verdict.reason,
                    site: Some(verdict.site()?.name().to_owned()),
                    reserved,
                });
            }
            // The next plan says so, with all that are ahead.
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
        reserved: None,
    })
}

#[cfg(test)]
mod tests;
