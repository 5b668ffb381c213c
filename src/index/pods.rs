//! Pods that exist.

use std::cmp::Reverse;
use std::sync::Arc;

use super::queues::Counted;
use super::standing::{Before, Unbound};
use super::{Index, Kind};
use crate::backstop::StuckPod;
use crate::fleet::{NodeId, SiteDefinition};
use crate::pod::{Decided, Finished};
use crate::resources::Amounts;
use crate::units::Moment;
use crate::waitlist::HeldPod;
use crate::workload::constraints::{NodeConstraints, Toleration};
use crate::workload::slo::Class;

/// A pod that exists, reduced to what charges and queues are made of. Read by [`crate::pod::Pod::record`].
#[derive(Debug, Clone)]
pub struct PodRecord {
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// Namespace.
    pub namespace: Box<str>,
    /// Uid of its controller.
    pub controller: Option<Box<str>>,
    /// Kind and name of its controller, for people.
    pub controller_name: Option<Box<str>>,
    /// When it was created, to the second.
    pub created: Option<jiff::Timestamp>,
    /// `spec.nodeName`.
    pub node: Option<Box<str>>,
    /// `status.nominatedNodeName`.
    pub nominated: Option<Box<str>>,
    /// What it takes from its node, a resize in place included.
    pub request: Amounts,
    /// `spec.priority`.
    pub priority: i32,
    /// Its class and SLO priority, where it states a class.
    pub slo: Option<(Class, u8)>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Whether it is over, and not well.
    pub failed: bool,
    /// How long its work took, if it is a Job's and over.
    pub finished: Option<Finished>,
    /// Whether it is being deleted, and by when it is to be gone, to the second, if that can be read.
    pub terminating: Option<Option<jiff::Timestamp>>,
    /// Whether it ends for the sake of others, by preemption or eviction.
    pub disrupted: bool,
    /// Whether a scheduling gate keeps it from kube-scheduler.
    pub gated: bool,
    /// That kube-scheduler found no node for it: a number that differs when it says so in other words.
    pub unschedulable: Option<u64>,
    /// The id of the decision it carries.
    pub decision: Option<Box<str>>,
    /// What it says of that decision, for those who tell people.
    pub decided: Option<Box<Decided>>,
    /// Where it may run; kept as long as it has no node.
    pub placement: Option<Box<Placement>>,
    /// The pod as the waitlist keeps it, if it carries our gate.
    pub held: Option<Box<HeldPod>>,
    /// The pod, if it carries the gate that would be ours under another domain.
    pub stray: Option<Box<Stray>>,
    /// The pod as the backstop keeps it, if it states an SLO, was not let go, and kube-scheduler has found no node for it.
    pub stuck: Option<Box<StuckPod>>,
    /// Whether it states an SLO and no decision, and nothing in it says why.
    pub undecided: bool,
}

/// A pod behind the gate of another domain: nobody releases it, unless edgeward runs with that domain, too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// `metadata.namespace`.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// The domain of the gate.
    pub domain: Box<str>,
}

/// Where a pod may run by its spec, our own placement included.
#[derive(Debug, Clone, Default)]
pub struct Placement {
    /// nodeSelector and required node affinity.
    pub constraints: NodeConstraints<'static>,
    /// Tolerations.
    pub tolerations: Vec<Toleration<'static>>,
}

/// Where a pod is in its life, as far as charges go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not running yet.
    Pending,
    /// Running, or of a phase that we do not know.
    Running,
    /// Succeeded or failed: charges nothing.
    Finished,
}

fn fingerprint(decided: Option<&Decided>) -> u64 {
    decided.map_or(0, Decided::fingerprint)
}

/// The order in which kube-scheduler takes waiting pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: Reverse<i32>,
    /// Seconds since the epoch.
    created: i64,
    pub(super) uid: Arc<str>,
}

#[derive(Debug)]
pub(super) struct PodEntry {
    pub(super) namespace: Arc<str>,
    pub(super) controller: Option<Arc<str>>,
    created: i64,
    pub(super) request: Amounts,
    pub(super) priority: i32,
    pub(super) slo: Option<(Class, u8)>,
    pub(super) phase: Phase,
    gated: bool,
    pub(super) terminating: Option<Option<jiff::Timestamp>>,
    /// The decision that it was last seen with; 0 without one.
    decision: u64,
    pub(super) listed: u32,
    /// The node it is bound to.
    pub(super) node: Option<NodeId>,
    /// The node it charges, bound to it or not.
    pub(super) charged: Option<NodeId>,
    /// What becomes of it until it is bound; `None` for a pod with a node, a gate, or an end.
    pub(super) unbound: Option<Box<Unbound>>,
    pub(super) counted: Counted,
    /// When it first charged a node.
    pub(super) begun: Option<Moment>,
}

impl PodEntry {
    pub(super) fn rank(&self, uid: &Arc<str>) -> Rank {
        Rank {
            priority: Reverse(self.priority),
            created: self.created,
            uid: Arc::clone(uid),
        }
    }

    /// Whether it charges a node that nobody has promised it.
    fn is_on_its_way(&self) -> bool {
        let free_to_move = |unbound: &Unbound| unbound.nominated.is_none();
        self.unbound.as_deref().is_some_and(free_to_move)
    }

    /// Whether it stands in line for a site: pending, and not held by a gate.
    pub(super) fn is_pending(&self) -> bool {
        self.phase == Phase::Pending && !self.gated
    }
}

impl Index {
    /// A pod as it is now. `inherited` is the node of the reservation that this pod, seen for the first time, confirms.
    pub fn apply_pod(&mut self, record: PodRecord, inherited: Option<NodeId>, now: Moment) {
        let listed = self.list(Kind::Pods).began;
        let before = self.pods.get(&*record.uid).map(|pod| pod.phase);
        self.learn(&record, before);
        let (uid, old) = match self.pods.remove_entry(&*record.uid) {
            Some((uid, old)) => (uid, Some(old)),
            None => (Arc::from(record.uid), None),
        };
        if let Some(old) = &old {
            self.withdraw(&uid, old);
        }
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
        let mut entry = PodEntry {
            namespace: self.shared(&record.namespace),
            controller: record.controller.as_deref().map(|uid| self.shared(uid)),
            created: record.created.map_or(0, jiff::Timestamp::as_second),
            request: record.request,
            priority: record.priority,
            slo: record.slo,
            phase: record.phase,
            gated: record.gated,
            terminating: record.terminating,
            decision: fingerprint(record.decided.as_deref()),
            listed,
            node,
            charged: None,
            unbound: None,
            counted: Counted::default(),
            begun: old.as_ref().and_then(|old| old.begun),
        };
        // kube-scheduler leaves a pod alone that is being deleted before it has a node.
        let is_leaving = record.terminating.is_some() && node.is_none();
        let is_standing = entry.phase != Phase::Finished && !entry.gated && !is_leaving;
        if let (true, None, Some(placement)) = (is_standing, node, record.placement) {
            let site = self.site_of_placement(&placement);
            let before = match old {
                // Of a pod that was held, everything is new.
                None => Before::Unseen { inherited },
                Some(old) if old.gated => Before::Unseen { inherited },
                Some(old) => Before::Seen(old.unbound),
            };
            let unbound = Unbound::new(*placement, site, nominated, record.unschedulable, before, now);
            entry.unbound = Some(Box::new(unbound));
        }
        entry.charged = match &entry.unbound {
            Some(unbound) => unbound.charges(),
            None => node.filter(|_| is_standing),
        };
        if entry.unbound.is_some() {
            self.unsettled.look_at(entry.rank(&uid));
        }
        self.begin(&uid, &mut entry, now);
        self.enter(uid, entry);
    }

    /// A pod is gone.
    pub fn delete_pod(&mut self, uid: &str) {
        if let Some((uid, old)) = self.pods.remove_entry(uid) {
            self.withdraw(&uid, &old);
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
    pub fn is_decided_anew(&self, record: &PodRecord) -> bool {
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

    /// A namespace, and whether it is opted in: only its pods stand in our queues.
    pub fn apply_namespace(&mut self, name: &str, is_managed: bool) {
        let name = self.shared(name);
        let changed = if is_managed {
            self.managed.insert(name)
        } else {
            self.managed.remove(&name)
        };
        self.queues.outdated |= changed;
        self.news.other |= changed;
    }

    fn site_of_placement(&self, placement: &Placement) -> Option<usize> {
        let selector = &placement.constraints.selector;
        let carries = |(key, value): (&str, &str)| selector.iter().any(|(k, v)| k == key && v == value);
        self.sites
            .iter()
            .position(|entry| entry.site.definition.selector().all(carries))
    }

    /// Takes back everything that this pod adds.
    fn withdraw(&mut self, uid: &Arc<str>, entry: &PodEntry) {
        self.uncount(entry);
        if let Some(unbound) = &entry.unbound {
            self.unsettled.forget(&entry.rank(uid), unbound);
        }
        self.release(uid, entry);
    }

    /// Adds everything that this pod adds.
    fn enter(&mut self, uid: Arc<str>, mut entry: PodEntry) {
        self.take(&uid, &entry);
        self.count(&mut entry);
        self.pods.insert(uid, entry);
    }

    /// Charges the node that the pod says it charges.
    pub(super) fn take(&mut self, uid: &Arc<str>, entry: &PodEntry) {
        let Some(id) = entry.charged else { return };
        if entry.is_on_its_way()
            && let Some(node) = self.nodes.get_mut(&id)
        {
            node.expect(entry.rank(uid), &entry.request);
            self.guessed.insert(id);
        }
        self.charge(id, entry);
    }

    /// The reverse of [`Self::take`].
    pub(super) fn release(&mut self, uid: &Arc<str>, entry: &PodEntry) {
        let Some(id) = entry.charged else { return };
        if entry.is_on_its_way()
            && let Some(node) = self.nodes.get_mut(&id)
        {
            node.no_longer_expect(&entry.rank(uid), &entry.request);
            if node.on_their_way.is_empty() {
                self.guessed.remove(&id);
            }
        }
        self.discharge(id, entry);
    }
}
