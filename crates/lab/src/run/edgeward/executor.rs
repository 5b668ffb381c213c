//! Carries out the release plan, like `controllers::executor` of the webhook. Each step is decided again and reserved,
//! and then one patch is sent. Each version of a pod is acted on once.

use std::cell::OnceCell;
use std::collections::HashMap;

use edgeward_cluster::engine::DecisionContext;
use edgeward_cluster::queue::{Plan, PlanAction, PlanEntry};
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_kube::units::Micros;

use super::{Placer, Run, clock, records};
use crate::cluster::{Phase, PodNumber};
use crate::run::{Event, micros};

const AT_ONCE: usize = 16;

/// A pod that could not be changed is tried again after this time.
const PAUSE: Micros = Micros::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Executor {
    plan: Plan,
    /// The last version of each pod that was acted on, and the time from which it may be tried again, if at all.
    done: HashMap<PodNumber, (u32, Option<Micros>)>,
    under_way: HashMap<u64, Patch>,
    patches: u64,
}

#[derive(Debug)]
struct Patch {
    pod: PodNumber,
    version: u32,
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
    },
}

impl Executor {
    pub(super) fn plan(&mut self, plan: Plan) {
        self.plan = plan;
    }
}

impl Run<'_> {
    /// Carries out the steps of the plan that are not done yet, up to the limit of concurrent patches.
    pub(in crate::run) fn execute(&mut self) {
        let now = self.now;
        let Placer::Edgeward(edgeward) = &mut self.placer else {
            return;
        };
        let executor = &mut edgeward.executor;
        let mut retry_at: Option<Micros> = None;
        let mut due = vec![];
        for step in &executor.plan.entries {
            let Some(pod) = records::number(&step.pod.uid) else {
                continue;
            };
            let Ok(version) = step.pod.resource_version.parse::<u32>() else {
                continue;
            };
            match executor.done.get(&pod) {
                Some((known, None)) if *known == version => continue,
                Some((known, Some(at))) if *known == version && *at > now => {
                    retry_at = Some(retry_at.map_or(*at, |earliest| earliest.min(*at)));
                    continue;
                }
                _ if executor.under_way.len() + due.len() >= AT_ONCE => break,
                _ => {}
            }
            executor.done.insert(pod, (version, None));
            due.push((pod, version, step.clone()));
        }
        for (pod, version, step) in due {
            match self.change(&step) {
                None => {
                    if let Placer::Edgeward(edgeward) = &mut self.placer {
                        edgeward.executor.done.insert(pod, (version, Some(now + PAUSE)));
                    }
                    retry_at = Some(retry_at.map_or(now + PAUSE, |earliest| earliest.min(now + PAUSE)));
                }
                Some(change) => self.patch(Patch { pod, version, change }),
            }
        }
        if let Some(at) = retry_at {
            self.events.schedule(at, Event::Execute);
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
                let (verdict, _) = leader.shared.release(&read, &step.pod, workload, waited, context);
                let name = verdict.site()?.name();
                let mut sites = self.scenario.sites.iter();
                Some(PodChange::Released {
                    site: sites.position(|site| site.definition.name == name)?,
                    id,
                    reason: verdict.reason.as_str(),
                })
            }
        }
    }

    /// A patch reaches the API server. It succeeds only if the pod still has the version that was read.
    pub(in crate::run) fn patched(&mut self, number: u64) {
        let Placer::Edgeward(edgeward) = &mut self.placer else {
            return;
        };
        let Some(Patch { pod, version, change }) = edgeward.executor.under_way.remove(&number) else {
            return;
        };
        let is_current = self.pods[pod].phase == Phase::Gated && self.pods[pod].version == version;
        match change {
            PodChange::Released { id, .. } if !is_current => {
                let namespace = &self.scenario.workloads[self.pods[pod].workload].name;
                edgeward.replicas[0].shared.forget(DecisionId(id), namespace);
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
            PodChange::Released { site, id, reason } => {
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
