//! What becomes of pods after they were created: those that find no node, and those that fail over and over.

use std::sync::Arc;

use tokio::sync::watch as channel;

use crate::backstop::{Backstop, Survey};
use crate::config;
use crate::index::{Index, Kind};
use crate::loop_guard::{Loop, LoopGuard};
use crate::metrics::Metrics;
use crate::model::pod_record::PodRecord;
use crate::model::snapshot::Snapshot;
use crate::units::Moment;

/// Keeps what the backstop and the loop guard know.
#[derive(Default)]
pub(super) struct Aftermath {
    backstop: Backstop,
    guard: LoopGuard,
    /// Whether everything was listed, so that there is a whole to survey.
    is_complete: bool,
    surveys: channel::Sender<Arc<Survey>>,
    /// Told of each loop as it is closed.
    looping: Option<Box<dyn Fn(Loop) + Send>>,
}

impl Aftermath {
    /// What there is for the backstop to look at, always the newest.
    pub(super) fn surveys(&self) -> channel::Receiver<Arc<Survey>> {
        self.surveys.subscribe()
    }

    pub(super) fn when_looping(&mut self, then: impl Fn(Loop) + Send + 'static) {
        self.looping = Some(Box::new(then));
    }

    /// A pod as it is now; `is_new` if it is seen as it is created.
    pub(super) fn apply(
        &mut self,
        pod: &PodRecord,
        is_new: bool,
        settings: config::LoopGuard,
        metrics: &Metrics,
        now: Moment,
    ) {
        self.backstop.apply(pod, now);
        let Some(closed) = self.guard.apply(pod, is_new, settings, now) else {
            return;
        };
        metrics.aftermath().paused();
        tracing::warn!(
            namespace = &*closed.namespace,
            controller = &*closed.controller,
            failures = closed.failures,
            pause_s = closed.pause.0 / 1_000_000,
            "pods of a controller fail over and over; they are left as they are for a while"
        );
        if let Some(then) = &self.looping {
            then(closed);
        }
    }

    /// A pod is gone.
    pub(super) fn delete(&mut self, uid: &str, settings: config::LoopGuard, now: Moment) {
        self.backstop.delete(uid);
        self.guard.delete(uid, settings, now);
    }

    /// A namespace is gone, or not opted in.
    pub(super) fn opted_out(&mut self, namespace: &str) {
        self.backstop.opted_out(namespace);
    }

    /// Keeps the pods that are still there.
    pub(super) fn retain(&mut self, is_there: impl Fn(&str) -> bool) {
        self.backstop.retain(&is_there);
        self.guard.retain(&is_there);
    }

    /// When something is to be done because of the time.
    pub(super) fn next_change(&self) -> Option<Moment> {
        let survey = self.backstop.next_change().filter(|_| self.is_complete);
        let moments = [survey, self.guard.next_change()];
        moments.into_iter().flatten().min()
    }

    /// Brings into the snapshot which controllers are paused, and tells what there is to be looked at. Returns whether another
    /// controller is paused than in `before`.
    pub(super) fn publish(
        &mut self,
        index: &Index,
        snapshot: &mut Snapshot,
        before: &Snapshot,
        settings: config::LoopGuard,
        metrics: &Metrics,
        now: Moment,
    ) -> bool {
        self.guard.expire(settings, now);
        snapshot.paused = self.guard.paused();
        metrics.aftermath().paused_controllers(snapshot.paused.iter().count());
        self.is_complete = Kind::ALL.into_iter().all(|kind| index.is_listed(kind));
        if self.is_complete
            && let Some(survey) = self.backstop.survey(index, now)
        {
            self.surveys.send_replace(Arc::new(survey));
        }
        snapshot.paused != before.paused
    }
}
