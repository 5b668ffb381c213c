//! The engine: one state machine from changes to snapshots, plans, reports and effects.
//!
//! The [`Engine`] folds the changes that sources report into the cache, and publishes snapshots with the plan for gated
//! pods. Reviews and releases are decided on the last publication, in the [`SharedState`]. Times and ids are arguments. So
//! the same calls in the same order give the same results in a process, a test and a simulation.

mod change;
mod shared_state;

use std::sync::Arc;

use crate::backstop::{Backstop, BackstopReport};
use crate::cache::{Cache, Kind, NodeFault, RoomDelta};
use crate::moves::{self, MovesReport};
use crate::pod_record::{Decided, PodRecord};
use crate::queue::{Plan, Waitlist};
use crate::volumes::VolumeCache;
use edgeward_decision::config::Config;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::group::PodGroups;
use edgeward_decision::model::scorer::Ranker;
use edgeward_decision::model::scores::Profiles;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::{Neighbourhoods, Snapshot};
use edgeward_decision::placement::ledger::Ledger;
use edgeward_kube::node::NodeId;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Moment, Now};

pub use change::Change;
pub use shared_state::{Attempt, DecisionContext, Outcome, SharedState};

/// The greatest age of a decision that a new process reports, which is longer than a change of the leader takes. Also the
/// most that a decision may be older than its pod or lie in the future.
const RECENT: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Something to do, log or report because of changes.
#[derive(Debug, Clone)]
pub enum Effect {
    /// All objects of this kind are listed for the first time, and the published snapshot shows them.
    Listed(Kind),
    /// A decision was seen on a pod for the first time.
    Decided(Box<ObservedDecision>),
    /// The labels of a node do not assign it to one site.
    NodeFault(NodeFault),
}

/// A decision that was seen on a pod for the first time.
#[derive(Debug, Clone)]
pub struct ObservedDecision {
    /// Namespace of the pod.
    pub namespace: Box<str>,
    /// Uid of the pod.
    pub uid: Box<str>,
    /// Site of the pod by its spec.
    pub site: Option<(String, SiteKind)>,
    /// Whether a scheduling gate keeps the pod from kube-scheduler.
    pub gated: bool,
    /// Resources that the pod takes.
    pub request: Amounts,
    /// Whether the pod was seen with a gate before.
    pub was_gated: bool,
    /// The annotated decision.
    pub decided: Decided,
}

/// The results of a publication.
#[derive(Debug)]
pub struct Publication {
    /// The actions for gated pods, if a new plan was made.
    pub plan: Option<Plan>,
    /// The candidates of the backstop, if a report was due.
    pub report: Option<BackstopReport>,
    /// The pods that may be moved, if a report was due.
    pub moves: Option<MovesReport>,
    /// The effects, in the order in which they were found.
    pub effects: Vec<Effect>,
}

/// Folds changes into the cache and publishes snapshots of it. No other code writes the snapshot of a cluster.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<SharedState>,
    cache: Cache,
    waitlist: Waitlist,
    backstop: Backstop,
    /// When the pods that may be moved were last reported.
    reported_moves: Option<Moment>,
    volumes: VolumeCache,
    profiles: Arc<Profiles>,
    scorer: Option<Arc<dyn Ranker>>,
    pod_groups: Arc<PodGroups>,
    neighbourhoods: Arc<Neighbourhoods>,
    /// The node faults that were last reported.
    faults: Vec<NodeFault>,
    effects: Vec<Effect>,
}

impl Engine {
    /// An engine that has seen nothing, with the sites and settings of this configuration.
    pub fn new(config: Arc<Config>, shared: Arc<SharedState>) -> Self {
        Self {
            cache: Cache::new(config),
            shared,
            waitlist: Waitlist::default(),
            backstop: Backstop::default(),
            reported_moves: None,
            volumes: VolumeCache::default(),
            profiles: Arc::default(),
            scorer: None,
            pod_groups: Arc::default(),
            neighbourhoods: Arc::default(),
            faults: vec![],
            effects: vec![],
        }
    }

    /// The known nodes and pods.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The gated pods.
    pub fn waitlist(&self) -> &Waitlist {
        &self.waitlist
    }

    /// The next time at which [`Self::publish`] is due without a change.
    pub fn next_change(&self) -> Option<Moment> {
        let of_waitlist = self.cache.is_complete().then(|| self.waitlist.next_change()).flatten();
        let of_ledger = (!self.waitlist.is_empty()).then(|| self.shared.ledger().next_expiry());
        let of_backstop = self.backstop.next_change().filter(|_| self.cache.is_complete());
        let all = [
            of_waitlist,
            of_ledger.flatten(),
            of_backstop,
            self.moves_due(),
            self.cache.next_change(),
        ];
        all.into_iter().flatten().min()
    }

    /// When the next report of pods that may be moved is due. `None` while moves are not enabled.
    fn moves_due(&self) -> Option<Moment> {
        let moves = &self.cache.config().moves;
        let is_due = moves.enabled && self.cache.is_complete();
        let last = self.reported_moves.map(|at| at.after(moves::period(moves)));
        is_due.then(|| last.unwrap_or(Moment(i64::MIN)))
    }

    /// Applies a change that was seen at this time. Cost: proportional to what it changes.
    pub fn apply(&mut self, change: &Change, at: Now) {
        if let Some(kind) = change.kind() {
            self.cache.record_event(kind, at.moment);
        }
        match change {
            Change::Node(node) => self.cache.apply_node((**node).clone()),
            Change::NodeGone(name) => self.cache.delete_node(name),
            Change::Pod(pod) => {
                let reserved_node = self.confirm(&mut self.shared.ledger(), pod);
                self.apply_pod(pod, at);
                self.cache.apply_pod(pod, reserved_node, at);
            }
            Change::PodGone(uid) => {
                self.shared.ledger().forget_release(uid);
                self.waitlist.delete(uid);
                self.backstop.wake();
                self.cache.pod_gone(uid, at.moment);
            }
            Change::Namespace(name, is_managed) => {
                if !is_managed {
                    self.backstop.opted_out(name);
                }
                if self.cache.apply_namespace(name, *is_managed) {
                    self.waitlist.reconsider_sites();
                }
            }
            Change::Link(site, link) => self.cache.apply_link(site, *link),
            Change::ByClaim(names) => self.cache.set_by_claim(names),
            Change::Liqo(liqo) => self.cache.set_liqo(liqo.clone()),
            Change::Report(site, report) => self.cache.apply_report(site, report.as_ref(), at.moment),
            Change::Telemetry(telemetry) => self.cache.set_telemetry((**telemetry).clone()),
            Change::Settings(config) => {
                self.shared.ledger().set_ttl(config.reservation_ttl);
                self.waitlist.reset();
                self.cache.configure(Arc::clone(config));
            }
            Change::Claim(..) | Change::Volume(..) | Change::StorageClass(..) => self.volumes.apply(change),
            Change::PodGroups(api, sizes) => {
                let groups = Arc::make_mut(&mut self.pod_groups);
                match sizes {
                    Some(sizes) => groups.insert(api, Arc::clone(sizes)),
                    None => groups.remove(api),
                };
                self.waitlist.reconsider();
            }
            Change::Profiles(profiles) => self.profiles = Arc::clone(profiles),
            Change::Scorer(scorer) => self.scorer.clone_from(scorer),
            Change::Neighbourhoods(neighbourhoods) => {
                if self.neighbourhoods != *neighbourhoods {
                    self.neighbourhoods = Arc::clone(neighbourhoods);
                    self.waitlist.reconsider();
                }
            }
            Change::ListBegan(kind) => {
                self.cache.list_began(*kind);
                self.volumes.list_began(*kind);
            }
            Change::ListEnded(kind) => {
                if !self.cache.is_listed(*kind) {
                    self.effects.push(Effect::Listed(*kind));
                    self.waitlist.reconsider_sites();
                }
                self.cache.list_ended(*kind);
                self.volumes.list_ended(*kind);
                self.waitlist.retain(|uid| self.cache.has_seen(uid));
                self.backstop.wake();
            }
            Change::Replicas(ready) => self.shared.ledger().set_replicas(*ready),
            Change::WatchAlive(_) => {}
        }
    }

    fn apply_pod(&mut self, pod: &PodRecord, at: Now) {
        self.effects.extend(self.first_seen(pod, at));
        self.backstop.apply(pod);
        match &pod.gated_pod {
            Some(gated) => self.waitlist.apply(Arc::clone(gated), at),
            None => self.waitlist.delete(&pod.uid),
        }
    }

    /// Confirms the reservation of a decided pod at its first event, or of a released pod at its first event without a
    /// gate. Returns the node that was charged.
    fn confirm(&self, ledger: &mut Ledger, pod: &PodRecord) -> Option<NodeId> {
        if let Some(node) = self.confirm_scheduled(ledger, pod) {
            return Some(node);
        }
        if self.cache.has_seen(&pod.uid) && (pod.gated || !self.cache.is_gated(&pod.uid)) {
            return None;
        }
        let decision = pod.decision.as_deref().and_then(DecisionId::parse);
        let confirmed = decision.zip(self.cache.site_of(pod)).and_then(|(id, site)| {
            let revision = self.cache.next_revision();
            ledger.confirm(id, &pod.namespace, &site.name, revision)
        });
        if !pod.gated {
            ledger.forget_release(&pod.uid);
        }
        confirmed
    }

    /// Confirms the reservation that was made when kube-scheduler asked about the pod: when the pod is first seen, or once it has
    /// a node. In between, the pod's charge may be a guess at another site.
    fn confirm_scheduled(&self, ledger: &mut Ledger, pod: &PodRecord) -> Option<NodeId> {
        let shows_charge = pod.node.is_some() || !self.cache.has_seen(&pod.uid);
        if !self.cache.config().extender.enabled || !shows_charge {
            return None;
        }
        let id = DecisionId::parse(&pod.uid)?;
        ledger.confirm_anywhere(id, &pod.namespace, self.cache.next_revision())
    }

    /// The effect that reports a pod's decision, if it is seen for the first time in an opted-in namespace. From the first
    /// list, only recent decisions count, because others were made before this process started. A decision that is copied
    /// with a manifest or lies in the future does not count.
    fn first_seen(&self, pod: &PodRecord, at: Now) -> Option<Effect> {
        let decided = pod.decided.as_ref()?;
        let is_recent = |by: jiff::Timestamp| by.duration_since(decided.at) <= RECENT;
        let is_copied = pod.created.is_some_and(|created| !is_recent(created));
        let is_old = !self.cache.is_listed(Kind::Pods) && !is_recent(at.wall);
        let is_future = decided.at.duration_since(at.wall) > RECENT;
        let is_ours = self.cache.is_managed(&pod.namespace) && self.cache.has_new_decision(pod);
        if is_copied || is_old || is_future || !is_ours {
            return None;
        }
        Some(Effect::Decided(Box::new(ObservedDecision {
            namespace: pod.namespace.clone(),
            uid: pod.uid.clone(),
            site: self.cache.site_of(pod).map(|site| (site.name.clone(), site.kind)),
            gated: pod.gated,
            request: pod.request.clone(),
            was_gated: self.cache.is_gated(&pod.uid),
            decided: (**decided).clone(),
        })))
    }

    /// Publishes a snapshot as of now, with the claims of a new plan if one is due. Until then, decisions read the previous
    /// snapshot. Confirmed reservations are marked with the revision that shows their pods, and are dropped here. So a
    /// review counts either the reservation or the pod.
    pub fn publish(&mut self, now: Now) -> Publication {
        let mut snapshot = self.cache.publish(now.moment);
        // Profiles and the scorer rank good sites, and a gated pod has none, so they do not make a plan necessary.
        snapshot.profiles = Arc::clone(&self.profiles);
        snapshot.scorer.clone_from(&self.scorer);
        snapshot.pod_groups = Arc::clone(&self.pod_groups);
        snapshot.neighbourhoods = Arc::clone(&self.neighbourhoods);
        let ttl = self.cache.config().telemetry_ttl;
        let listed_as_of = self.cache.listed_as_of(Kind::OF_DATA);
        let is_stale = listed_as_of.is_some_and(|as_of| now.moment.since(as_of) > ttl);
        let (volumes, are_others) = self.volumes.publish(is_stale);
        snapshot.volumes = listed_as_of.map(|_| volumes);
        snapshot.awaits_volumes = snapshot.sites.iter().any(|site| site.definition.can_have_data())
            && listed_as_of.is_none()
            && self.volumes.may_await(ttl, now.moment);
        if are_others || snapshot.awaits_volumes != self.shared.snapshot().awaits_volumes {
            self.waitlist.reconsider();
        }
        let report = self
            .cache
            .is_complete()
            .then(|| self.backstop.report(&self.cache, now.moment));
        let moves = self.report_moves(now.moment);
        let plan = self.plan(&mut snapshot, now);
        let snapshot = Arc::new(snapshot);
        // A review decides and reserves under this lock, so none comes in between.
        let mut ledger = self.shared.ledger();
        let before = self.shared.set_snapshot(Arc::clone(&snapshot));
        ledger.confirm_charged(&snapshot);
        ledger.published(snapshot.revision);
        ledger.move_displaced(&snapshot);
        drop(ledger);
        // The old snapshot is freed after the lock is released, so nothing waits for that.
        drop(before);
        self.find_faults();
        Publication {
            plan,
            report: report.flatten(),
            moves,
            effects: std::mem::take(&mut self.effects),
        }
    }

    /// The pods that may be moved, if a report is due. The last report, after moves were switched off, is empty.
    fn report_moves(&mut self, now: Moment) -> Option<MovesReport> {
        if !self.cache.config().moves.enabled {
            return self.reported_moves.take().map(|_| MovesReport::default());
        }
        self.moves_due().filter(|due| *due <= now)?;
        self.reported_moves = Some(now);
        Some(MovesReport {
            pods: self.cache.members(),
        })
    }

    /// Puts the claims of gated pods into this snapshot, and returns a new plan if one is due. No plan is made until
    /// everything is listed, because a namespace that is not known yet would count as not opted in.
    fn plan(&mut self, snapshot: &mut Snapshot, now: Now) -> Option<Plan> {
        let config = self.cache.config();
        let (ttl, is_complete) = (config.telemetry_ttl, self.cache.is_complete());
        if config.scorer.is_on() {
            for claim in self.waitlist.claims().iter() {
                *snapshot.claims_before.entry(Arc::clone(&claim.site)).or_default() += 1;
            }
        }
        // Before the lock is taken, because it compares all nodes of the sites that changed.
        let delta = is_complete.then(|| RoomDelta::between(&self.shared.snapshot(), snapshot, config, now.moment));
        let ledger = {
            let mut ledger = self.shared.ledger();
            ledger.expire(now.moment);
            let delta = delta?;
            let is_stale = snapshot.is_stale(ttl, now.moment);
            self.waitlist.apply_delta(&delta, ledger.freed(), is_stale);
            self.waitlist.wants_plan(now.moment).then(|| ledger.clone())
        };
        let plan = ledger.map(|mut ledger| {
            ledger.confirm_charged(snapshot);
            let is_managed = |namespace: &str| self.cache.is_managed(namespace);
            self.waitlist.plan(snapshot, &ledger, config, is_managed, now)
        });
        snapshot.queue_claims = self.waitlist.claims();
        snapshot.gated_members = self.waitlist.members();
        plan
    }

    /// Reports each node fault once.
    fn find_faults(&mut self) {
        if self.cache.faults().eq(&self.faults) {
            return;
        }
        let faults: Vec<_> = self.cache.faults().cloned().collect();
        let new = faults.iter().filter(|fault| !self.faults.contains(fault));
        self.effects.extend(new.cloned().map(Effect::NodeFault));
        self.faults = faults;
    }
}

#[cfg(test)]
mod tests;
