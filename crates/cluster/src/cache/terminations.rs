//! How long pods take to terminate, by controller. This decides whether a pod waits for them ("Terminating pods" in
//! docs/guide/decide.md).

use crate::cache::Cache;
use crate::cache::entry::{Controller, PodEntry};
use crate::pod_record::Phase;
use edgeward_decision::recent::Recent;
use edgeward_kube::node::Termination;
use edgeward_kube::units::{Micros, Moment};

/// The number of a controller's last pods that show how long its pods take.
const ENOUGH: usize = 3;

/// How long the last pods of each controller took to terminate, at most [`ENOUGH`], by namespace and uid. Kept for an hour.
pub(super) type Terminations = Recent<Controller, Vec<Micros>, 3_600, 1_000>;

impl Cache {
    /// The termination of this pod, whose grace period ends at `by`.
    pub(super) fn termination(
        &self,
        entry: &PodEntry,
        by: Option<jiff::Timestamp>,
        old: Option<&PodEntry>,
        now: Moment,
    ) -> Termination {
        let times = entry
            .controller_key()
            .and_then(|key| self.measured.terminations.get(&key, now));
        let times = times.filter(|times| times.len() == ENOUGH);
        Termination {
            since: old
                .and_then(|old| old.terminating)
                .map_or(Some(now), |known| known.since),
            by,
            // A shorter time counts at once.
            takes: times.and_then(|times| times.iter().min().copied()),
            placeholder: None,
        }
    }

    /// Records that this pod has left its node.
    pub(super) fn observe_terminated(&mut self, pod: &PodEntry, now: Moment) {
        let since = pod
            .terminating
            .filter(|_| pod.phase != Phase::Finished && pod.was_seen_before_it_terminated)
            .and_then(|termination| termination.since);
        if let (Some(since), Some(key), Some(_)) = (since, pod.controller_key(), pod.node) {
            let mut times = self.measured.terminations.remove(&key).unwrap_or_default();
            times.push(now.since(since));
            times.drain(..times.len().saturating_sub(ENOUGH));
            self.measured.terminations.insert(key, times, now);
        }
    }
}
