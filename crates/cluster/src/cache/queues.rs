//! Pods that count at a site: pods that wait for it, keep it closed, or run there.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Cache;
use crate::cache::entry::{Controller, Counted, Membered, PodEntry, Unbound};
use crate::pod_record::Phase;
use edgeward_decision::config::SitePolicy;
use edgeward_decision::model::remote_room::Start;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::slo::Class;
use edgeward_decision::model::snapshot::{ByNamespace, QueueGroup};
use edgeward_decision::recent::Recent;
use edgeward_kube::units::Moment;

/// The controllers to which a site is closed.
#[derive(Debug, Default)]
pub(super) struct Closed {
    /// Refused pods by controller.
    pods: ByNamespace<u64>,
    /// Controllers that count for ten more minutes after their refused pod is gone, unless one of their pods runs there.
    pub(super) lasting: Recent<Controller, (), 600, 1_000>,
    /// The creation time, in seconds, of the youngest pod that began at the site while its controller counts.
    begun: BTreeMap<Controller, i64>,
}

impl Closed {
    /// The controllers whose refused pods are gone.
    pub(super) fn without_pods(self) -> Self {
        Self {
            lasting: self.lasting,
            ..Self::default()
        }
    }

    /// Keeps counting the controller of a pod that is gone, unless a younger pod of it began at the site.
    fn outlast(&mut self, entry: &PodEntry, now: Moment) {
        let Some(key) = entry.controller_key() else { return };
        if self.begun.get(&key).is_none_or(|youngest| *youngest <= entry.created) {
            self.lasting.insert(key, (), now);
        }
    }

    /// Handles a pod that runs at the site. Cost: if its controller counts, a pass over all controllers that count.
    pub(super) fn runs(&mut self, entry: &PodEntry) {
        let Some(key) = entry.controller_key() else { return };
        self.lasting.remove(&key);
        let counts = |[namespace, uid]: &Controller| self.pods.get(namespace, uid).is_some();
        if counts(&key) {
            self.begun.retain(|key, _| counts(key));
            let youngest = self.begun.entry(key).or_insert(entry.created);
            *youngest = entry.created.max(*youngest);
        }
    }

    /// The controllers as of now, each with the number of its pods. Cost: the number of these controllers.
    pub(super) fn as_of(&mut self, now: Moment) -> ByNamespace<u64> {
        self.lasting.expire(now);
        let mut closed = self.pods.clone();
        for ([namespace, uid], ()) in self.lasting.iter() {
            closed.entry(namespace, uid).or_insert(0);
        }
        closed
    }
}

/// Changes the number of pods that wait in this group: class, pod priority and SLO priority. The groups are sorted.
fn change_group(queues: &mut Vec<QueueGroup>, group: (Class, i32, u8), by: i64) {
    let (class, priority, slo_priority) = group;
    let known = |queue: &QueueGroup| (queue.class, queue.priority, queue.slo_priority);
    let at = queues.binary_search_by_key(&group, known).unwrap_or_else(|at| {
        let waiting = 0;
        queues.insert(
            at,
            QueueGroup {
                class,
                priority,
                slo_priority,
                waiting,
            },
        );
        at
    });
    queues[at].waiting = queues[at].waiting.saturating_add_signed(by);
    if queues[at].waiting == 0 {
        queues.remove(at);
    }
}

impl Cache {
    /// Counts a pod at its site.
    pub(super) fn count(&mut self, entry: &mut PodEntry) {
        entry.counted = self.count_as(entry);
        self.change_counts(entry, 1);
    }

    /// Takes back how the pod was counted.
    pub(super) fn uncount(&mut self, entry: &PodEntry) {
        self.change_counts(entry, -1);
    }

    fn change_counts(&mut self, entry: &PodEntry, by: i64) {
        let Some(counted) = entry.counted else { return };
        let (site, namespace) = (&mut self.sites[counted.site], &entry.namespace);
        if let Some(group) = counted.group {
            change_group(&mut site.site.queues, group, by);
        }
        if let (true, Start::Refused(Some(bound))) = (counted.is_witness, &entry.start) {
            site.full.change(bound, by);
        }
        if let (true, Some(uid)) = (counted.closes, &entry.controller) {
            site.closed.pods.change(namespace, uid, by);
        }
        if let (true, Some(uid)) = (counted.stays, &entry.controller) {
            Arc::make_mut(&mut site.site.pods_of).change(namespace, uid, by);
        }
        if let (true, Some(uid)) = (counted.is_owned, &entry.controller) {
            Arc::make_mut(&mut site.site.owned).change(namespace, uid, by);
        }
        if let (true, Some(labels)) = (counted.lives, &entry.labels) {
            Arc::make_mut(&mut site.site.labelled).change(namespace, labels, by);
        }
        if let (Some(member), Some(membership)) = (counted.member, &entry.membership) {
            let members = match member {
                Membered::Live => &mut site.site.members,
                Membered::Succeeded => &mut site.site.succeeded_members,
            };
            Arc::make_mut(members).change(namespace, membership, by);
        }
    }

    /// Counts every pod again if a change of nodes or namespaces may count it elsewhere. Cost: a pass over all pods.
    pub(super) fn recount(&mut self) {
        if !std::mem::take(&mut self.pods.need_recount) {
            return;
        }
        let mut pods = std::mem::take(&mut self.pods.by_uid);
        for entry in pods.values_mut() {
            if self.count_as(entry) != entry.counted {
                self.uncount(entry);
                self.count(entry);
            }
        }
        self.pods.by_uid = pods;
    }

    fn count_as(&self, entry: &PodEntry) -> Option<Counted> {
        let unbound = entry.unbound.as_deref();
        let site = match entry.node {
            Some(node) => self.nodes.by_id.get(&node)?.site?,
            None => unbound?.site?,
        };
        let (namespace, is_terminating) = (&entry.namespace, entry.terminating.is_some());
        let is_active = entry.phase != Phase::Finished && !entry.gated;
        // Only a pod with a node has a start other than `Begun`.
        let is_at_cloud = self.sites[site].site.kind() == SiteKind::Cloud && !is_terminating;
        let is_witness = is_at_cloud && matches!(entry.start, Start::Refused(Some(_)));
        let waits = unbound.is_some_and(Unbound::is_in_queue) || is_witness;
        let is_in_queue = waits && entry.is_pending() && self.managed.contains(namespace);
        // A gang is refused while members are missing, which says nothing about the site.
        let is_gang = entry.membership.as_ref().is_some_and(|membership| membership.is_gang);
        let cap = |stated| self.config.priority_caps.cap(namespace, stated);
        let group = entry.slo.filter(|_| is_in_queue);
        let is_live = is_active && !is_terminating;
        let config = &self.config;
        let spreads = config.site_policy == SitePolicy::Spread || entry.spreads;
        let member = match entry.phase {
            Phase::Finished => (!entry.failed).then_some(Membered::Succeeded),
            _ => is_live.then_some(Membered::Live),
        };
        let member = member.filter(|member| self.is_counted_member(entry, site, *member));
        Some(Counted {
            site,
            group: group.map(|(class, stated)| (class, entry.priority, cap(stated))),
            closes: !is_gang
                && (is_at_cloud && entry.start == Start::Refused(None) || unbound.is_some_and(Unbound::closes_site)),
            is_witness,
            stays: is_live && spreads,
            is_owned: is_live && config.scorer.is_on(),
            lives: is_active && !unbound.is_some_and(Unbound::is_refused),
            member,
        })
    }

    /// Whether the pod counts for its group at this site: it does already, or the limits leave a place for it.
    fn is_counted_member(&self, entry: &PodEntry, site: usize, member: Membered) -> bool {
        let Some(membership) = &entry.membership else {
            return false;
        };
        let members = match member {
            Membered::Live => &self.sites[site].site.members,
            Membered::Succeeded => &self.sites[site].site.succeeded_members,
        };
        let before = entry.counted.filter(|counted| counted.site == site);
        before.is_some_and(|counted| counted.member == Some(member))
            || members.has_place_for(&entry.namespace, membership)
    }

    /// Keeps the site closed that this pod has closed, if the pod is gone.
    pub(super) fn outlast(&mut self, entry: &PodEntry, now: Moment) {
        if let Some(counted) = entry.counted.filter(|counted| counted.closes) {
            self.sites[counted.site].closed.outlast(entry, now);
        }
    }
}
