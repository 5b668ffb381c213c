//! How long pods take to terminate, by controller: whether it is worth waiting for them ("Waiting for terminating pods" in section 7
//! of docs/decision.md).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::cache::Cache;
use crate::cluster::cache::entry::PodEntry;
use crate::model::node::Termination;
use crate::model::pod_record::{Phase, PodRecord};
use crate::units::{Micros, Moment};

/// So many pods of a controller in a row tell how long its pods take.
const ENOUGH: usize = 3;

/// Of how many controllers it is remembered.
const MAX_CONTROLLERS: usize = 1_000;

/// For how long, since a pod of the controller terminated last.
const MEMORY: Micros = Micros::from_secs(3_600);

/// How long the last pods of each controller took to terminate, by namespace and uid.
#[derive(Debug, Clone, Default)]
pub(super) struct Terminations(BTreeMap<(Arc<str>, Arc<str>), Last>);

#[derive(Debug, Clone)]
struct Last {
    /// At most [`ENOUGH`] of them.
    times: Vec<Micros>,
    at: Moment,
}

impl Terminations {
    /// A pod of this controller is gone that took so long. When too many controllers are remembered, the older half is forgotten.
    fn observe(&mut self, namespace: &Arc<str>, controller: &Arc<str>, took: Micros, now: Moment) {
        let key = (Arc::clone(namespace), Arc::clone(controller));
        let last = self.0.entry(key).or_insert(Last { times: vec![], at: now });
        last.times.push(took);
        if last.times.len() > ENOUGH {
            last.times.remove(0);
        }
        last.at = now;
        if self.0.len() > MAX_CONTROLLERS {
            let mut moments: Vec<_> = self.0.values().map(|last| last.at).collect();
            let (_, &mut median, _) = moments.select_nth_unstable(MAX_CONTROLLERS / 2);
            self.0.retain(|_, last| last.at > median);
        }
    }

    /// How long each of the last pods of this controller took, at least; `None` where too few were seen lately.
    fn shortest(&self, namespace: &Arc<str>, controller: &Arc<str>, now: Moment) -> Option<Micros> {
        let last = self.0.get(&(Arc::clone(namespace), Arc::clone(controller)))?;
        let is_known = last.times.len() == ENOUGH && now.since(last.at) <= MEMORY;
        last.times.iter().min().copied().filter(|_| is_known)
    }
}

impl Cache {
    /// What is known of the termination of this pod, which is to be gone by then.
    pub(super) fn termination(
        &mut self,
        record: &PodRecord,
        by: Option<jiff::Timestamp>,
        old: Option<&PodEntry>,
        now: Moment,
    ) -> Termination {
        let namespace = self.shared(&record.namespace);
        let controller = record.controller.as_deref().map(|uid| self.shared(uid));
        Termination {
            since: old
                .and_then(|old| old.terminating)
                .map_or(Some(now), |known| known.since),
            by,
            takes: controller.and_then(|uid| self.terminations.shortest(&namespace, &uid, now)),
            placeholder: None,
        }
    }

    /// A pod is about to be deleted from the cache because it is gone: how long it took to terminate, if that was seen, and whether it
    /// keeps a site closed to its controller.
    pub fn observe_gone(&mut self, uid: &str, now: Moment) {
        if let Some((uid, pod)) = self.pods.remove_entry(uid) {
            self.observe_terminated(&pod, now);
            self.queues.closed.outlast(&pod, now);
            self.pods.insert(uid, pod);
        }
    }

    /// This pod has left its node.
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
    fn three_in_a_row_tell_for_an_hour() {
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
        let hour = now.after(MEMORY);
        assert_eq!(told(&terminations, &controller, hour), Some(SECOND.times(50)));
        assert_eq!(told(&terminations, &controller, hour.after(SECOND)), None);
        // A quick one is believed at once.
        terminations.observe(&namespace, &controller, SECOND, now);
        assert_eq!(told(&terminations, &controller, now), Some(SECOND));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let namespace = Arc::<str>::from("shop");
        let mut terminations = Terminations::default();
        for i in 0..3 * MAX_CONTROLLERS {
            terminations.observe(&namespace, &i.to_string().into(), SECOND, Moment(i as i64));
        }
        assert!(terminations.0.len() <= MAX_CONTROLLERS);
        let newest = (3 * MAX_CONTROLLERS - 1).to_string();
        assert!(terminations.0.contains_key(&(namespace, newest.into())));
    }
}
