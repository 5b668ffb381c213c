//! Carries out the release plan, like `controllers::executor` of the webhook. Each step is decided again and reserved,
//! and then one patch is sent.

use std::cell::OnceCell;
use std::collections::HashMap;

use edgeward_cluster::engine::DecisionContext;
use edgeward_cluster::queue::{PatchResult, Plan, PlanAction, PlanEntry, Progress};
use edgeward_decision::model::decision_id::DecisionId;

use super::{Placer, Run, clock, learned, records};
use crate::cluster::Phase;
use crate::outcome::Choice;
use crate::run::{Event, micros};

#[derive(Debug, Default)]
pub(super) struct Executor {
    pub(super) plan: Plan,
    progress: Progress,
    under_way: HashMap<u64, Patch>,
    patches: u64,
}

#[derive(Debug)]
struct Patch {
    step: PlanEntry,
    change: PodChange,
}

#[derive(Debug)]
enum PodChange {
    Reason(&'static str),
    GateRemoved,
    Released {
        site: usize,
        id: u128,
        reason: &'static str,
        choice: Option<Choice>,
    },
}

impl Run<'_> {
    /// Carries out the steps of the plan that are due, up to the limit of concurrent patches.
    pub(in crate::run) fn execute(&mut self) {
        loop {
            let now = clock(self.now).moment;
            let Placer::Edgeward(edgeward) = &mut self.placer else {
                return;
            };
            let Executor { plan, progress, .. } = &mut edgeward.executor;
            let (due, retry_at) = progress.begin(plan, &edgeward.config, now);
            if due.is_empty() {
                if let Some(at) = retry_at {
                    self.events.schedule(self.now + at.since(now), Event::Execute);
                }
                return;
            }
            for step in due.into_iter().flatten() {
                match self.change(&step) {
                    None => self.finished(&step, None),
                    Some(change) => self.patch(Patch { step, change }),
                }
            }
        }
    }

    fn finished(&mut self, step: &PlanEntry, result: Option<PatchResult>) {
        let now = clock(self.now).moment;
        if let Some(edgeward) = self.edgeward() {
            edgeward.executor.progress.finish([(step.clone(), result)], now);
        }
    }

    fn patch(&mut self, patch: Patch) {
        let at = self.now + micros(self.scenario.delays.patch);
        let Placer::Edgeward(edgeward) = &mut self.placer else {
            return;
        };
        let executor = &mut edgeward.executor;
        executor.patches += 1;
        executor.under_way.insert(executor.patches, patch);
        let number = executor.patches;
        self.events.schedule(at, Event::Patch(number));
    }

    /// Returns the change to the pod; `None` if nothing is to change.
    fn change(&mut self, step: &PlanEntry) -> Option<PodChange> {
        let now = clock(self.now);
        let Placer::Edgeward(edgeward) = &mut self.placer else {
            return None;
        };
        match step.action {
            PlanAction::RemoveGate(_) => Some(PodChange::GateRemoved),
            PlanAction::UpdateReason(reason) => Some(PodChange::Reason(reason.as_str())),
            PlanAction::Release => {
                let leader = &mut edgeward.replicas[0];
                let id = leader.ids.bits();
                let context = DecisionContext {
                    config: &edgeward.config,
                    id: DecisionId(id),
                    now,
                };
                let read = OnceCell::new();
                let waited = now.moment.since(step.since);
                let workload = step.pod.workload.clone()?;
                let only = step.together.as_ref().map(|together| &*together.site);
                let (verdict, _) = leader
                    .shared
                    .release(&read, &step.pod, workload.clone(), waited, only, context);
                let pod = records::number(&step.pod.uid)?;
                let choice = learned(pod, &workload, &verdict, read.get(), context);
                let name = verdict.site()?.name();
                let mut sites = self.scenario.sites.iter();
                Some(PodChange::Released {
                    site: sites.position(|site| site.definition.name == name)?,
                    id,
                    reason: verdict.reason.as_str(),
                    choice,
                })
            }
        }
    }

    /// A patch reaches the API server. It succeeds only if the pod still has the version that was read.
    pub(in crate::run) fn patched(&mut self, number: u64) {
        let Placer::Edgeward(edgeward) = &mut self.placer else {
            return;
        };
        let Some(Patch { step, change }) = edgeward.executor.under_way.remove(&number) else {
            return;
        };
        self.finished(&step, Some(PatchResult::Changed));
        let (Some(pod), version) = (records::number(&step.pod.uid), step.pod.resource_version.parse()) else {
            return;
        };
        let is_current = self.pods[pod].phase == Phase::Gated && version == Ok(self.pods[pod].version);
        match change {
            PodChange::Released { id, .. } if !is_current => {
                let namespace = &self.scenario.workloads[self.pods[pod].workload].name;
                if let Placer::Edgeward(edgeward) = &mut self.placer {
                    edgeward.replicas[0].shared.forget(DecisionId(id), namespace);
                }
            }
            _ if !is_current => {}
            PodChange::Reason(reason) => {
                self.pods[pod].reason = reason;
                self.pods[pod].version += 1;
                self.emit(pod);
            }
            PodChange::GateRemoved => {
                self.release(pod, None);
                self.emit(pod);
            }
            PodChange::Released {
                site,
                id,
                reason,
                choice,
            } => {
                self.measure.choices.extend(choice);
                *self.measure.reasons.entry(reason).or_default() += 1;
                self.pods[pod].decision = Some(id);
                self.pods[pod].reason = reason;
                self.release(pod, Some(site));
                self.emit(pod);
            }
        }
        self.execute();
    }
}
