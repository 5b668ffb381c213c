//! Controllers whose pods end as soon as they begin, and are created again: for a while, their pods are left as they are.
//!
//! Whatever makes such a loop, an operator that does not bear what we add or a kubelet that refuses what we send, it ends
//! sooner without us. Every replica counts by itself what its own watch of pods shows, and forgets it with its process.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::config;
use crate::model::decision_id::DecisionId;
use crate::model::pod_record::{Phase, PodRecord};
use crate::model::snapshot::ByController;
use crate::units::{Micros, Moment};

/// How soon after it could run a pod must end for that to be a failure.
const FAILURE_WINDOW: Micros = Micros::from_secs(10);

/// For how long failures count.
const MINUTE: Micros = Micros::from_secs(60);

/// Keeps account of the controllers whose pods we change.
#[derive(Debug, Default)]
pub struct LoopGuard {
    /// Pods that may still end soon, by uid.
    starting: HashMap<Box<str>, StartingPod>,
    histories: HashMap<Controller, FailureHistory>,
    /// Until when pods are left as they are.
    paused: Arc<ByController<Moment>>,
    /// When what does not count any more was last dropped.
    swept: Option<Moment>,
}

/// A pod names its controller's uid itself, so one counts within its namespace only.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Controller {
    namespace: Box<str>,
    uid: Box<str>,
}

#[derive(Debug)]
struct StartingPod {
    controller: Controller,
    /// Since when it could run: created, free of its last gate or bound, whatever came last.
    since: Moment,
    gated: bool,
    bound: bool,
}

/// When pods of a controller failed, the oldest first.
#[derive(Debug, Default)]
struct FailureHistory {
    /// Those in whose place none was created so far.
    failed: VecDeque<Moment>,
    /// When one was created in the place of another.
    recreated: VecDeque<Moment>,
}

/// A controller that creates the same failure over and over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loop {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Kind and name, as its pods have them.
    pub controller: Box<str>,
    /// The pod that was one too many.
    pub pod: Box<str>,
    /// Uid of that pod.
    pub uid: Box<str>,
    /// The decision that this pod carries.
    pub decision: Option<DecisionId>,
    /// How many were created in the place of others within a minute.
    pub failures: usize,
    /// For how long its pods are left as they are.
    pub pause: Micros,
}

impl LoopGuard {
    /// A pod as it is now. `is_new` if it is seen as it is created, and not because of a list. Returns the loop that it closes:
    /// its controller is paused from now on.
    pub fn apply(
        &mut self,
        record: &PodRecord,
        is_new: bool,
        settings: config::LoopGuard,
        now: Moment,
    ) -> Option<Loop> {
        self.sweep(now);
        let before = self.starting.remove(&record.uid);
        let controller = Controller {
            namespace: record.namespace.clone(),
            uid: record.controller.clone()?,
        };
        // Preempted or evicted: that is about others.
        if record.disrupted {
            return None;
        }
        if record.terminating.is_some() || record.phase == Phase::Finished {
            // One that has done its work by then is none of ours.
            let has_failed = record.failed || record.phase != Phase::Finished;
            if let Some(starting) = before.filter(|_| has_failed) {
                self.ended(starting, settings, now);
            }
            return None;
        }
        let (gated, bound) = (record.gated, record.node.is_some());
        let mut closed = None;
        let since = match before {
            Some(before) if (before.gated && !gated) || (!before.bound && bound) => now,
            Some(before) => before.since,
            None if is_new && is_changed(record) && !self.is_paused(&controller, now) => {
                closed = self.begun(record, &controller, settings, now);
                now
            }
            None => return None,
        };
        let starting = StartingPod {
            controller,
            since,
            gated,
            bound,
        };
        if starting.may_fail(now) {
            self.starting.insert(record.uid.clone(), starting);
        }
        closed
    }

    /// A pod is gone.
    pub fn delete(&mut self, uid: &str, settings: config::LoopGuard, now: Moment) {
        if let Some(starting) = self.starting.remove(uid) {
            self.ended(starting, settings, now);
        }
    }

    /// Keeps the pods that are still there. When the others ended is not known, so that they count for nothing.
    pub fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.starting.retain(|uid, _| is_there(uid));
    }

    /// The controllers that are paused, and until when.
    pub fn paused(&self) -> Arc<ByController<Moment>> {
        Arc::clone(&self.paused)
    }

    /// Forgets pauses that are over; all of them, where none is made any more.
    pub fn expire(&mut self, settings: config::LoopGuard, now: Moment) {
        let is_off = settings.pause == Micros(0);
        let over = self.paused.iter().filter(|(_, _, until)| is_off || **until <= now);
        let over: Vec<_> = over
            .map(|(namespace, uid, _)| (namespace.to_owned(), uid.to_owned()))
            .collect();
        for (namespace, uid) in over {
            Arc::make_mut(&mut self.paused).remove(&namespace, &uid);
        }
    }

    /// When the next pause is over.
    pub fn next_change(&self) -> Option<Moment> {
        self.paused.iter().map(|(_, _, until)| *until).min()
    }

    fn is_paused(&self, controller: &Controller, now: Moment) -> bool {
        let until = self.paused.get(&controller.namespace, &controller.uid);
        until.is_some_and(|until| now < *until)
    }

    fn ended(&mut self, starting: StartingPod, settings: config::LoopGuard, now: Moment) {
        if now.since(starting.since) > FAILURE_WINDOW {
            return;
        }
        let history = self.histories.entry(starting.controller).or_default();
        history.failed.push_back(now);
        // More make no difference.
        if history.failed.len() > settings.failures_per_minute {
            history.failed.pop_front();
        }
    }

    /// A pod was created: in the place of one that failed, if there is any.
    fn begun(
        &mut self,
        record: &PodRecord,
        controller: &Controller,
        settings: config::LoopGuard,
        now: Moment,
    ) -> Option<Loop> {
        let history = self.histories.get_mut(controller)?;
        history.forget(now);
        history.failed.pop_front()?;
        history.recreated.push_back(now);
        let failures = history.recreated.len();
        if failures <= settings.failures_per_minute || settings.pause == Micros(0) {
            return None;
        }
        self.histories.remove(controller);
        let until = now.after(settings.pause);
        Arc::make_mut(&mut self.paused)
            .entry(&controller.namespace, &controller.uid)
            .insert_entry(until);
        Some(Loop {
            namespace: record.namespace.clone(),
            controller: record.controller_name.clone().unwrap_or_default(),
            pod: record.name.clone(),
            uid: record.uid.clone(),
            decision: record.decision.as_deref().and_then(DecisionId::parse),
            failures,
            pause: settings.pause,
        })
    }

    /// Drops, once in a while, what does not count any more.
    fn sweep(&mut self, now: Moment) {
        if self.swept.is_some_and(|swept| now.since(swept) < MINUTE) {
            return;
        }
        self.swept = Some(now);
        self.starting.retain(|_, starting| starting.may_fail(now));
        self.histories.retain(|_, history| {
            history.forget(now);
            !(history.failed.is_empty() && history.recreated.is_empty())
        });
    }
}

/// Whether the pod carries something of ours. Of what we do not change, nothing is our doing.
fn is_changed(record: &PodRecord) -> bool {
    record.decision.is_some() || record.held.is_some()
}

impl StartingPod {
    /// Whether its end would still be a failure.
    fn may_fail(&self, now: Moment) -> bool {
        !self.bound || now.since(self.since) <= FAILURE_WINDOW
    }
}

impl FailureHistory {
    fn forget(&mut self, now: Moment) {
        for moments in [&mut self.failed, &mut self.recreated] {
            let counts = |at: &Moment| now.since(*at) < MINUTE;
            while moments.front().is_some_and(|at| !counts(at)) {
                moments.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests;
