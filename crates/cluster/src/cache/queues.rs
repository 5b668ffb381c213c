//! Pods that wait for a site, and pods that keep it closed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::Cache;
use crate::cache::entry::{Counted, Group, PodEntry, Unbound};
use crate::pod_record::Phase;
use edgeward_decision::model::remote_room::Start;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::{ByNamespace, QueueGroup};
use edgeward_decision::recent::Recent;
use edgeward_kube::units::Moment;

/// A site, and the namespace and uid of a controller.
type AtSite = (usize, [Arc<str>; 2]);

/// Counts by site.
#[derive(Debug, Default)]
pub(super) struct Queues {
    /// Pods that wait for room, by site, class and priorities.
    waiting: BTreeMap<Group, u64>,
    pub(super) closed: BySite,
    pub(super) stay: BySite,
    pub(super) labelled: BySite,
    /// Whether `sitePolicy` needs the count of pods by controller.
    pub(super) counts_pods: bool,
    /// Whether nodes or namespaces changed, so that pods may count elsewhere.
    pub(super) outdated: bool,
}

impl Queues {
    /// Counts a pod, or takes it back if `by` is -1.
    fn change(&mut self, counted: Counted, entry: &PodEntry, by: i64) {
        if let Some(group) = counted.group {
            let pods = self.waiting.entry(group).or_default();
            *pods = pods.saturating_add_signed(by);
            if *pods == 0 {
                self.waiting.remove(&group);
            }
        }
        let (namespace, controller) = (&entry.namespace, &entry.controller);
        self.closed.change(counted.closes, namespace, controller, by);
        self.stay.change(counted.stays, namespace, controller, by);
        self.labelled.change(counted.lives, namespace, &entry.labels, by);
    }

    /// The queues of each site; `sites` is the number of sites.
    pub(super) fn by_site(&self, sites: usize) -> Vec<Vec<QueueGroup>> {
        let mut queues = vec![vec![]; sites];
        for (&(site, class, priority, slo_priority), &waiting) in &self.waiting {
            queues[site].push(QueueGroup {
                class,
                priority,
                slo_priority,
                waiting,
            });
        }
        queues
    }
}

/// Pods by site and controller, or by site and labels.
#[derive(Debug, Default)]
pub(super) struct BySite {
    pods: BTreeMap<usize, ByNamespace<u64>>,
    changed: BTreeSet<usize>,
    /// Controllers that count at a site for ten more minutes after their refused pod is gone, unless one of their pods runs
    /// there.
    lasting: Recent<AtSite, (), 600, 1_000>,
    /// The creation time, in seconds, of the youngest pod that began at a site while its controller counts there.
    begun: BTreeMap<AtSite, i64>,
}

impl BySite {
    fn change(&mut self, site: Option<usize>, namespace: &str, uid: &Option<Arc<str>>, by: i64) {
        if let (Some(site), Some(uid)) = (site, uid) {
            let pods = self.pods.entry(site).or_default();
            pods.change(namespace, uid, by);
            self.changed.insert(site);
        }
    }

    /// Keeps counting the controller of a pod that is gone at its site, unless a younger pod of it began there.
    pub(super) fn outlast(&mut self, entry: &PodEntry, now: Moment) {
        let (Some(site), Some(uid)) = (entry.counted.closes, &entry.controller) else {
            return;
        };
        let key = (site, [Arc::clone(&entry.namespace), Arc::clone(uid)]);
        if self.begun.get(&key).is_none_or(|youngest| *youngest <= entry.created) {
            let forgotten = self.lasting.insert(key, (), now);
            self.changed.extend(forgotten.map(|(site, _)| site));
        }
    }

    /// Handles a pod that runs at the site. Cost: if its controller counts there, a pass over all controllers that count
    /// anywhere.
    pub(super) fn runs(&mut self, site: Option<usize>, entry: &PodEntry) {
        let (Some(site), Some(uid)) = (site, &entry.controller) else {
            return;
        };
        let key = (site, [Arc::clone(&entry.namespace), Arc::clone(uid)]);
        self.changed.extend(self.lasting.remove(&key).map(|_| site));
        let counts = |(site, [namespace, uid]): &AtSite| {
            let pods = self.pods.get(site);
            pods.is_some_and(|pods| pods.get(namespace, uid).is_some())
        };
        if counts(&key) {
            self.begun.retain(|key, _| counts(key));
            let youngest = self.begun.entry(key).or_insert(entry.created);
            *youngest = entry.created.max(*youngest);
        }
    }

    /// Moves the counts to the new indexes of the sites, and drops the counts of removed sites. No pod is counted
    /// meanwhile.
    pub(super) fn move_sites(&mut self, places: &[Option<usize>]) {
        self.begun.clear();
        self.lasting
            .rename(|(site, controller)| Some((places[site]?, controller)));
        self.changed = self.lasting.iter().map(|((site, _), ())| *site).collect();
    }

    pub(super) fn expire(&mut self, now: Moment) {
        while let Some((site, _)) = self.lasting.take_ended(now) {
            self.changed.insert(site);
        }
    }

    /// When the next controller stops counting.
    pub(super) fn next_change(&self) -> Option<Moment> {
        self.lasting.next_end()
    }

    /// The pods at a site, if they changed since the last call. Cost: the number of namespaces there.
    pub(super) fn take_changed(&mut self, site: usize) -> Option<ByNamespace<u64>> {
        if !self.changed.remove(&site) {
            return None;
        }
        let mut pods = self.pods.get(&site).cloned().unwrap_or_default();
        for ((at, [namespace, uid]), ()) in self.lasting.iter() {
            if *at == site {
                pods.entry(namespace, uid).or_insert(0);
            }
        }
        Some(pods)
    }
}

impl Cache {
    pub(super) fn count(&mut self, uid: &Arc<str>, entry: &mut PodEntry) {
        entry.counted = self.count_as(entry);
        self.queues.change(entry.counted, entry, 1);
        self.full_clouds.change(uid, entry, 1);
    }

    pub(super) fn uncount(&mut self, uid: &Arc<str>, entry: &PodEntry) {
        self.queues.change(entry.counted, entry, -1);
        self.full_clouds.change(uid, entry, -1);
    }

    /// Counts every pod again if a change of nodes or namespaces may count it elsewhere. Cost: a pass over all pods.
    pub(super) fn recount(&mut self) {
        if !std::mem::take(&mut self.queues.outdated) {
            return;
        }
        let mut pods = std::mem::take(&mut self.pods);
        for (uid, entry) in &mut pods {
            if self.count_as(entry) != entry.counted {
                self.uncount(uid, entry);
                self.count(uid, entry);
            }
        }
        self.pods = pods;
    }

    fn count_as(&self, entry: &PodEntry) -> Counted {
        let site = match (entry.node, &entry.unbound) {
            (Some(node), _) => self.nodes.get(&node).and_then(|node| node.site),
            (None, unbound) => unbound.as_ref().and_then(|unbound| unbound.site),
        };
        let is_active = entry.phase != Phase::Finished && !entry.gated;
        let stays = self.queues.counts_pods && is_active && entry.terminating.is_none();
        let is_at_cloud = |at: &usize| self.sites[*at].site.kind() == SiteKind::Cloud;
        // Only a pod with a node has a start other than `Begun`.
        let cloud = site.filter(is_at_cloud).filter(|_| entry.terminating.is_none());
        let witness_at = cloud.filter(|_| matches!(entry.start, Start::Refused(Some(_))));
        let refused_at = cloud.filter(|_| entry.start == Start::Refused(None));
        let unbound = entry.unbound.as_deref();
        let waits = unbound.is_some_and(Unbound::is_in_queue) || witness_at.is_some();
        let is_in_queue = waits && entry.is_pending() && self.managed.contains(&entry.namespace);
        Counted {
            group: match (site, entry.slo) {
                (Some(site), Some((class, stated))) if is_in_queue => {
                    let slo_priority = self.priority_caps.cap(&entry.namespace, stated);
                    Some((site, class, entry.priority, slo_priority))
                }
                _ => None,
            },
            closes: refused_at.or(site.filter(|_| unbound.is_some_and(Unbound::closes_site))),
            witness_at,
            silent_until: cloud
                .filter(|_| entry.start == Start::Silent)
                .map(|_| entry.silent_until),
            stays: site.filter(|_| stays),
            lives: site.filter(|_| is_active && !unbound.is_some_and(Unbound::is_refused)),
        }
    }
}
