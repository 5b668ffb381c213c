//! The state that reviews, releases and the engine share.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::pod_record::GatedPod;
use edgeward_decision::config::Config;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_decision::model::workload::{QueueKey, Workload};
use edgeward_decision::placement::decide::{decide, is_within_half, node_at};
use edgeward_decision::placement::estimate::is_late;
use edgeward_decision::placement::features::CloudScores;
use edgeward_decision::placement::ledger::{Ledger, Reservation};
use edgeward_decision::placement::located::located_beside;
use edgeward_decision::placement::packing::{Packing, Pods};
use edgeward_decision::placement::room::Room;
use edgeward_decision::placement::verdict::{Action, Reason, Verdict};
use edgeward_kube::node::{Node, NodeId};
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Micros, Now};

/// The last published snapshot, and the reservations that it does not show.
///
/// A decision and its reservation are one step under the ledger's lock, so a burst does not get the same room twice.
/// Reading only the snapshot never waits for a decision.
#[derive(Debug, Default)]
pub struct SharedState {
    snapshot: RwLock<Arc<Snapshot>>,
    ledger: Mutex<Ledger>,
}

/// The configuration, id and time of one decision.
#[derive(Debug, Clone, Copy)]
pub struct DecisionContext<'t> {
    /// The configuration.
    pub config: &'t Config,
    /// The id of the decision, under which room is reserved.
    pub id: DecisionId,
    /// The time of the decision.
    pub now: Now,
}

/// What kube-scheduler tells about a pod that it is placing.
#[derive(Debug)]
pub struct Attempt<'t> {
    /// How long the pod has existed.
    pub waited: Micros,
    /// The names of the nodes that passed the scheduler's own filters.
    pub offered: BTreeSet<&'t str>,
}

/// What becomes of the reservation of a pod that kube-scheduler is placing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The answer keeps nodes of the chosen site.
    Reserve,
    /// The answer keeps no node, so the pod runs nowhere now.
    Free,
    /// There is no answer, or it leaves the pod where it may run.
    Leave,
}

impl SharedState {
    /// Starts with this snapshot. Reservations expire after `reservation_ttl`; with zero, none are made.
    pub fn new(snapshot: Arc<Snapshot>, reservation_ttl: Micros) -> Self {
        Self {
            snapshot: RwLock::new(snapshot),
            ledger: Mutex::new(Ledger::new(reservation_ttl)),
        }
    }

    /// The last published snapshot. Cost: a lock that is held while a pointer is copied.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes a snapshot and returns the previous one.
    pub fn set_snapshot(&self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        std::mem::replace(
            &mut *self.snapshot.write().unwrap_or_else(PoisonError::into_inner),
            snapshot,
        )
    }

    /// The reservations. While this lock is held, no pod is decided.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A decision that panicked has not left a partial reservation.
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a pod that is being created, and reserves its room if the verdict `is_wanted`. That is called once,
    /// after the decision: if the API server no longer waits for the answer, no pod will follow. A pod that is reviewed
    /// again keeps its own room. The verdict borrows from the snapshot that is put into `read`, which must be empty.
    pub fn review<'s>(
        &self,
        read: &'s OnceCell<Arc<Snapshot>>,
        workload: &Workload<'_>,
        context: DecisionContext<'_>,
        is_wanted: impl FnOnce() -> bool,
    ) -> Verdict<'s> {
        let DecisionContext { config, now, .. } = context;
        let scores = self.scores(workload, config, now);
        let mut ledger = self.ledger();
        let snapshot = self.read_into(read);
        ledger.expire(now.moment);
        let queue_key = arriving_key(workload, snapshot, config);
        let room = Room::new(snapshot, &ledger, queue_key, &workload.namespace).of_arrival();
        let room = room.with_scores(scores.as_ref());
        let verdict = decide(workload, &room, config, now);
        if is_wanted() {
            reserve(&mut ledger, snapshot, workload, &verdict, context);
            if verdict.reason == Reason::Reinvocation {
                reserve_again(&mut ledger, snapshot, workload, context);
            }
        }
        verdict
    }

    /// Decides about a pod that kube-scheduler is placing, and reserves its room as `outcome` says. The verdict is
    /// that of a pod that is being created now. A pod that would be gated waits in the scheduler's queue instead, and is decided
    /// like a gated pod.
    ///
    /// The id of the decision is the pod's uid, so a pod that is asked about again has one reservation. Neither that nor what the
    /// snapshot charges for the pod counts against it. If that charge is at the chosen site, nothing is reserved.
    pub fn schedule<'s>(
        &self,
        read: &'s OnceCell<Arc<Snapshot>>,
        workload: &Workload<'_>,
        attempt: &Attempt<'_>,
        context: DecisionContext<'_>,
        outcome: impl FnOnce(&Verdict<'_>) -> Outcome,
    ) -> Verdict<'s> {
        let DecisionContext { config, id, now } = context;
        let scores = self.scores(workload, config, now);
        let mut ledger = self.ledger();
        ledger.expire(now.moment);
        let aside = ledger.set_aside(id, &workload.namespace);
        let published = self.snapshot();
        let charged = published.charged_by_unbound.get(&*id.to_string()).copied();
        let snapshot = read.get_or_init(|| match charged {
            Some(node) => without_charge(&published, node, &workload.request),
            None => published,
        });
        let queue_key = arriving_key(workload, snapshot, config);
        let is_offered = |node: &Node| attempt.offered.contains(&*node.name);
        let sites = snapshot.sites.iter();
        let not_offered = sites.filter(|site| !site.nodes.is_empty() && !site.nodes().any(is_offered));
        let not_offered: Vec<_> = not_offered.map(Site::name).collect();
        let room = Room::new(snapshot, &ledger, queue_key, &workload.namespace).of_arrival();
        let room = room.without_offer(&not_offered).with_scores(scores.as_ref());
        let mut verdict = decide(workload, &room, config, now);
        if matches!(verdict.action, Action::Gate) {
            let waiting = Workload {
                gated_for: Some(attempt.waited),
                ..workload.clone()
            };
            verdict = decide(&waiting, &room, config, now);
        }
        let outcome = outcome(&verdict);
        if outcome == Outcome::Reserve {
            let is_charged = |site: &Site| site.nodes().any(|node| Some(node.id) == charged);
            if verdict.site().is_some_and(is_charged) {
                verdict.node = None;
            }
            reserve(&mut ledger, snapshot, workload, &verdict, context);
        }
        match aside {
            Some(aside) if outcome == Outcome::Leave => ledger.put_back(aside),
            Some(aside) => ledger.replace(aside),
            None => {}
        }
        verdict
    }

    /// Decides once more about a gated pod, and reserves its room if it is placed. A pod that is released with its group may
    /// only be placed at the site that the plan gives it. Returns the verdict, and whether room
    /// was reserved.
    pub fn release<'s>(
        &self,
        read: &'s OnceCell<Arc<Snapshot>>,
        gated: &GatedPod,
        workload: Workload<'_>,
        waited: Micros,
        only: Option<&str>,
        context: DecisionContext<'_>,
    ) -> (Verdict<'s>, bool) {
        let DecisionContext { config, id, now } = context;
        let workload = Workload {
            gated_for: Some(waited),
            ..workload
        };
        let scores = self.scores(&workload, config, now);
        let mut ledger = self.ledger();
        let snapshot = self.read_into(read);
        // The plan claimed room for the pod at this place, so the place holds even if the pod is late by now.
        let queue_key = match snapshot.queue_claims.of(&gated.uid) {
            Some(claim) => claim.queue_key,
            None => {
                let is_late = is_late(&workload, snapshot, config, waited);
                gated.queue_key_of(&workload, config).late(is_late)
            }
        };
        let room = Room::new(snapshot, &ledger, queue_key, &workload.namespace).only_at(only);
        let room = room.with_scores(scores.as_ref());
        let verdict = decide(&workload, &room, config, now);
        assume_volumes(&mut ledger, &workload, &verdict, snapshot, now);
        let reservation = verdict.site().zip(verdict.node).map(|(site, node)| Reservation {
            releases: Some(Arc::clone(&gated.uid)),
            ..Reservation::new(id, &workload, site.name(), node)
        });
        let is_reserved = reservation.is_some_and(|reservation| ledger.reserve(reservation, now.moment, |_| true));
        (verdict, is_reserved)
    }

    /// How many sets of pods fit at the edge at once, beside the pods `coming`, as [`Packing::sets`] counts them for a pod that
    /// would be created now. Reserves nothing. `None` if there is no edge, or if the pods take too many comparisons. Cost: under
    /// the lock, a pass over the edge's nodes for each kind of pod.
    pub fn sets_at_edge(&self, coming: &[Pods<'_>], set: &[Pods<'_>], config: &Config, now: Now) -> Option<u32> {
        let mut ledger = self.ledger();
        ledger.expire(now.moment);
        let snapshot = self.snapshot();
        let (workload, _) = set.first()?;
        let queue_key = arriving_key(workload, &snapshot, config);
        let room = Room::new(&snapshot, &ledger, queue_key, &workload.namespace).of_arrival();
        let packing = Packing::new(snapshot.edge()?, &room, coming, set);
        drop(ledger);
        packing.map(Packing::sets)
    }

    /// Forgets the reservation with this id, because no pod will follow.
    pub fn forget(&self, id: DecisionId, namespace: &str) {
        self.ledger().forget(id, namespace);
    }

    /// Scores of the clouds by the learned scorer, for a decision that follows under the ledger's lock. Cost: nothing if the
    /// scorer is `off`.
    fn scores(&self, workload: &Workload<'_>, config: &Config, now: Now) -> Option<CloudScores> {
        if !config.scorer.is_on() {
            return None;
        }
        CloudScores::of(workload, &self.snapshot(), config, now.moment)
    }

    /// Reads the last published snapshot into `read`. No other is published while the ledger's lock is held. Otherwise a
    /// reservation that a newer snapshot confirms would be missing from both.
    fn read_into<'s>(&self, read: &'s OnceCell<Arc<Snapshot>>) -> &'s Snapshot {
        debug_assert!(read.get().is_none(), "of another decision");
        read.get_or_init(|| self.snapshot())
    }
}

/// Reserves what the verdict promises to a pod that is not seen at its site yet. Without a node, no room is reserved.
fn reserve(
    ledger: &mut Ledger,
    snapshot: &Snapshot,
    workload: &Workload<'_>,
    verdict: &Verdict<'_>,
    DecisionContext { config, id, now }: DecisionContext<'_>,
) {
    let located = located_beside(workload, snapshot, ledger, now.moment);
    assume_volumes(ledger, workload, verdict, snapshot, now);
    let Some(chosen) = verdict.chosen() else { return };
    if chosen.is_trial {
        ledger.record_trial(chosen.site.name(), workload, now.moment);
    }
    if let Some(node) = verdict.node {
        let reservation = Reservation::new(id, workload, chosen.site.name(), node);
        ledger.reserve(reservation, now.moment, |kept| {
            is_within_half(kept, &located, chosen.site, snapshot, config)
        });
    }
}

/// The snapshot without what a pod charges this node.
fn without_charge(snapshot: &Snapshot, node: NodeId, request: &Amounts) -> Arc<Snapshot> {
    let mut snapshot = snapshot.clone();
    snapshot.sites.iter_mut().any(|site| site.uncharge(node, request));
    Arc::new(snapshot)
}

/// Records that the volumes of the pod's unbound claims will be made at its site.
fn assume_volumes(ledger: &mut Ledger, workload: &Workload<'_>, verdict: &Verdict<'_>, snapshot: &Snapshot, now: Now) {
    if let (Some(site), Some(volumes)) = (verdict.site(), &snapshot.volumes) {
        ledger
            .assumed_volumes
            .assume(workload, volumes, &site.definition, now.moment);
    }
}

/// Reserves room again for a pod that is reviewed again, because its request may have changed. The room is at the site of
/// its placement, if there is any, and lasts no longer than before. If the reservation has expired, a new one is made. A
/// pod that was gated meanwhile gets none, because it is not scheduled now.
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
    let room = Room::new(snapshot, ledger, queue_key, &workload.namespace).with_headroom(workload, config);
    let Some(site) = snapshot.sites.iter().find(|site| site.name() == stated.site) else {
        return;
    };
    let located = located_beside(workload, snapshot, ledger, now.moment);
    if let Some(node) = node_at(&located, site, &room) {
        let reservation = Reservation::new(id, workload, site.name(), node);
        ledger.reserve(reservation, since, |kept| {
            is_within_half(kept, &located, site, snapshot, config)
        });
    }
}

/// The queue place of a pod that does not exist yet. Whether it is late takes estimates, and matters only if there are
/// queue claims.
fn arriving_key(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config) -> QueueKey {
    let is_late = !snapshot.queue_claims.is_empty() && is_late(workload, snapshot, config, Micros(0));
    workload.queue_key(&config.priority_caps, None).late(is_late)
}
