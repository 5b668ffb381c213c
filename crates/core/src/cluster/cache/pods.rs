//! Pods that exist.

use std::sync::Arc;

use crate::cluster::cache::entry::{Before, Counted, PodEntry, Unbound};
use crate::cluster::cache::witnesses::LONGEST_SILENCE;
use crate::cluster::cache::{Cache, Kind};
use crate::model::node::NodeId;
use crate::model::pod_record::{Decided, Phase, Placement, PodRecord};
use crate::model::remote_room::Start;
use crate::model::site::SiteDefinition;
use crate::resources::Amounts;
use crate::units::Moment;

fn fingerprint(decided: Option<&Decided>) -> u64 {
    decided.map_or(0, Decided::fingerprint)
}

impl Cache {
    /// A pod as it is now. `reserved_node` is the node of the reservation that this pod, seen for the first time, confirms.
    pub fn apply_pod(&mut self, record: &PodRecord, reserved_node: Option<NodeId>, now: Moment) {
        let listed = self.list(Kind::Pods).began;
        let before = self.pods.get(&*record.uid).map(|pod| pod.phase);
        self.observe_finished(record, before);
        let (uid, old) = match self.pods.remove_entry(&*record.uid) {
            Some((uid, old)) => (uid, Some(old)),
            None => (Arc::from(&*record.uid), None),
        };
        if let Some(old) = &old {
            self.remove_pod(&uid, old);
            if record.phase == Phase::Finished {
                self.observe_terminated(old, now);
            }
        }
        let scheduler = record.scheduler.as_deref().map(|name| self.shared(name));
        if let Some(scheduler) = &scheduler {
            self.observe_scheduler(scheduler, record, old.as_deref(), now);
        }
        let terminating = record
            .terminating
            .map(|by| self.termination(record, by, old.as_deref(), now));
        // One that is over charges nothing, and makes no node known.
        let node = record.node.as_deref().and_then(|name| match record.phase {
            Phase::Finished => self.names.get(name).copied(),
            _ => Some(self.node_id(name)),
        });
        let nominated = record
            .nominated
            .as_deref()
            .and_then(|name| self.names.get(name))
            .copied();
        let is_silent = |old: &&PodEntry| old.start == Start::Silent && record.start == Start::Silent;
        let silence = old.as_deref().filter(is_silent);
        let mut entry = PodEntry {
            namespace: self.shared(&record.namespace),
            controller: record.controller.as_deref().map(|uid| self.shared(uid)),
            created: record.created.map_or(0, jiff::Timestamp::as_second),
            // One behind a gate charges nothing, and is read anew when it is gone.
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
            terminating,
            was_seen_before_it_terminated: terminating.is_none()
                || old.as_ref().is_some_and(|old| old.was_seen_before_it_terminated),
            decision: fingerprint(record.decided.as_deref()),
            listed,
            node,
            start: record.start.clone(),
            silent_until: silence.map_or_else(
                || (record.start == Start::Silent).then(|| now.after(LONGEST_SILENCE)),
                |old| old.silent_until,
            ),
            is_silent_for_long: silence.is_some_and(|old| old.is_silent_for_long),
            charged: None,
            unbound: None,
            counted: Counted::default(),
            first_charged: old.as_ref().and_then(|old| old.first_charged),
        };
        let has_begun = entry.node.is_some() && entry.start == Start::Begun && !record.failed;
        let was_waiting = match &old {
            Some(old) => old.node.is_none() || old.start != Start::Begun,
            // What a list shows has been there for nobody knows how long.
            None => !self.is_listing_pods(),
        };
        if has_begun && was_waiting {
            self.observe_begun(&entry);
        }
        // kube-scheduler leaves a pod alone that is being deleted before it has a node.
        let is_terminating = record.terminating.is_some() && node.is_none();
        let is_active = entry.phase != Phase::Finished && !entry.gated && !is_terminating;
        if let (true, None, Some(placement)) = (is_active, node, &record.placement) {
            let site = self.site_of_placement(placement);
            let before = match old {
                // Of a pod that was held, everything is new.
                None => Before::Unseen {
                    reserved_node,
                    is_listed: self.is_listing_pods(),
                },
                Some(old) if old.gated => Before::Unseen {
                    reserved_node,
                    is_listed: false,
                },
                Some(old) => Before::Seen {
                    is_resized: old.request != record.request,
                    unbound: old.unbound,
                },
            };
            let unbound = Unbound::new(
                Arc::clone(placement),
                site,
                scheduler,
                nominated,
                record.unschedulable,
                before,
                now,
            );
            entry.unbound = Some(Box::new(unbound));
        }
        entry.charged = match &entry.unbound {
            Some(unbound) => unbound.charges(),
            None => node.filter(|_| is_active),
        };
        if entry.unbound.is_some() {
            self.unbound_pods.schedule_check(entry.key(&uid));
        }
        self.record_first_charge(&uid, &mut entry, now);
        self.insert_pod(uid, entry);
    }

    /// Whether what is seen of pods may have been there for long: a list shows it.
    fn is_listing_pods(&self) -> bool {
        let list = self.list(Kind::Pods);
        !list.complete || list.is_under_way
    }

    /// What the pod says of its scheduler: that it is bound since it was last seen, or refused in other words. Of one that a list
    /// shows, that it was bound at some time; of a new one, its author may have named the node.
    fn observe_scheduler(&mut self, scheduler: &Arc<str>, record: &PodRecord, old: Option<&PodEntry>, now: Moment) {
        let is_bound = record.node.is_some();
        let was_bound = old.map(|old| old.node.is_some());
        let word = |old: &PodEntry| old.unbound.as_ref()?.unschedulable.map(|(word, _)| word);
        let is_refused = record.unschedulable.is_some() && record.unschedulable != old.and_then(word);
        let is_listed_bound = is_bound && was_bound.is_none() && self.is_listing_pods();
        let schedulers = &mut self.unbound_pods.schedulers;
        if is_bound && was_bound == Some(false) {
            schedulers.bound(scheduler, now);
        } else if is_refused || is_listed_bound {
            schedulers.observe(scheduler, now);
        }
    }

    /// A pod is gone.
    pub fn delete_pod(&mut self, uid: &str) {
        if let Some((uid, old)) = self.pods.remove_entry(uid) {
            self.remove_pod(&uid, &old);
        }
    }

    /// Whether this pod was seen before, held by a gate.
    pub fn is_gated(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.gated)
    }

    /// Whether this pod was seen before.
    pub fn has_seen(&self, uid: &str) -> bool {
        self.pods.contains_key(uid)
    }

    /// Whether this pod carries a decision that it was not seen with before.
    pub fn has_new_decision(&self, record: &PodRecord) -> bool {
        let before = self.pods.get(&*record.uid).map_or(0, |pod| pod.decision);
        record.decided.is_some() && fingerprint(record.decided.as_deref()) != before
    }

    /// The site that a pod is of by its spec: that of its node, or the one whose whole selector it carries.
    pub fn site_of(&self, record: &PodRecord) -> Option<&SiteDefinition> {
        let of_node = |name: &str| self.nodes.get(self.names.get(name)?)?.site;
        let at = match (&record.node, &record.placement) {
            (Some(node), _) => of_node(node),
            (None, Some(placement)) => self.site_of_placement(placement),
            (None, None) => None,
        };
        Some(&self.sites[at?].site.definition)
    }

    /// A namespace, and whether it is opted in: only its pods count in our queues.
    pub fn apply_namespace(&mut self, name: &str, is_managed: bool) {
        let name = self.shared(name);
        let changed = if is_managed {
            self.managed.insert(name)
        } else {
            self.managed.remove(&name)
        };
        self.queues.outdated |= changed;
        self.delta.other |= changed;
    }

    fn site_of_placement(&self, placement: &Placement) -> Option<usize> {
        let selector = &placement.constraints.selector;
        let carries = |(key, value): (&str, &str)| selector.iter().any(|(k, v)| k == key && v == value);
        self.sites
            .iter()
            .position(|entry| entry.site.definition.selector().all(carries))
    }

    /// Takes back everything that this pod adds.
    fn remove_pod(&mut self, uid: &Arc<str>, entry: &PodEntry) {
        self.uncount(uid, entry);
        if let Some(unbound) = &entry.unbound {
            self.unbound_pods.forget(&entry.key(uid), unbound);
        }
        self.discharge_pod(uid, entry);
    }

    /// Adds everything that this pod adds.
    fn insert_pod(&mut self, uid: Arc<str>, mut entry: PodEntry) {
        self.charge_pod(&uid, &entry);
        self.count(&uid, &mut entry);
        self.pods.insert(uid, Box::new(entry));
    }

    /// Charges the node that the pod says it charges.
    pub(super) fn charge_pod(&mut self, uid: &Arc<str>, entry: &PodEntry) {
        let Some(id) = entry.charged else { return };
        if entry.is_assumed()
            && let Some(node) = self.nodes.get_mut(&id)
        {
            node.assume(entry.key(uid), entry, self.headroom_below);
            self.assumed_nodes.insert(id);
        }
        self.charge(id, entry);
    }

    /// The reverse of [`Self::charge_pod`].
    pub(super) fn discharge_pod(&mut self, uid: &Arc<str>, entry: &PodEntry) {
        let Some(id) = entry.charged else { return };
        if entry.is_assumed()
            && let Some(node) = self.nodes.get_mut(&id)
        {
            node.forget_assumed(&entry.key(uid), entry, self.headroom_below);
            if node.assumed.is_empty() {
                self.assumed_nodes.remove(&id);
            }
        }
        self.discharge(id, entry);
    }
}
