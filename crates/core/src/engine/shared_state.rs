//! What reviews, releases and the engine share.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::config::Config;
use crate::model::decision_id::DecisionId;
use crate::model::pod_record::HeldPod;
use crate::model::snapshot::Snapshot;
use crate::model::workload::{QueueKey, Workload};
use crate::placement::decide::{Candidates, candidates_beside, decide_among};
use crate::placement::estimate::is_late;
use crate::placement::ledger::{AssumedVolumes, Ledger, Reservation};
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

/// The snapshots that one decision has read: what its verdict borrows from. Another decision has others.
#[derive(Debug, Default)]
pub struct Snapshots {
    /// That of the candidates.
    first: OnceCell<Arc<Snapshot>>,
    /// One that was published before the decision had the lock.
    newer: OnceCell<Arc<Snapshot>>,
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

    /// The reservations. While this is held, nobody decides.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A decision that panicked has left no half a reservation behind.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a pod that is created, and reserves its room if the verdict `is_wanted`, which is asked once, after the
    /// decision: an answer that nobody waits for is followed by no pod. A pod that is reviewed again gets its own room again.
    pub fn review<'s>(
        &self,
        read: &'s Snapshots,
        workload: &Workload<'_>,
        context: DecisionContext<'_>,
        is_wanted: impl FnOnce() -> bool,
    ) -> Verdict<'s> {
        let DecisionContext { config, id, now } = context;
        let (mut ledger, candidates) = self.decide(read, workload, config, now);
        let queue_key = arriving_key(workload, candidates.snapshot, config);
        ledger.expire(now.moment);
        let room = Room::new(candidates.snapshot, &ledger, queue_key, &workload.namespace);
        let verdict = decide_among(workload, &candidates, &room, config, now);
        if is_wanted() {
            assume_volumes(&mut ledger, workload, &verdict, candidates.snapshot, now);
            if let (Some(site), Some(node)) = (verdict.site(), verdict.node) {
                let reservation = Reservation::new(id, workload, site.name(), node);
                ledger.reserve(reservation, now.moment, |kept| {
                    candidates.are_within_share(kept, site.name(), workload, config)
                });
            }
            if verdict.reason == Reason::Reinvocation {
                reserve_again(&mut ledger, &candidates, workload, context);
            }
        }
        verdict
    }

    /// Decides once more about a held pod that asks for this, and reserves its room, if it is placed; with whether it was reserved.
    pub fn release<'s>(
        &self,
        read: &'s Snapshots,
        held: &HeldPod,
        workload: Workload<'_>,
        waited: Micros,
        context: DecisionContext<'_>,
    ) -> (Verdict<'s>, bool) {
        let DecisionContext { config, id, now } = context;
        let workload = Workload {
            held: Some(waited),
            ..workload
        };
        let (mut ledger, candidates) = self.decide(read, &workload, config, now);
        // Its place is that of the plan, which claims room for it, also where it is late by now.
        let queue_key = match candidates.snapshot.claims.of(&held.uid) {
            Some((_, claim)) => claim.queue_key,
            None => {
                let is_late = is_late(&workload, candidates.snapshot, config, waited);
                held.queue_key_of(&workload, config).late(is_late)
            }
        };
        let room = Room::new(candidates.snapshot, &ledger, queue_key, &workload.namespace);
        let verdict = decide_among(&workload, &candidates, &room, config, now);
        assume_volumes(&mut ledger, &workload, &verdict, candidates.snapshot, now);
        let reservation = verdict.site().zip(verdict.node).map(|(site, node)| Reservation {
            releases: Some(Arc::clone(&held.uid)),
            ..Reservation::new(id, &workload, site.name(), node)
        });
        let is_reserved = reservation.is_some_and(|reservation| ledger.reserve(reservation, now.moment, |_| true));
        (verdict, is_reserved)
    }

    /// Forgets what was reserved under this id: no pod will follow.
    pub fn forget(&self, id: DecisionId, namespace: &str) {
        self.ledger().forget(id, namespace);
    }

    /// The candidates of the newest snapshot, and the lock under which it stays the newest. They are found before the lock is
    /// taken, and once more under it where another snapshot was published meanwhile: a reservation that was dropped then
    /// would be in neither.
    fn decide<'s>(
        &self,
        read: &'s Snapshots,
        workload: &Workload<'_>,
        config: &Config,
        now: Now,
    ) -> (MutexGuard<'_, Ledger>, Candidates<'s>) {
        debug_assert!(read.first.get().is_none(), "of another decision");
        let first = read.first.get_or_init(|| self.snapshot());
        let assumed = match workload.claims.is_empty() {
            true => AssumedVolumes::default(),
            false => self.ledger().assumed_volumes().clone(),
        };
        let find = |snapshot| candidates_beside(workload, &assumed, snapshot, config, now.moment);
        let found = find(first);
        let ledger = self.ledger();
        let newest = self.snapshot();
        if Arc::ptr_eq(&newest, first) {
            return (ledger, found);
        }
        (ledger, find(read.newer.get_or_init(|| newest)))
    }
}

/// The volumes of its claims that have none will be made where the pod is placed.
fn assume_volumes(ledger: &mut Ledger, workload: &Workload<'_>, verdict: &Verdict<'_>, snapshot: &Snapshot, now: Now) {
    if let (Some(site), Some(volumes)) = (verdict.site(), &snapshot.volumes) {
        ledger.assume_volumes(workload, volumes, &site.definition, now.moment);
    }
}

/// Reserves room again for a pod that is reviewed again, for it may have grown or shrunk: where it was placed, if there is
/// any, and for no longer than before. A reservation that has expired meanwhile is a new one. A pod that was gated meanwhile
/// gets none: it is not scheduled now.
fn reserve_again(
    ledger: &mut Ledger,
    candidates: &Candidates<'_>,
    workload: &Workload<'_>,
    DecisionContext { config, now, .. }: DecisionContext<'_>,
) {
    let Some(stated) = &workload.placement else { return };
    let Some(id) = stated.id else { return };
    let since = ledger.forget(id, &workload.namespace).unwrap_or(now.moment);
    if !workload.gates.is_empty() {
        return;
    }
    let queue_key = arriving_key(workload, candidates.snapshot, config);
    let room = Room::new(candidates.snapshot, ledger, queue_key, &workload.namespace);
    let room = room.with_headroom(workload, config);
    if let Some(node) = candidates.node_at(&stated.site, workload, &room) {
        let reservation = Reservation::new(id, workload, &stated.site, node);
        ledger.reserve(reservation, since, |kept| {
            candidates.are_within_share(kept, &stated.site, workload, config)
        });
    }
}

/// The place of a pod that does not exist yet. Whether it is late matters beside claims only, and takes estimates.
fn arriving_key(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config) -> QueueKey {
    let is_late = !snapshot.claims.is_empty() && is_late(workload, snapshot, config, Micros(0));
    workload.queue_key(&config.priority_caps, None).late(is_late)
}
