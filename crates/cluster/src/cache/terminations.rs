//! How long pods take to terminate, by controller. This decides whether a pod waits for them ("Terminating pods" in
//! docs/guide/decide.md).

use std::sync::Arc;

use crate::cache::Cache;
use crate::cache::entry::PodEntry;
use crate::pod_record::Phase;
use edgeward_decision::recent::Recent;
use edgeward_kube::node::Termination;
use edgeward_kube::units::{Micros, Moment};

/// The number of a controller's last pods that show how long its pods take.
const ENOUGH: usize = 3;

/// How long the last pods of each controller took to terminate, at most [`ENOUGH`], by namespace and uid. Kept for an hour.
#[derive(Debug, Default)]
pub(super) struct Terminations(Recent<[Arc<str>; 2], Vec<Micros>, 3_600, 1_000>);

impl Terminations {
    /// Records how long a pod of this controller took.
    fn observe(&mut self, namespace: &Arc<str>, controller: &Arc<str>, took: Micros, now: Moment) {
        let key = [Arc::clone(namespace), Arc::clone(controller)];
        let mut times = self.0.remove(&key).unwrap_or_default();
        times.push(took);
        if times.len() > ENOUGH {
            times.remove(0);
        }
        self.0.insert(key, times, now);
    }

    /// The shortest time that the last pods of this controller took; `None` if fewer than [`ENOUGH`] were seen lately.
    fn shortest(&self, namespace: &Arc<str>, controller: &Arc<str>, now: Moment) -> Option<Micros> {
        let times = self.0.get(&[Arc::clone(namespace), Arc::clone(controller)], now)?;
        times.iter().min().copied().filter(|_| times.len() == ENOUGH)
    }
}

impl Cache {
    /// The termination of this pod, whose grace period ends at `by`.
    pub(super) fn termination(
        &self,
        entry: &PodEntry,
        by: Option<jiff::Timestamp>,
        old: Option<&PodEntry>,
        now: Moment,
    ) -> Termination {
        let controller = entry.controller.as_ref();
        Termination {
            since: old
                .and_then(|old| old.terminating)
                .map_or(Some(now), |known| known.since),
            by,
            takes: controller.and_then(|uid| self.terminations.shortest(&entry.namespace, uid, now)),
            placeholder: None,
        }
    }

    /// Handles a pod that is gone, before it is removed: records how long it took to terminate, if that was seen, and keeps
    /// its site closed if the pod had closed it.
    pub fn observe_gone(&mut self, uid: &str, now: Moment) {
        if let Some((uid, pod)) = self.pods.remove_entry(uid) {
            self.observe_terminated(&pod, now);
            self.queues.closed.outlast(&pod, now);
            self.pods.insert(uid, pod);
        }
    }

    /// Records that this pod has left its node.
    pub(super) fn observe_terminated(&mut self, pod: &PodEntry, now: Moment) {
        let since = pod
            .terminating
            .filter(|_| pod.phase != Phase::Finished && pod.was_seen_before_it_terminated)
            .and_then(|termination| termination.since);
        if let (Some(since), Some(controller), Some(_)) = (since, &pod.controller, pod.node) {
            let took = now.since(since);
            self.terminations.observe(&pod.namespace, controller, took, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = Micros::from_secs(1);

    #[test]
    fn three_terminations_give_shortest_time_for_an_hour() {
        let [namespace, controller, other] = ["shop", "rs", "other"].map(Arc::<str>::from);
        let mut terminations = Terminations::default();
        let now = Moment(0);
        for took in [60, 50, 70] {
            assert_eq!(terminations.shortest(&namespace, &controller, now), None);
            terminations.observe(&namespace, &controller, SECOND.times(took), now);
        }
        let told = |terminations: &Terminations, uid, now| terminations.shortest(&namespace, uid, now);
        assert_eq!(told(&terminations, &controller, now), Some(SECOND.times(50)));
        assert_eq!(told(&terminations, &other, now), None);
        let hour = now.after(SECOND.times(3_600));
        assert_eq!(
            told(&terminations, &controller, hour.before(SECOND)),
            Some(SECOND.times(50))
        );
        assert_eq!(told(&terminations, &controller, hour), None);
        // A shorter observed time counts at once.
        terminations.observe(&namespace, &controller, SECOND, now);
        assert_eq!(told(&terminations, &controller, now), Some(SECOND));
    }
}
