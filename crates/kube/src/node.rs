//! A node, reduced to the fields that decide whether a pod fits on it.

mod read;

use std::sync::{Arc, LazyLock};

use crate::constraints::{Labels, NodeConstraints, Taint, Toleration};
use crate::resources::Amounts;
use crate::units::{Micros, Moment, Now};

pub use read::from_json;

/// Identifies a node in this process, even beyond the snapshot it was read in. An id is never reused for another node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A node, reduced to the fields that decide whether a pod fits on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Id that reservations use.
    pub id: NodeId,
    /// Name.
    pub name: Arc<str>,
    /// Labels.
    pub labels: Labels,
    /// What performance profiles read of it.
    pub profiled: Profiled,
    /// What keeps pods off the node.
    pub state: NodeState,
    /// `status.allocatable`, without pod slots.
    pub allocatable: Amounts,
    /// Pod slots: `status.allocatable.pods`.
    pub slots: i64,
    /// What pods take from it.
    pub charges: Charges,
}

/// The fields of a node for performance profiles. Placement does not depend on them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profiled {
    /// Annotations with numeric values.
    pub annotations: Labels,
    /// Addresses of type InternalIP or Hostname.
    pub addresses: Vec<Box<str>>,
}

/// The fields of a node that keep pods off it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeState {
    /// Taints.
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// Whether condition Ready is True.
    pub ready: bool,
    /// When the node stops being [young](YOUNG). `None` if it already has.
    pub young_until: Option<Moment>,
}

/// What pods take from a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Charges {
    /// Sum of all charges.
    pub used: Amounts,
    /// Number of pods charged to the node.
    pub pods: i64,
    /// The part of `used` and `pods` that becomes free when terminating pods are gone, sorted.
    pub terminating: Vec<(Termination, Share)>,
    /// The part of `used` and `pods` that placeholders take, including terminating ones. Sorted.
    pub placeholders: Vec<(Placeholder, Share)>,
    /// The part of `used` and `pods` held by pods of each `spec.priority`, sorted. Preemption could free it.
    pub by_priority: Vec<(i32, Share)>,
}

/// Age below which a node is young: it may still get labels and resources, and lose its startup taints.
pub const YOUNG: Micros = Micros::from_secs(60);

static UNSCHEDULABLE: LazyLock<Taint> = LazyLock::new(Taint::unschedulable);

impl Node {
    /// Whether more is used on this node than on `other`, the same node at another time. Compares resources, traffic,
    /// pods, and the pods that other pods keep apart from.
    pub fn has_less_than(&self, other: &Node) -> bool {
        let (charges, other) = (&self.charges, &other.charges);
        let (mut used, mut apart) = (charges.used.named(), charges.used.apart.iter());
        charges.pods > other.pods
            || charges.used.bandwidth.exceeds(other.used.bandwidth)
            || used.any(|(name, amount)| amount > other.used.get(name))
            || apart.any(|(apart, pods)| *pods > other.used.pods_apart(apart))
    }

    /// Whether kube-scheduler's filters on readiness, cordon, taints, labels and name admit a pod with these
    /// constraints and tolerations. Room is not checked.
    pub fn admits<'t>(
        &self,
        constraints: &NodeConstraints,
        tolerations: impl Iterator<Item = &'t Toleration> + Clone,
    ) -> bool {
        let mut hard = self.state.taints.iter().filter(|taint| taint.is_hard());
        self.state.ready
            && hard.all(|taint| is_tolerated(taint, tolerations.clone()))
            && (!self.state.cordoned || is_tolerated(&UNSCHEDULABLE, tolerations))
            && constraints.allow(&self.name, &self.labels)
    }

    /// The taints that keep pods with these tolerations off the node, without the taints for a condition of the node.
    pub fn lasting_taints<'t>(
        &self,
        tolerations: impl Iterator<Item = &'t Toleration> + Clone,
    ) -> impl Iterator<Item = &Taint> {
        let taints = self.state.taints.iter();
        let lasting = taints.filter(|taint| taint.is_hard() && !taint.is_condition());
        lasting.filter(move |taint| !is_tolerated(taint, tolerations.clone()))
    }

    /// When a node created at this time stops being [young](YOUNG). `None` if it is not young.
    pub fn young_until(created: jiff::Timestamp, now: Now) -> Option<Moment> {
        let age = u64::try_from(now.wall.duration_since(created).as_micros()).unwrap_or(0);
        (age < YOUNG.0).then(|| now.moment.after(Micros(YOUNG.0 - age)))
    }
}

fn is_tolerated<'t>(taint: &Taint, mut tolerations: impl Iterator<Item = &'t Toleration>) -> bool {
    tolerations.any(|toleration| toleration.tolerates(taint))
}

/// Resources and pod slots that some pods take from a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// Sum of their requests.
    pub amounts: Amounts,
    /// Number of the pods.
    pub pods: i64,
}

impl Share {
    /// Adds another share to this one.
    pub fn add(&mut self, other: &Share) {
        self.amounts.add(&other.amounts, 1);
        self.pods = self.pods.saturating_add(other.pods);
    }
}

/// A pod that keeps room for others, such as an overprovisioning pod. It states no SLO, and its `spec.priority` is
/// below `headroomBelow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placeholder {
    /// `spec.priority` of the pod.
    pub priority: i32,
    /// `spec.terminationGracePeriodSeconds` of the pod.
    pub grace: Micros,
}

/// Facts about pods that are terminating on a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Termination {
    /// When the termination was first seen. `None` means just now.
    pub since: Option<Moment>,
    /// `metadata.deletionTimestamp`: the end of the grace period. `None` counts as an end in time.
    pub by: Option<jiff::Timestamp>,
    /// The shortest time that recent pods of the same controller took to terminate. `None` if too few were seen.
    pub takes: Option<Micros>,
    /// Priority and grace period, if the pods are placeholders.
    pub placeholder: Option<Placeholder>,
}

/// How long after its grace period a pod may still be terminating. It is killed then, and its volumes are removed.
const AFTER_GRACE: jiff::SignedDuration = jiff::SignedDuration::from_secs(10);

impl Termination {
    /// Whether these pods may be gone within `wait`. The grace period is only an upper limit: pods may be gone as soon
    /// as they start to terminate.
    ///
    /// Returns false in three cases. Recent pods of their controller all took longer than `wait`. Or the pods started
    /// to terminate more than `wait` ago, and their grace period ends later than `wait` from now. Or their grace period
    /// ended more than 10 s ago, so they are stuck.
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now {
        moment: Moment(1_000_000_000),
        wall: jiff::Timestamp::constant(1_767_225_600, 0),
    };

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
        // The node's clock is ahead of ours.
        assert_eq!(until(-3_600), Some(YOUNG));
    }
}
