//! Pods in the cache.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::backstop::{Candidate, Contribution};
use crate::cache::entry::{PodEntry, SchedulerKey, Unbound};
use crate::cache::full_clouds::LONGEST_SILENCE;
use crate::cache::unbound::{CHARGE_TIME, UnboundPods};
use crate::cache::{Cache, Kind, SiteEntry};
use crate::moves::Seen;
use crate::pod_record::{Decided, Member, Phase, Placement, PodRecord, StuckPod};
use edgeward_decision::model::remote_room::Start;
use edgeward_decision::model::site::SiteDefinition;
use edgeward_decision::model::workload::Workload;
use edgeward_kube::node::NodeId;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Bytes, Micros, Millicores, Moment, Now};

/// The known pods.
#[derive(Debug, Default)]
pub(super) struct Pods {
    pub(super) by_uid: HashMap<Arc<str>, Box<PodEntry>>,
    pub(super) unbound: UnboundPods,
    /// When each pod that is waited for is looked at again.
    pub(super) timers: BTreeSet<(Moment, Arc<str>)>,
    /// Pods that charged a node for the first time lately, by that time.
    pub(super) charged_lately: VecDeque<(Moment, Arc<str>)>,
    /// Whether pods may count elsewhere, because nodes, namespaces or the configuration changed.
    pub(super) need_recount: bool,
    /// Texts that many pods share, such as namespaces and the uids of controllers.
    texts: HashSet<Arc<str>>,
    /// Workloads that pods of a controller share.
    workloads: HashSet<Arc<Workload<'static>>>,
}

impl Pods {
    /// The shared copy of a text that many pods have.
    pub(super) fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.texts.get(text) {
            return Arc::clone(shared);
        }
        // Once in a while, drop texts that no pod shares any more.
        if self.texts.len() == self.texts.capacity() {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
        }
        let shared = Arc::<str>::from(text);
        self.texts.insert(Arc::clone(&shared));
        shared
    }

    /// The member, with the shared copy of a workload that many pods have.
    fn sharing(&mut self, member: &Arc<Member>) -> Arc<Member> {
        let Some(workload) = &member.workload else {
            return Arc::clone(member);
        };
        if self.workloads.len() == self.workloads.capacity() {
            self.workloads.retain(|workload| Arc::strong_count(workload) > 1);
        }
        let shared = self.workloads.get(workload).unwrap_or(workload);
        let shared = Arc::clone(shared);
        self.workloads.insert(Arc::clone(&shared));
        Arc::new(Member {
            workload: Some(shared),
            ..Member::clone(member)
        })
    }
}

/// The most of one resource that counts of a pod. Sums over a thousand such pods are exact.
const MOST: i64 = i64::MAX >> 10;

/// The request, each amount limited to [`MOST`].
fn limited(request: &Amounts) -> Amounts {
    let mut request = request.clone();
    request.cpu = request.cpu.min(Millicores(MOST));
    request.memory = request.memory.min(Bytes(MOST));
    request.ephemeral_storage = request.ephemeral_storage.min(Bytes(MOST));
    request
        .scalars
        .iter_mut()
        .for_each(|(_, amount)| *amount = MOST.min(*amount));
    request
}

/// The pod's creation time in seconds since the epoch.
fn created(record: &PodRecord) -> i64 {
    record.created.map_or(0, jiff::Timestamp::as_second)
}

/// How long ago the pod was created.
fn age(record: &PodRecord, at: Now) -> Micros {
    let age = record
        .created
        .map(|created| at.wall.duration_since(created).as_micros());
    Micros(age.and_then(|age| u64::try_from(age).ok()).unwrap_or(0))
}

impl Cache {
    /// Applies a pod as it is now. `reserved_node` is the node of the reservation that a pod confirms when it is first
    /// seen.
    pub fn apply_pod(&mut self, record: &PodRecord, reserved_node: Option<NodeId>, at: Now) {
        let now = at.moment;
        let before = self.pods.by_uid.get(&*record.uid).map(|pod| pod.phase);
        self.observe_finished(record, before, at);
        let (uid, old) = match self.pods.by_uid.remove_entry(&*record.uid) {
            Some((uid, old)) => (uid, Some(old)),
            None => (Arc::from(&*record.uid), None),
        };
        if let Some(old) = &old {
            self.remove_pod(&uid, old);
            if record.terminating.is_some() || record.phase == Phase::Finished {
                self.outlast(old, now);
            }
            if record.phase == Phase::Finished {
                self.observe_terminated(old, now);
            }
        }
        let scheduler = record.scheduler.as_deref().map(|name| self.pods.shared(name));
        if let Some(scheduler) = &scheduler {
            self.observe_scheduler(scheduler, record, old.as_deref(), now);
        }
        // A finished pod charges nothing, and adds no entry for its node.
        let node = record.node.as_deref().and_then(|name| match record.phase {
            Phase::Finished => self.nodes.ids.get(name).copied(),
            _ => Some(self.nodes.id(name)),
        });
        let mut entry = self.new_entry(record, old.as_deref(), node, now);
        let terminating = record.terminating;
        entry.terminating = terminating.map(|by| self.termination(&entry, by, old.as_deref(), now));
        let has_begun = entry.node.is_some() && entry.start == Start::Begun && !record.failed;
        let was_waiting = match &old {
            Some(old) => old.node.is_none() || old.start != Start::Begun,
            // A pod in a list may have been there for any time.
            None => !self.is_listing_pods(),
        };
        if has_begun && was_waiting {
            self.observe_begun(&entry);
        }
        // kube-scheduler ignores a pod that is deleted before it has a node.
        let is_terminating = record.terminating.is_some() && node.is_none();
        let is_active = entry.phase != Phase::Finished && !entry.gated && !is_terminating;
        if let (true, None, Some(placement)) = (is_active, node, &record.placement) {
            let old = old.as_deref();
            entry.until = self.charge_end(record, old, at);
            let unbound = self.unbound_as_seen(record, placement, scheduler, reserved_node, old);
            entry.unbound = Some(Box::new(unbound));
        }
        entry.charged = match &entry.unbound {
            Some(unbound) => unbound.charges(),
            None => node.filter(|_| is_active),
        };
        if entry.unbound.is_some() {
            self.pods.unbound.due.insert(entry.key(&uid));
        } else if entry.start == Start::Silent {
            self.pods.timers.insert((entry.until, Arc::clone(&uid)));
        }
        self.record_first_charge(&uid, &mut entry, now);
        self.change_charge(&uid, &entry, 1);
        self.count(&mut entry);
        self.pods.by_uid.insert(uid, Box::new(entry));
    }

    /// The record of a pod, without the node that it charges.
    fn new_entry(&mut self, record: &PodRecord, old: Option<&PodEntry>, node: Option<NodeId>, now: Moment) -> PodEntry {
        // A pod that was silent for too long stays refused until its status says something.
        let silence = old
            .filter(|old| record.start == Start::Silent && matches!(old.start, Start::Silent | Start::Refused(None)));
        let (start, until) = match silence {
            Some(old) => (old.start.clone(), old.until),
            None => (record.start.clone(), now.after(LONGEST_SILENCE)),
        };
        PodEntry {
            namespace: self.pods.shared(&record.namespace),
            controller: record.controller.as_deref().map(|uid| self.pods.shared(uid)),
            labels: (!record.labels.is_empty()).then(|| self.pods.shared(&record.labels)),
            created: created(record),
            // A gated pod charges nothing, and is read again when its gate is gone.
            request: match record.gated {
                true => Amounts::default(),
                false => limited(&record.request),
            },
            priority: record.priority,
            may_preempt: record.may_preempt,
            placeholder_grace: record.placeholder_grace,
            slo: record.slo,
            membership: record.membership.clone(),
            spreads: record.spreads,
            phase: record.phase,
            failed: record.failed,
            gated: record.gated,
            terminating: None,
            was_seen_before_it_terminated: record.terminating.is_none()
                || old.is_some_and(|old| old.was_seen_before_it_terminated),
            decision: record.decided.as_deref().map_or(0, Decided::fingerprint),
            listed: self.list(Kind::Pods).began,
            node,
            start,
            until,
            charged: None,
            unbound: None,
            stuck: record.stuck.as_ref().map(|pod| {
                let before = old.and_then(|old| old.stuck.as_ref());
                (Arc::clone(pod), before.map_or(now, |(_, since)| *since))
            }),
            is_undecided: record.undecided && record.node.is_some() && record.phase != Phase::Finished,
            member: record.member.as_ref().map(|member| self.pods.sharing(member)),
            counted: None,
            first_charged: old.and_then(|old| old.first_charged),
        }
    }

    /// Whether pods seen now may be old, because a list shows them.
    fn is_listing_pods(&self) -> bool {
        let list = self.list(Kind::Pods);
        !list.complete || list.is_under_way
    }

    /// When the time to charge a guess is over for a pod without a node, unless its scheduler has a backlog.
    fn charge_end(&self, record: &PodRecord, old: Option<&PodEntry>, at: Now) -> Moment {
        let end = at.moment.after(CHARGE_TIME);
        match old {
            Some(old) if old.unbound.is_some() => old.until,
            Some(old) if old.gated => end,
            // The time of any other known pod to charge a guess is over.
            Some(_) => at.moment,
            None if self.is_listing_pods() => end.before(age(record, at)),
            None => end,
        }
    }

    /// The state of a pod without a node, as seen now.
    fn unbound_as_seen(
        &self,
        record: &PodRecord,
        placement: &Arc<Placement>,
        scheduler: Option<Arc<str>>,
        reserved_node: Option<NodeId>,
        old: Option<&PodEntry>,
    ) -> Unbound {
        let before = old.and_then(|old| old.unbound.as_deref());
        let nominated = record.nominated.as_deref();
        let nominated = nominated.and_then(|name| self.nodes.ids.get(name)).copied();
        let lost_nomination = nominated.is_none() && before.is_some_and(|before| before.nominated.is_some());
        let refusal = record.unschedulable.or(before.and_then(|before| before.refusal));
        Unbound {
            placement: Arc::clone(placement),
            site: self.site_of_placement(placement),
            scheduler,
            nominated,
            refusal,
            // A node that is gone is forgotten with the last pod that charged it.
            node: before
                .map_or(reserved_node, |before| before.node)
                .filter(|id| self.nodes.by_id.contains_key(id)),
            possible_node: before.and_then(|before| before.possible_node),
            is_gang: record.membership.as_ref().is_some_and(|group| group.is_gang),
            is_expired: lost_nomination || before.is_some_and(|before| before.is_expired),
        }
    }

    /// Records that the scheduler bound the pod since it was last seen, or refused it with another message. For a new pod,
    /// a node does not count, because its author may have named it. A refusal in a list does not count, because it may be
    /// old.
    fn observe_scheduler(&mut self, scheduler: &Arc<str>, record: &PodRecord, old: Option<&PodEntry>, now: Moment) {
        let refusal = |old: &PodEntry| old.unbound.as_ref()?.refusal;
        let is_handled = match old {
            Some(old) if record.node.is_some() => old.node.is_none(),
            Some(old) => record.unschedulable.is_some() && record.unschedulable != refusal(old),
            None => record.node.is_none() && record.unschedulable.is_some() && !self.is_listing_pods(),
        };
        if is_handled {
            self.pods.unbound.handled(scheduler, created(record), now);
        }
    }

    /// Handles a pod that is gone: records how long it took to terminate, if that was seen, and keeps its site closed if
    /// the pod had closed it.
    pub fn pod_gone(&mut self, uid: &str, now: Moment) {
        if let Some((uid, pod)) = self.pods.by_uid.remove_entry(uid) {
            self.observe_terminated(&pod, now);
            self.outlast(&pod, now);
            self.remove_pod(&uid, &pod);
        }
    }

    /// Removes a pod that went at an unknown time.
    pub(super) fn delete_pod(&mut self, uid: &str) {
        if let Some((uid, pod)) = self.pods.by_uid.remove_entry(uid) {
            self.remove_pod(&uid, &pod);
        }
    }

    /// The part of a snapshot that comes from this pod. `None` unless kube-scheduler has refused the pod and makes no room
    /// for it.
    pub fn contribution(&self, uid: &str) -> Option<Contribution> {
        let pod = self.pods.by_uid.get(uid)?;
        let unbound = pod.unbound.as_deref().filter(|unbound| unbound.is_refused())?;
        Some(Contribution {
            site: unbound.site.map(|at| self.sites[at].site.name().into()),
            fits: unbound.closes_site(),
            group: pod.counted.and_then(|counted| counted.group),
        })
    }

    /// The pods that kube-scheduler finds no node for, and since when.
    pub fn stuck_pods(&self) -> impl Iterator<Item = (&Arc<StuckPod>, Moment)> {
        let stuck = self.pods.by_uid.values().filter_map(|pod| pod.stuck.as_ref());
        stuck.map(|(pod, since)| (pod, *since))
    }

    /// The members of opted-in namespaces that do not terminate, sorted by uid. Cost: a pass over all pods.
    pub fn members(&self) -> Vec<Seen> {
        let seen = |uid: &Arc<str>, pod: &PodEntry| {
            let member = Arc::clone(pod.member.as_ref().filter(|_| pod.terminating.is_none())?);
            let of_node = |node: NodeId| self.nodes.by_id.get(&node)?.site;
            let site = match &pod.unbound {
                Some(unbound) => unbound.site,
                None => pod.node.and_then(of_node),
            };
            let stuck = pod.stuck.as_ref().and_then(|(pod, since)| {
                Some(Candidate {
                    pod: Arc::clone(pod),
                    since: *since,
                    contribution: self.contribution(uid)?,
                })
            });
            self.managed.contains(&pod.namespace).then(|| Seen {
                member,
                namespace: Arc::clone(&pod.namespace),
                controller: pod.controller.clone(),
                site: site.map(|at| self.sites[at].site.name().into()),
                node: pod.node,
                created: pod.created,
                request: pod.request.clone(),
                stuck,
            })
        };
        let mut members: Vec<_> = self
            .pods
            .by_uid
            .iter()
            .filter_map(|(uid, pod)| seen(uid, pod))
            .collect();
        members.sort_by(|one, other| one.member.uid.cmp(&other.member.uid));
        members
    }

    /// Namespaces and creation times, in seconds, of the pods that run without a decision although they state an SLO.
    pub fn undecided_pods(&self) -> impl Iterator<Item = (&str, i64)> {
        let undecided = self.pods.by_uid.values().filter(|pod| pod.is_undecided);
        undecided.map(|pod| (&*pod.namespace, pod.created))
    }

    /// Whether the pod was gated when it was last seen.
    pub fn is_gated(&self, uid: &str) -> bool {
        self.pods.by_uid.get(uid).is_some_and(|pod| pod.gated)
    }

    /// Whether the pod is known.
    pub fn has_seen(&self, uid: &str) -> bool {
        self.pods.by_uid.contains_key(uid)
    }

    /// Whether the pod carries a decision that was not seen on it before.
    pub fn has_new_decision(&self, record: &PodRecord) -> bool {
        let before = self.pods.by_uid.get(&*record.uid).map_or(0, |pod| pod.decision);
        let decided = record.decided.as_deref();
        decided.is_some_and(|decided| decided.fingerprint() != before)
    }

    /// The site of a pod by its spec: the site of its node, or the site whose whole selector it carries.
    pub fn site_of(&self, record: &PodRecord) -> Option<&SiteDefinition> {
        let of_node = |name: &str| self.nodes.by_id.get(self.nodes.ids.get(name)?)?.site;
        let at = match (&record.node, &record.placement) {
            (Some(node), _) => of_node(node),
            (None, Some(placement)) => self.site_of_placement(placement),
            (None, None) => None,
        };
        Some(&self.sites[at?].site.definition)
    }

    /// Sets whether a namespace is opted in, and returns whether that is new. The queues count only pods of opted-in
    /// namespaces.
    pub fn apply_namespace(&mut self, name: &str, is_managed: bool) -> bool {
        let name = self.pods.shared(name);
        let is_new = if is_managed {
            self.managed.insert(name)
        } else {
            self.managed.remove(&name)
        };
        self.pods.need_recount |= is_new;
        is_new
    }

    pub(super) fn site_of_placement(&self, placement: &Placement) -> Option<usize> {
        let carries = |entry: &SiteEntry| placement.constraints.selects(entry.site.definition.selector());
        self.sites.iter().position(carries)
    }

    /// Removes the pod's charge, counts and timer.
    fn remove_pod(&mut self, uid: &Arc<str>, entry: &PodEntry) {
        self.uncount(entry);
        self.forget_plans(&entry.key(uid), entry.until);
        self.change_charge(uid, entry, -1);
    }

    /// Forgets when and why the pod is looked at again.
    pub(super) fn forget_plans(&mut self, key: &SchedulerKey, until: Moment) {
        self.pods.unbound.due.remove(key);
        self.pods.unbound.idle.remove(key);
        self.pods.timers.remove(&(until, Arc::clone(&key.uid)));
    }

    /// Looks at pods again whose time has come. A bound pod without a container status counts as refused from then on.
    pub(super) fn end_timers(&mut self, now: Moment) {
        while self.pods.timers.first().is_some_and(|(at, _)| *at <= now) {
            let ended = self.pods.timers.pop_first();
            let Some((uid, mut pod)) = ended.and_then(|(_, uid)| self.pods.by_uid.remove_entry(&uid)) else {
                continue;
            };
            if pod.unbound.is_some() {
                self.pods.unbound.due.insert(pod.key(&uid));
            } else if pod.start == Start::Silent {
                self.uncount(&pod);
                pod.start = Start::Refused(None);
                self.count(&mut pod);
            }
            self.pods.by_uid.insert(uid, pod);
        }
    }

    /// Charges the pod to its node, or removes the charge if `by` is -1.
    pub(super) fn change_charge(&mut self, uid: &Arc<str>, pod: &PodEntry, by: i64) {
        let Some(id) = pod.charged else { return };
        let Some(node) = self.nodes.by_id.get_mut(&id) else {
            return;
        };
        node.change(pod, self.config.headroom_below.0, by);
        if self.config.extender.enabled && pod.unbound.is_some() {
            let charged = Arc::make_mut(&mut self.pods.unbound.charged);
            if by > 0 {
                charged.insert(Arc::clone(uid), id);
            } else {
                charged.remove(uid);
            }
        }
        let key = pod.key(uid);
        if by > 0 {
            let is_guess = |unbound: &Unbound| unbound.nominated.is_none();
            if pod.unbound.as_deref().is_some_and(is_guess) {
                node.assumed.insert(key);
            }
            self.pods.unbound.lost.insert(id);
        } else {
            node.assumed.remove(&key);
            self.pods.unbound.gained.insert(id);
        }
        self.touch(id);
        self.nodes.forget_unused(id);
    }
}
