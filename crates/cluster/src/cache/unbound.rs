//! Pods without a node: which node each of them charges, and for how long (docs/design/room.md).
//!
//! kube-scheduler does not announce where it will place a pod. So a new pod charges a guess until its scheduler refuses it
//! or its time is over. kube-scheduler reports a refusal once, so edgeward judges a refused pod by its own arithmetic.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cache::Cache;
use crate::cache::entry::{PodEntry, SchedulerKey, Unbound};
use crate::cache::node_entry::{NodeEntry, change_amounts};
use edgeward_decision::placement::score::best_node;
use edgeward_decision::recent::Recent;
use edgeward_kube::node::{Node, NodeId, Share};
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Micros, Moment};

/// How long a pod charges a guess after it was created or lost its last gate.
pub(super) const CHARGE_TIME: Micros = Micros::from_secs(30);

/// A scheduler that has handled no pod for this long has no backlog.
const BACKLOG_SECONDS: u64 = 5;

/// The pods without a node, and what must be checked before the next publication.
#[derive(Debug, Default)]
pub(super) struct UnboundPods {
    /// Pods that are checked regardless of what changed.
    pub(super) due: BTreeSet<SchedulerKey>,
    /// Pods that charge no node, or a node without room for them, and that a change of nodes may affect.
    pub(super) idle: BTreeSet<SchedulerKey>,
    /// Nodes that gained room or changed.
    pub(super) gained: BTreeSet<NodeId>,
    /// Nodes that lost room.
    pub(super) lost: BTreeSet<NodeId>,
    /// The node that each pod charges. Kept only while kube-scheduler asks about pods.
    pub(super) charged: Arc<BTreeMap<Arc<str>, NodeId>>,
    /// When each scheduler last bound or refused a pod, and the creation time of the youngest of these pods, in seconds
    /// since the epoch.
    pub(super) schedulers: Recent<Arc<str>, (Moment, i64), BACKLOG_SECONDS, 32>,
}

/// The sum of all placeholders on the node.
fn placeholders_on(node: &Node) -> Share {
    let mut all = Share::default();
    node.charges.placeholders.iter().for_each(|(_, share)| all.add(share));
    all
}

impl UnboundPods {
    /// Records that a scheduler bound or refused a pod with this creation time.
    pub(super) fn handled(&mut self, scheduler: &Arc<str>, created: i64, now: Moment) {
        let before = self.schedulers.remove(scheduler);
        let youngest = before.map_or(created, |(_, youngest)| youngest.max(created));
        self.schedulers.insert(Arc::clone(scheduler), (now, youngest), now);
    }

    /// When the pod is checked next; `None` once its time is over. The time is longer than [`CHARGE_TIME`] only while its
    /// scheduler handles other pods, none of them younger.
    fn next_check(&self, pod: &PodEntry, unbound: &Unbound, now: Moment) -> Option<Moment> {
        if now < pod.until {
            return Some(pod.until);
        }
        let (handled_at, youngest) = *self.schedulers.get(unbound.scheduler.as_ref()?, now)?;
        (youngest <= pod.created).then(|| handled_at.after(Micros::from_secs(BACKLOG_SECONDS)))
    }
}

impl Unbound {
    /// The node that the pod charges.
    pub(super) fn charges(&self) -> Option<NodeId> {
        let guess = self.node.filter(|_| self.may_charge());
        self.nominated.or(guess)
    }

    /// Whether the node is at the pod's site, has room in addition to `used` and `pods`, and passes kube-scheduler's
    /// filters for labels, taints and cordon.
    fn fits(&self, request: &Amounts, entry: &NodeEntry, used: &Amounts, pods: i64) -> bool {
        let node = &entry.node;
        entry.known
            && (self.site.is_none() || self.site == entry.site)
            && pods < node.slots
            && request.fits(&node.allocatable, used)
            && node.admits(&self.placement.constraints, self.placement.tolerations.iter())
    }
}

impl Cache {
    /// Updates every pod without a node. Cost: the nodes of a site times the pods that changed or are affected, and the
    /// nodes that changed times the idle pods.
    pub(super) fn update_unbound(&mut self, now: Moment) {
        loop {
            let gained = std::mem::take(&mut self.pods.unbound.gained);
            let lost = std::mem::take(&mut self.pods.unbound.lost);
            let displaced: BTreeSet<_> = gained.union(&lost).flat_map(|id| self.displaced(*id)).collect();
            let mut due = std::mem::take(&mut self.pods.unbound.due);
            due.extend(displaced.iter().cloned());
            if !gained.is_empty() || !lost.is_empty() {
                let idle = self.pods.unbound.idle.iter();
                due.extend(idle.filter(|key| self.is_affected(key, &gained, &lost)).cloned());
            }
            if due.is_empty() {
                return;
            }
            for key in due {
                // A pod that stays on a node without room for it remains displaced.
                let is_displaced = displaced.contains(&key) || self.pods.unbound.idle.contains(&key);
                self.update_unbound_pod(&key, is_displaced, now);
            }
        }
    }

    /// Pods that charge a guess on a node that no longer has room for all of them: the last ones in kube-scheduler's order.
    fn displaced(&self, id: NodeId) -> Vec<SchedulerKey> {
        let Some(entry) = self.nodes.by_id.get(&id).filter(|entry| !entry.assumed.is_empty()) else {
            return vec![];
        };
        let (mut used, mut pods) = (entry.node.charges.used.clone(), entry.node.charges.pods);
        let mut placeholders = placeholders_on(&entry.node);
        for pod in entry.assumed.iter().filter_map(|key| self.pods.by_uid.get(&key.uid)) {
            change_amounts(&mut used, &pod.request, -1);
            pods -= 1;
            if pod.placeholder(self.config.headroom_below.0).is_some() {
                change_amounts(&mut placeholders.amounts, &pod.request, -1);
                placeholders.pods -= 1;
            }
        }
        let mut displaced = vec![];
        for key in &entry.assumed {
            let Some((pod, unbound)) = self.unbound(&key.uid) else {
                continue;
            };
            let without = |evicted: &Share| {
                let rest = used.less(&evicted.amounts);
                unbound.fits(&pod.request, entry, &rest, pods - evicted.pods)
            };
            let evicts = placeholders.pods > 0 && pod.evicts_placeholders(self.config.headroom_below.0);
            if without(&Share::default()) || evicts && without(&placeholders) {
                change_amounts(&mut used, &pod.request, 1);
                pods += 1;
            } else {
                displaced.push(key.clone());
            }
        }
        displaced
    }

    /// Whether the change of these nodes may affect an idle pod.
    fn is_affected(&self, key: &SchedulerKey, gained: &BTreeSet<NodeId>, lost: &BTreeSet<NodeId>) -> bool {
        let Some((pod, unbound)) = self.unbound(&key.uid) else {
            return false;
        };
        if let Some(node) = unbound.node
            && pod.charged.is_none()
        {
            return gained.contains(&node) || lost.contains(&node);
        }
        let evicts = pod.evicts_placeholders(self.config.headroom_below.0);
        if gained.iter().any(|id| self.takes(*id, pod, unbound, evicts)) {
            return true;
        }
        let could_run = |id: NodeId| self.could_run_on(id, pod, unbound);
        unbound.refusal.is_some()
            && match unbound.possible_node {
                Some(possible_node) => !could_run(possible_node),
                None => gained.iter().copied().any(could_run),
            }
    }

    /// Decides the state of one pod, and moves its charge. The pod keeps its node unless it is displaced there and another
    /// node takes it.
    fn update_unbound_pod(&mut self, key: &SchedulerKey, is_displaced: bool, now: Moment) {
        let Some((pod, unbound)) = self.unbound(&key.uid) else {
            return;
        };
        let next_check = self.pods.unbound.next_check(pod, unbound, now);
        let is_refused = unbound.refusal.is_some();
        let is_expired = unbound.is_expired || next_check.is_none();
        let keeps = |id: &NodeId| match pod.charged {
            Some(charged) => charged == *id && !is_displaced,
            None => self.takes(*id, pod, unbound, pod.evicts_placeholders(self.config.headroom_below.0)),
        };
        let node = if is_expired && !is_refused || unbound.nominated.is_some() {
            None
        } else {
            let kept = unbound.node.filter(keeps);
            kept.or_else(|| self.best_node(pod, unbound))
        };
        // The pod may still arrive there, so its room is not promised to another pod.
        let may_stay = !is_refused && !is_expired && pod.placeholder(self.config.headroom_below.0).is_none();
        let stays = pod.charged.filter(|_| node.is_none() && is_displaced && may_stay);
        let stays = stays.filter(|id| self.could_run_on(*id, pod, unbound));
        let node = node.or(stays);
        let possible_node = match node {
            None if is_refused => self.possible_node(pod, unbound),
            _ => None,
        };
        let Some((uid, mut pod)) = self.pods.by_uid.remove_entry(&key.uid) else {
            return;
        };
        self.forget_plans(key, pod.until);
        let Some(unbound) = &mut pod.unbound else { return };
        (unbound.is_expired, unbound.node, unbound.possible_node) = (is_expired, node, possible_node);
        let charges = unbound.charges();
        if let Some(next_check) = next_check.filter(|_| unbound.may_charge()) {
            pod.until = next_check;
            self.pods.timers.insert((next_check, Arc::clone(&uid)));
        }
        if (charges.is_none() || stays.is_some()) && (is_refused || !is_expired) {
            self.pods.unbound.idle.insert(key.clone());
        }
        self.uncount(&pod);
        if charges != pod.charged {
            self.change_charge(&uid, &pod, -1);
            pod.charged = charges;
            self.record_first_charge(&uid, &mut pod, now);
            self.change_charge(&uid, &pod, 1);
        }
        self.count(&mut pod);
        self.pods.by_uid.insert(uid, pod);
    }

    fn unbound(&self, uid: &Arc<str>) -> Option<(&PodEntry, &Unbound)> {
        let pod = self.pods.by_uid.get(uid)?;
        Some((pod, pod.unbound.as_deref()?))
    }

    /// Whether the node has room for the pod in addition to all pods that charge it. With `evicts`, placeholders do not
    /// count.
    fn takes(&self, id: NodeId, pod: &PodEntry, unbound: &Unbound, evicts: bool) -> bool {
        let Some(entry) = self.nodes.by_id.get(&id) else {
            return false;
        };
        let node = &*entry.node;
        if !evicts || node.charges.placeholders.is_empty() {
            return unbound.fits(&pod.request, entry, &node.charges.used, node.charges.pods);
        }
        let evicted = placeholders_on(node);
        let used = node.charges.used.less(&evicted.amounts);
        unbound.fits(&pod.request, entry, &used, node.charges.pods - evicted.pods)
    }

    /// Whether the node is at the pod's site and could hold the pod if it were empty, Ready and not cordoned.
    fn could_run_on(&self, id: NodeId, pod: &PodEntry, unbound: &Unbound) -> bool {
        let Some(entry) = self.nodes.by_id.get(&id) else {
            return false;
        };
        let (node, placement) = (&*entry.node, &unbound.placement);
        entry.known
            && unbound.site.is_some()
            && unbound.site == entry.site
            && node.slots > 0
            && pod.request.fits(&node.allocatable, &Amounts::default())
            && placement.constraints.allow(&node.name, &node.labels)
            && node.lasting_taints(placement.tolerations.iter()).next().is_none()
    }

    /// A node of the pod's site that could hold the pod if it were empty. The known one stays if it still could. Otherwise,
    /// the cost is a pass over the nodes of the site until one is found.
    fn possible_node(&self, pod: &PodEntry, unbound: &Unbound) -> Option<NodeId> {
        let could_run = |id: &NodeId| self.could_run_on(*id, pod, unbound);
        let known = unbound.possible_node.filter(could_run);
        known.or_else(|| self.sites[unbound.site?].members.values().copied().find(could_run))
    }

    /// The node that kube-scheduler would pick among nodes that the pod fits; ties go by name. A node where placeholders
    /// must be evicted is picked only if there is no other. Cost: a pass over the nodes of the pod's site.
    fn best_node(&self, pod: &PodEntry, unbound: &Unbound) -> Option<NodeId> {
        let best = |evicts: bool| {
            let taking = |id: &NodeId| {
                let node = &*self.nodes.by_id.get(id)?.node;
                self.takes(*id, pod, unbound, evicts)
                    .then_some((node, Cow::Borrowed(&node.charges.used)))
            };
            let best = match unbound.site {
                Some(site) => best_node(&pod.request, self.sites[site].members.values().filter_map(taking)),
                None => best_node(&pod.request, self.nodes.by_id.keys().filter_map(taking)),
            };
            best.map(|node| node.id)
        };
        let evicts = pod.evicts_placeholders(self.config.headroom_below.0);
        best(false).or_else(|| evicts.then(|| best(true)).flatten())
    }
}
