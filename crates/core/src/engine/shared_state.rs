//! What reviews, releases and the engine share.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::config::Config;
use crate::model::decision_id::DecisionId;
use crate::model::pod_record::GatedPod;
use crate::model::snapshot::Snapshot;
use crate::model::workload::{QueueKey, Workload};
use crate::placement::decide::{decide, is_within_share, node_at};
use crate::placement::estimate::is_late;
use crate::placement::ledger::{Ledger, Reservation};
use crate::placement::located::located_beside;
use crate::placement::room::Room;
use crate::placement::verdict::{Reason, Verdict};
use crate::units::{Micros, Now};

/// The snapshot published last, and the reservations that it does not show.
///
/// A decision and its reservation are one step under the ledger's lock, so that the same room is not given twice
/// in a burst. Whoever reads the snapshot alone waits for no decision.
#[derive(Debug, Default)]
pub struct SharedState {
    snapshot: RwLock<Arc<Snapshot>>,
    ledger: Mutex<Ledger>,
}

/// By what a pod is decided, and under which id its room is reserved.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext<'t> {
    /// Settings.
    pub config: &'t Config,
    /// The id of the decision.
    pub id: DecisionId,
    /// The time.
    pub now: Now,
}

impl SharedState {
    /// A first snapshot, and reservations that expire after `reservation_ttl`; none are made where that is zero.
    pub fn new(snapshot: Arc<Snapshot>, reservation_ttl: Micros) -> Self {
        Self {
            snapshot: RwLock::new(snapshot),
            ledger: Mutex::new(Ledger::new(reservation_ttl)),
        }
    }

    /// The snapshot published last. Cost: a lock that is held for the copy of a pointer.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a snapshot in the place of the one published last, and returns that.
    pub fn set_snapshot(&self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        std::mem::replace(
            &mut *self.snapshot.write().unwrap_or_else(PoisonError::into_inner),
            snapshot,
        )
    }

    /// The reservations. While this lock is held, no pod is decided.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A decision that panicked has left no half a reservation behind.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a pod that is created, and reserves its room if the verdict `is_wanted`, which is asked once, after the
    /// decision: an answer that nobody waits for is followed by no pod. A pod that is reviewed again gets its own room again.
    /// The verdict borrows from the snapshot that is put into `read`, which is empty before.
    pub fn review<'s>(
        &self,
        read: &'s OnceCell<Arc<Snapshot>>,
        workload: &Workload<'_>,
        context: DecisionContext<'_>,
        is_wanted: impl FnOnce() -> bool,
    ) -> Verdict<'s> {
        let DecisionContext { config, id, now } = context;
        let mut ledger = self.ledger();
        let snapshot = self.read_into(read);
        ledger.expire(now.moment);
        let queue_key = arriving_key(workload, snapshot, config);
        let room = Room::new(snapshot, &ledger, queue_key, &workload.namespace);
        let verdict = decide(workload, &room, config, now);
        if is_wanted() {
            let located = located_beside(workload, snapshot, &ledger, now.moment);
            assume_volumes(&mut ledger, workload, &verdict, snapshot, now);
            if let (Some(chosen), Some(node)) = (verdict.chosen(), verdict.node) {
                let reservation = Reservation::new(id, workload, chosen.site.name(), node);
                ledger.reserve(reservation, now.moment, |kept| {
                    is_within_share(kept, &located, chosen.site, snapshot, config)
                });
            }
            if verdict.reason == Reason::Reinvocation {
                reserve_again(&mut ledger, snapshot, workload, context);
            }
        }
        verdict
    }

    /// Decides once more about a gated pod that asks for this, and reserves its room, if it is placed; with whether it was reserved.
    pub fn release<'s>(
        &self,
        read: &'s OnceCell<Arc<Snapshot>>,
        gated: &GatedPod,
        workload: Workload<'_>,
        waited: Micros,
        context: DecisionContext<'_>,
    ) -> (Verdict<'s>, bool) {
        let DecisionContext { config, id, now } = context;
        let workload = Workload {
            gated_for: Some(waited),
            ..workload
        };
        let mut ledger = self.ledger();
        let snapshot = self.read_into(read);
        // Its place is that of the plan, which claims room for it, also where it is late by now.
        let queue_key = match snapshot.queue_claims.of(&gated.uid) {
            Some((_, claim)) => claim.queue_key,
            None => {
                let is_late = is_late(&workload, snapshot, config, waited);
                gated.queue_key_of(&workload, config).late(is_late)
            }
        };
        let room = Room::new(snapshot, &ledger, queue_key, &workload.namespace);
        let verdict = decide(&workload, &room, config, now);
        assume_volumes(&mut ledger, &workload, &verdict, snapshot, now);
        let reservation = verdict.site().zip(verdict.node).map(|(site, node)| Reservation {
            releases: Some(Arc::clone(&gated.uid)),
            ..Reservation::new(id, &workload, site.name(), node)
        });
        let is_reserved = reservation.is_some_and(|reservation| ledger.reserve(reservation, now.moment, |_| true));
        (verdict, is_reserved)
    }

    /// Forgets what was reserved under this id: no pod will follow.
    pub fn forget(&self, id: DecisionId, namespace: &str) {
        self.ledger().forget(id, namespace);
    }

    /// The snapshot published last. While the ledger's lock is held, it stays that: a reservation that is dropped with a newer one
    /// would be in neither.
    fn read_into<'s>(&self, read: &'s OnceCell<Arc<Snapshot>>) -> &'s Snapshot {
        debug_assert!(read.get().is_none(), "of another decision");
        read.get_or_init(|| self.snapshot())
    }
}

/// The volumes of its claims that have none will be made where the pod is placed.
fn assume_volumes(ledger: &mut Ledger, workload: &Workload<'_>, verdict: &Verdict<'_>, snapshot: &Snapshot, now: Now) {
    if let (Some(site), Some(volumes)) = (verdict.site(), &snapshot.volumes) {
        ledger
            .assumed_volumes
            .assume(workload, volumes, &site.definition, now.moment);
    }
}

/// Reserves room again for a pod that is reviewed again, for it may have grown or shrunk: where it was placed, if there is
/// any, and for no longer than before. A reservation that has expired meanwhile is a new one. A pod that was gated meanwhile
/// gets none: it is not scheduled now.
fn reserve_again(
    ledger: &mut Ledger,
    snapshot: &Snapshot,
    workload: &Workload<'_>,
    DecisionContext { config, now, .. }: DecisionContext<'_>,
) {
    let Some(stated) = &workload.placement else { return };
    let Some(id) = stated.id else { return };
    let since = ledger.forget(id, &workload.namespace).unwrap_or(now.moment);
    if !workload.gates.is_empty() {
        return;
    }
    let queue_key = arriving_key(workload, snapshot, config);
    let room = Room::new(snapshot, ledger, queue_key, &workload.namespace);
    let room = room.with_headroom(workload, config);
    let Some(site) = snapshot.sites.iter().find(|site| site.name() == stated.site) else {
        return;
    };
    let located = located_beside(workload, snapshot, ledger, now.moment);
    if let Some(node) = node_at(&located, site, &room) {
        let reservation = Reservation::new(id, workload, site.name(), node);
        ledger.reserve(reservation, since, |kept| {
            is_within_share(kept, &located, site, snapshot, config)
        });
    }
}

/// The place of a pod that does not exist yet. Whether it is late matters beside claims only, and takes estimates.
fn arriving_key(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config) -> QueueKey {
    let is_late = !snapshot.queue_claims.is_empty() && is_late(workload, snapshot, config, Micros(0));
    workload.queue_key(&config.priority_caps, None).late(is_late)
}
