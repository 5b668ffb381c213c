//! Pods in the cache.

use std::sync::Arc;

use crate::cache::entry::{Counted, PodEntry, Unbound};
use crate::cache::full_clouds::LONGEST_SILENCE;
use crate::cache::unbound::CHARGE_TIME;
use crate::cache::{Cache, Kind, SiteEntry};
use crate::pod_record::{Decided, Phase, Placement, PodRecord};
use edgeward_decision::model::remote_room::Start;
use edgeward_decision::model::site::SiteDefinition;
use edgeward_kube::node::NodeId;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Micros, Moment, Now};

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

fn fingerprint(decided: Option<&Decided>) -> u64 {
    decided.map_or(0, Decided::fingerprint)
}

impl Cache {
    /// Applies a pod as it is now. `reserved_node` is the node of the reservation that a pod confirms when it is first
    /// seen.
    pub fn apply_pod(&mut self, record: &PodRecord, reserved_node: Option<NodeId>, at: Now) {
        let now = at.moment;
        let before = self.pods.get(&*record.uid).map(|pod| pod.phase);
        self.observe_finished(record, before, now);
        let (uid, old) = match self.pods.remove_entry(&*record.uid) {
            Some((uid, old)) => (uid, Some(old)),
            None => (Arc::from(&*record.uid), None),
        };
        if let Some(old) = &old {
            self.remove_pod(&uid, old);
            if record.terminating.is_some() || record.phase == Phase::Finished {
                self.queues.closed.outlast(old, now);
            }
            if record.phase == Phase::Finished {
                self.observe_terminated(old, now);
            }
        }
        let scheduler = record.scheduler.as_deref().map(|name| self.shared(name));
        if let Some(scheduler) = &scheduler {
            self.observe_scheduler(scheduler, record, old.as_deref(), now);
        }
        // A finished pod charges nothing, and adds no entry for its node.
        let node = record.node.as_deref().and_then(|name| match record.phase {
            Phase::Finished => self.names.get(name).copied(),
            _ => Some(self.node_id(name)),
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
            let unbound = self.unbound_as_seen(record, placement, scheduler, reserved_node, old, at);
            entry.unbound = Some(Box::new(unbound));
        }
        entry.charged = match &entry.unbound {
            Some(unbound) => unbound.charges(),
            None => node.filter(|_| is_active),
        };
        if entry.unbound.is_some() {
            self.unbound_pods.due.insert(entry.key(&uid));
        }
        self.record_first_charge(&uid, &mut entry, now);
        self.change_charge(&uid, &entry, 1);
        self.count(&uid, &mut entry);
        self.pods.insert(uid, Box::new(entry));
    }

    /// The record of a pod, without the node that it charges.
    fn new_entry(&mut self, record: &PodRecord, old: Option<&PodEntry>, node: Option<NodeId>, now: Moment) -> PodEntry {
        // A pod that was silent for too long stays refused until its status says something.
        let silence = old
            .filter(|old| record.start == Start::Silent && matches!(old.start, Start::Silent | Start::Refused(None)));
        let (start, silent_until) = match silence {
            Some(old) => (old.start.clone(), old.silent_until),
            None => (record.start.clone(), now.after(LONGEST_SILENCE)),
        };
        PodEntry {
            namespace: self.shared(&record.namespace),
            controller: record.controller.as_deref().map(|uid| self.shared(uid)),
            labels: (!record.labels.is_empty()).then(|| self.shared(&record.labels)),
            created: created(record),
            // A gated pod charges nothing, and is read again when its gate is gone.
            request: match record.gated {
                true => Amounts::default(),
                false => record.request.clone(),
            },
            priority: record.priority,
            may_preempt: record.may_preempt,
            placeholder_grace: record.placeholder_grace,
            slo: record.slo,
            phase: record.phase,
            gated: record.gated,
            terminating: None,
            was_seen_before_it_terminated: record.terminating.is_none()
                || old.is_some_and(|old| old.was_seen_before_it_terminated),
            decision: fingerprint(record.decided.as_deref()),
            listed: self.list(Kind::Pods).began,
            node,
            start,
            silent_until,
            charged: None,
            unbound: None,
            counted: Counted::default(),
            first_charged: old.and_then(|old| old.first_charged),
        }
    }

    /// Whether pods seen now may be old, because a list shows them.
    fn is_listing_pods(&self) -> bool {
        let list = self.list(Kind::Pods);
        !list.complete || list.is_under_way
    }

    /// The state of a pod without a node, as seen now.
    fn unbound_as_seen(
        &self,
        record: &PodRecord,
        placement: &Arc<Placement>,
        scheduler: Option<Arc<str>>,
        reserved_node: Option<NodeId>,
        old: Option<&PodEntry>,
        at: Now,
    ) -> Unbound {
        let before = old.and_then(|old| old.unbound.as_deref());
        let nominated = record.nominated.as_deref();
        let nominated = nominated.and_then(|name| self.names.get(name)).copied();
        let lost_nomination = nominated.is_none() && before.is_some_and(|before| before.nominated.is_some());
        let refusal = record.unschedulable.or(before.and_then(|before| before.refusal));
        let end = at.moment.after(CHARGE_TIME);
        Unbound {
            placement: Arc::clone(placement),
            site: self.site_of_placement(placement),
            scheduler,
            nominated,
            refusal,
            // A node that is gone is forgotten with the last pod that charged it.
            node: before
                .map_or(reserved_node, |before| before.node)
                .filter(|id| self.nodes.contains_key(id)),
            possible_node: before.and_then(|before| before.possible_node),
            until: match (old, before) {
                (_, Some(before)) => before.until,
                (None, None) if self.is_listing_pods() => end.before(age(record, at)),
                (None, None) => end,
                (Some(old), None) if old.gated => end,
                // The time of any other known pod to charge a guess is over.
                (Some(_), None) => at.moment,
            },
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
            self.unbound_pods.handled(scheduler, created(record), now);
        }
    }

    /// Removes a pod that is gone.
    pub fn delete_pod(&mut self, uid: &str) {
        if let Some((uid, old)) = self.pods.remove_entry(uid) {
            self.remove_pod(&uid, &old);
        }
    }

    /// Whether the pod was gated when it was last seen.
    pub fn is_gated(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.gated)
    }

    /// Whether the pod is known.
    pub fn has_seen(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// Whether the pod carries a decision that was not seen on it before.
    pub fn has_new_decision(&self, record: &PodRecord) -> bool {
        let before = self.pods.get(&*record.uid).map_or(0, |pod| pod.decision);
        record.decided.is_some() && fingerprint(record.decided.as_deref()) != before
    }

    /// The site of a pod by its spec: the site of its node, or the site whose whole selector it carries.
    pub fn site_of(&self, record: &PodRecord) -> Option<&SiteDefinition> {
        let of_node = |name: &str| self.nodes.get(self.names.get(name)?)?.site;
        let at = match (&record.node, &record.placement) {
            (Some(node), _) => of_node(node),
            (None, Some(placement)) => self.site_of_placement(placement),
            (None, None) => None,
        };
        Some(&self.sites[at?].site.definition)
    }

    /// Sets whether a namespace is opted in. The queues count only pods of opted-in namespaces.
    pub fn apply_namespace(&mut self, name: &str, is_managed: bool) {
        let name = self.shared(name);
        let changed = if is_managed {
            self.managed.insert(name)
        } else {
            self.managed.remove(&name)
        };
        self.queues.outdated |= changed;
        self.delta.sites |= changed;
    }

    pub(super) fn site_of_placement(&self, placement: &Placement) -> Option<usize> {
        let carries = |entry: &SiteEntry| placement.constraints.selects(entry.site.definition.selector());
        self.sites.iter().position(carries)
    }

    /// Removes the pod's charge and counts.
    fn remove_pod(&mut self, uid: &Arc<str>, entry: &PodEntry) {
        self.uncount(uid, entry);
        if let Some(unbound) = &entry.unbound {
            self.unbound_pods.forget(&entry.key(uid), unbound);
        }
        self.change_charge(uid, entry, -1);
    }

    /// Charges the pod to its node, or removes the charge if `by` is -1.
    pub(super) fn change_charge(&mut self, uid: &Arc<str>, pod: &PodEntry, by: i64) {
        let Some(id) = pod.charged else { return };
        let Some(node) = self.nodes.get_mut(&id) else { return };
        self.before.entry(id).or_insert_with(|| Arc::clone(&node.node));
        node.change(pod, self.headroom_below, by);
        let key = pod.key(uid);
        if by > 0 {
            let is_guess = |unbound: &Unbound| unbound.nominated.is_none();
            if pod.unbound.as_deref().is_some_and(is_guess) {
                node.assumed.insert(key);
            }
            self.unbound_pods.lost.insert(id);
        } else {
            node.assumed.remove(&key);
            self.unbound_pods.gained.insert(id);
        }
        self.touch(id);
        self.forget_unused(id);
    }
}
