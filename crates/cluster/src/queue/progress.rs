//! What the replica that carries out a plan has done of it, what is due, and when a failed change is tried again.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Plan, PlanAction, PlanEntry};
use edgeward_decision::config::Config;
use edgeward_decision::placement::verdict::Reason;
use edgeward_kube::units::{Micros, Moment};

/// The most pods that are changed concurrently; each may take a few MiB while it is read.
pub const AT_ONCE: usize = 8;

/// The first and the longest pause before a failed patch is retried.
const PAUSES: [Micros; 2] = [Micros::from_secs(1), Micros::from_secs(60)];

/// After this many refusals of a placement, an overdue pod loses the gate without a placement; otherwise it would
/// keep its room for ever. Two kinds of pods are exempt. A pod that waits for an absent site is overdue all the time
/// and cannot run without its placement. A pod restricted to some sites could run anywhere without it.
const REFUSALS: u32 = 5;

const NEVER: Moment = Moment(i64::MAX);

/// How long the last change of a pod is remembered.
const MEMORY: Micros = Micros::from_secs(600);

/// Result of reading or patching a pod.
#[derive(Debug)]
pub enum PatchResult {
    /// The pod was changed.
    Changed,
    /// The pod has a newer version, or is gone.
    Outdated,
    /// The API server refuses the patch, and a retry would not help.
    Refused(String),
    /// The API server does not answer, or asks us to retry later.
    Unavailable(String),
}

impl PatchResult {
    /// Name of the result in metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Outdated => "outdated",
            Self::Refused(_) | Self::Unavailable(_) => "refused",
        }
    }
}

/// The last change tried for a version of a pod.
#[derive(Debug)]
struct Done {
    version: Box<str>,
    at: Moment,
    /// When to retry; [`NEVER`] while the change is under way, and after it succeeded.
    retry_at: Moment,
    pause: Micros,
    refusals: u32,
}

/// The last change of each pod, and how many changes are under way.
#[derive(Debug, Default)]
pub struct Progress {
    done: HashMap<Arc<str>, Done>,
    under_way: usize,
}

impl Progress {
    /// Returns the next steps, within the limit on concurrent changes, and the moment of the next retry, if there is one. A
    /// step is one entry, or those of a group that is released together: a group begins as a whole. Updates of pods that stay
    /// gated begin after all releases.
    pub fn begin(&mut self, plan: &Plan, config: &Config, now: Moment) -> (Vec<Vec<PlanEntry>>, Option<Moment>) {
        self.done.retain(|_, done| done.at.after(MEMORY) > now);
        let (mut due, mut retry_at) = (Vec::new(), NEVER);
        for updates in [false, true] {
            let steps = plan.entries.chunk_by(PlanEntry::is_of_one_step);
            for step in steps.filter(|step| step.iter().all(|entry| entry.is_update() == updates)) {
                let busy = step
                    .iter()
                    .filter_map(|entry| self.known(entry))
                    .map(|known| known.retry_at);
                if let Some(busy_until) = busy.max().filter(|until| *until > now) {
                    retry_at = retry_at.min(busy_until);
                    continue;
                }
                if self.under_way >= AT_ONCE {
                    break;
                }
                self.under_way += 1;
                due.push(step.iter().map(|entry| self.begin_entry(entry, config, now)).collect());
            }
        }
        (due, Some(retry_at).filter(|at| *at < NEVER))
    }

    /// The last change that was tried for this version of the pod.
    fn known(&self, entry: &PlanEntry) -> Option<&Done> {
        let known = self.done.get(&entry.pod.uid)?;
        (*known.version == *entry.pod.resource_version).then_some(known)
    }

    fn begin_entry(&mut self, entry: &PlanEntry, config: &Config, now: Moment) -> PlanEntry {
        let known = self.known(entry);
        let begun = Done {
            version: entry.pod.resource_version.clone(),
            at: now,
            retry_at: NEVER,
            pause: known.map_or(PAUSES[0], |known| known.pause),
            refusals: known.map_or(0, |known| known.refusals),
        };
        let mut entry = entry.clone();
        if entry.action == PlanAction::Release
            && begun.refusals >= REFUSALS
            && !entry.pod.waits_for_site()
            && !entry.pod.is_restricted
            && !entry.pod.is_of_gang()
            && now.since(entry.since) >= entry.pod.longest(config)
        {
            entry.action = PlanAction::RemoveGate(Reason::ReleasedTimeout);
        }
        self.done.insert(Arc::clone(&entry.pod.uid), begun);
        entry
    }

    /// Handles the end of a step that [`Self::begin`] returned, with the result of each entry. It is `None` if nothing could
    /// be done.
    pub fn finish(&mut self, step: impl IntoIterator<Item = (PlanEntry, Option<PatchResult>)>, now: Moment) {
        self.under_way -= 1;
        let step: Vec<_> = step.into_iter().collect();
        let is_outdated = |(_, result): &(_, _)| matches!(result, Some(PatchResult::Outdated));
        let waits_for_watch = step.iter().any(is_outdated);
        for (entry, result) in step {
            if waits_for_watch && result.is_none() {
                // The others of the group are due again once the watch shows the new version of the one.
                let known = self.done.get_mut(&entry.pod.uid);
                known.into_iter().for_each(|known| known.retry_at = now);
            } else {
                self.finish_entry(&entry, result, now);
            }
        }
    }

    fn finish_entry(&mut self, entry: &PlanEntry, result: Option<PatchResult>, now: Moment) {
        let Some(known) = self.done.get_mut(&entry.pod.uid) else {
            return;
        };
        match result {
            // The watch delivers the new state.
            Some(PatchResult::Changed | PatchResult::Outdated) => {}
            // Without back-off, a pod outside the plan's order would be read again and again for nothing.
            None if entry.pod.workload.is_none() => known.pause_until_retry(now),
            None => known.retry_at = now.after(PAUSES[0]),
            Some(PatchResult::Unavailable(_)) => known.pause_until_retry(now),
            Some(PatchResult::Refused(_)) => {
                known.refusals += 1;
                known.pause_until_retry(now);
            }
        }
    }
}

impl Done {
    /// Schedules a retry and doubles the next pause.
    fn pause_until_retry(&mut self, now: Moment) {
        self.retry_at = now.after(self.pause);
        self.pause = Micros(self.pause.0.saturating_mul(2)).min(PAUSES[1]);
    }
}
