//! A node, as far as fitting a pod on it goes.

use std::sync::{Arc, LazyLock};

use super::constraints::{Labels, NodeConstraints, Taint, Toleration};
use crate::resources::Amounts;
use crate::units::{Micros, Moment, Now};

/// Names a node in this process, also beyond the life of the snapshot it was read in. Never used again for another node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A node, as far as fitting a pod on it goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// What reservations name it by.
    pub id: NodeId,
    /// Name.
    pub name: Arc<str>,
    /// Labels.
    pub labels: Labels,
    /// Annotations that are numbers, for performance profiles.
    pub annotations: Labels,
    /// Its addresses of the types InternalIP and Hostname.
    pub addresses: Vec<Box<str>>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// `status.allocatable` without pods.
    pub allocatable: Amounts,
    /// Pod slots: `status.allocatable.pods`.
    pub slots: i64,
    /// What charges have taken.
    pub used: Amounts,
    /// Pods charged to it.
    pub pods: i64,
    /// The part of `used` and `pods` that goes when the pods that are terminating are gone.
    pub terminating: Vec<Terminating>,
    /// The part of `used` and `pods` that placeholders take, those that are terminating included.
    pub placeholders: Vec<(Placeholder, Share)>,
    /// The part of `used` and `pods` held by pods of a known priority, which preemption could free.
    pub by_priority: Vec<PriorityUse>,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// Condition Ready.
    pub ready: bool,
    /// Until when it is [young](YOUNG); `None` if it is older.
    pub young_until: Option<Moment>,
}

/// A node younger than this may still get its labels and resources, and lose taints that it starts with.
pub const YOUNG: Micros = Micros::from_secs(60);

static UNSCHEDULABLE: LazyLock<Taint> = LazyLock::new(Taint::unschedulable);

impl Node {
    /// Whether less of any resource is free than on `other`, the same node at another time, or it has more pods that others keep apart
    /// from.
    pub fn has_less_than(&self, other: &Node) -> bool {
        let (mut used, mut apart) = (self.used.named(), self.used.apart.iter());
        self.pods > other.pods
            || used.any(|(name, amount)| amount > other.used.get(name))
            || apart.any(|(apart, pods)| *pods > other.used.pods_apart(apart))
    }

    /// Whether kube-scheduler's filters on readiness, cordon, taints, labels and name let a pod with these constraints
    /// and tolerations onto the node, if it has room.
    pub fn admits<'t>(
        &self,
        constraints: &NodeConstraints<'_>,
        tolerations: impl Iterator<Item = &'t Toleration<'t>> + Clone,
    ) -> bool {
        self.ready
            && self.is_tolerated(tolerations.clone())
            && (!self.cordoned || is_tolerated(&UNSCHEDULABLE, tolerations))
            && constraints.allow(&self.name, &self.labels)
    }

    /// Whether these tolerations cover every taint that keeps pods away.
    pub fn is_tolerated<'t>(&self, tolerations: impl Iterator<Item = &'t Toleration<'t>> + Clone) -> bool {
        let mut hard = self.taints.iter().filter(|taint| taint.is_hard());
        hard.all(|taint| is_tolerated(taint, tolerations.clone()))
    }

    /// The taints that keep pods with these tolerations away, but those that pass with a condition of the node.
    pub fn lasting_taints<'t>(
        &self,
        tolerations: impl Iterator<Item = &'t Toleration<'t>> + Clone,
    ) -> impl Iterator<Item = &Taint> {
        let lasting = self
            .taints
            .iter()
            .filter(|taint| taint.is_hard() && !taint.is_condition());
        lasting.filter(move |taint| !is_tolerated(taint, tolerations.clone()))
    }

    /// Until when a node is [young](YOUNG) that was created at this time; `None` if it is not.
    pub fn young_until(created: jiff::Timestamp, now: Now) -> Option<Moment> {
        let age = u64::try_from(now.wall.duration_since(created).as_micros()).unwrap_or(0);
        (age < YOUNG.0).then(|| now.moment.after(Micros(YOUNG.0 - age)))
    }
}

fn is_tolerated<'t>(taint: &Taint, mut tolerations: impl Iterator<Item = &'t Toleration<'t>>) -> bool {
    tolerations.any(|toleration| toleration.tolerates(taint))
}

/// What some pods take from a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// Sum of their requests.
    pub amounts: Amounts,
    /// Their number.
    pub pods: i64,
}

impl Share {
    /// And these.
    pub fn add(&mut self, other: &Share) {
        self.amounts.add(&other.amounts, 1);
        self.pods = self.pods.saturating_add(other.pods);
    }
}

/// A pod that keeps a node warm for others: it states no SLO, and its `spec.priority` is below `headroomBelow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placeholder {
    /// Its `spec.priority`.
    pub priority: i32,
    /// Its `spec.terminationGracePeriodSeconds`.
    pub grace: Micros,
}

/// What is known of pods that are terminating on a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Termination {
    /// When this was seen first. `None`: just now.
    pub since: Option<Moment>,
    /// When they are to be gone: `metadata.deletionTimestamp`, which is when the grace ends. `None`: in time.
    pub by: Option<jiff::Timestamp>,
    /// How long pods of their controller took lately, at least; `None` where too few were seen.
    pub takes: Option<Micros>,
    /// What they are, if they are placeholders.
    pub placeholder: Option<Placeholder>,
}

/// What goes with pods that are terminating on a node, and of which the same is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terminating {
    /// What is known of them.
    pub termination: Termination,
    /// What they take.
    pub share: Share,
}

/// For how long after its grace a pod may still be terminating: it is killed then, and its volumes are taken away.
const AFTER_GRACE: jiff::SignedDuration = jiff::SignedDuration::from_secs(10);

impl Termination {
    /// Whether these pods may be gone within `wait`. They may as soon as they terminate: their time is only the most that they can
    /// take. Not if pods of their controller take longer, nor in the middle of a grace that they seem to use, nor once they are
    /// stuck.
    pub fn is_soon(&self, wait: Micros, now: Now) -> bool {
        let limit = jiff::SignedDuration::from_micros(i64::try_from(wait.0).unwrap_or(i64::MAX));
        let left = self.by.map(|by| by.duration_since(now.wall));
        let has_begun_lately = self.since.is_none_or(|since| now.moment.since(since) <= wait);
        let is_nearly_over = left.is_some_and(|left| left <= limit);
        self.takes.is_none_or(|takes| takes <= wait)
            && left.is_none_or(|left| -AFTER_GRACE <= left)
            && (has_begun_lately || is_nearly_over)
    }
}

/// What pods of one priority take from a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriorityUse {
    /// `spec.priority`.
    pub priority: i32,
    /// Sum of their requests.
    pub used: Amounts,
    /// Their number.
    pub pods: i64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::NOW;

    #[test]
    fn node_is_young_for_a_minute_from_its_creation() {
        let until = |seconds_ago: i64| {
            let created = NOW.wall - jiff::SignedDuration::from_secs(seconds_ago);
            let until = Node::young_until(created, NOW);
            until.map(|until| until.since(NOW.moment))
        };
        assert_eq!(until(0), Some(YOUNG));
        assert_eq!(until(59), Some(Micros::from_secs(1)));
        assert_eq!(until(60), None);
        // By a clock that is ahead of ours.
        assert_eq!(until(-3_600), Some(YOUNG));
    }
}
