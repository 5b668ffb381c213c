//! The record of a pod in the cache.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::pod_record::{Member, Phase, Placement, StuckPod};
use edgeward_decision::model::group::Membership;
use edgeward_decision::model::remote_room::Start;
use edgeward_decision::model::slo::Class;
use edgeward_kube::node::{NodeId, Placeholder, Termination};
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Micros, Moment};

/// The order in which kube-scheduler takes pending pods.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SchedulerKey {
    pub(super) priority: Reverse<i32>,
    /// Seconds since the epoch.
    pub(super) created: i64,
    pub(super) uid: Arc<str>,
}

#[derive(Debug)]
pub(super) struct PodEntry {
    pub(super) namespace: Arc<str>,
    pub(super) controller: Option<Arc<str>>,
    /// `None` if the labels are not kept.
    pub(super) labels: Option<Arc<str>>,
    pub(super) created: i64,
    pub(super) request: Amounts,
    pub(super) priority: i32,
    pub(super) may_preempt: bool,
    pub(super) placeholder_grace: Option<Micros>,
    pub(super) slo: Option<(Class, u8)>,
    pub(super) membership: Option<Arc<Membership>>,
    /// Whether the pod's controller spreads its pods over sites.
    pub(super) spreads: bool,
    pub(super) phase: Phase,
    pub(super) failed: bool,
    pub(super) gated: bool,
    pub(super) terminating: Option<Termination>,
    /// Whether the pod was seen before its termination began. Otherwise, the duration is unknown.
    pub(super) was_seen_before_it_terminated: bool,
    /// A fingerprint of the decision that was last seen on the pod; 0 without one.
    pub(super) decision: u64,
    pub(super) listed: u32,
    /// The node to which the pod is bound.
    pub(super) node: Option<NodeId>,
    /// Whether the pod has begun on its node. [`Start::Silent`] for too long becomes `Refused(None)`.
    pub(super) start: Start,
    /// When the pod is looked at again: until then, a bound pod may be [`Start::Silent`], and another charges a guess.
    pub(super) until: Moment,
    /// The node that the pod charges, bound to it or not.
    pub(super) charged: Option<NodeId>,
    /// The pod as the backstop keeps it, and since when kube-scheduler finds no node for it.
    pub(super) stuck: Option<(Arc<StuckPod>, Moment)>,
    /// Whether the pod runs without a decision, although it states an SLO.
    pub(super) is_undecided: bool,
    /// The pod as moves see it, while they are enabled.
    pub(super) member: Option<Arc<Member>>,
    /// State until the pod is bound; `None` for a pod that is bound, gated or finished, or that terminates without a node.
    pub(super) unbound: Option<Box<Unbound>>,
    pub(super) counted: Option<Counted>,
    /// When the pod first charged a node. The earliest moment if the first list showed it.
    pub(super) first_charged: Option<Moment>,
}

/// The namespace and uid of a controller.
pub(super) type Controller = [Arc<str>; 2];

impl PodEntry {
    /// The pod's controller, if it has one.
    pub(super) fn controller_key(&self) -> Option<Controller> {
        Some([Arc::clone(&self.namespace), Arc::clone(self.controller.as_ref()?)])
    }

    pub(super) fn key(&self, uid: &Arc<str>) -> SchedulerKey {
        SchedulerKey {
            priority: Reverse(self.priority),
            created: self.created,
            uid: Arc::clone(uid),
        }
    }

    /// The pod as a placeholder, if it is one at this threshold.
    pub(super) fn placeholder(&self, headroom_below: i32) -> Option<Placeholder> {
        let priority = self.priority;
        let grace = self.placeholder_grace.filter(|_| priority < headroom_below)?;
        Some(Placeholder { priority, grace })
    }

    /// Whether kube-scheduler evicts such placeholders for the pod.
    pub(super) fn evicts_placeholders(&self, headroom_below: i32) -> bool {
        self.may_preempt && self.priority >= headroom_below
    }

    /// Whether the pod is pending and not gated.
    pub(super) fn is_pending(&self) -> bool {
        self.phase == Phase::Pending && !self.gated
    }
}

/// The state of a pod until it has a node.
#[derive(Debug)]
pub(super) struct Unbound {
    pub(super) placement: Arc<Placement>,
    /// The site whose selector the pod carries.
    pub(super) site: Option<usize>,
    /// The scheduler that the pod names.
    pub(super) scheduler: Option<Arc<str>>,
    /// The node that kube-scheduler is making free for the pod.
    pub(super) nominated: Option<NodeId>,
    /// A fingerprint of the last message with which kube-scheduler refused the pod.
    pub(super) refusal: Option<u64>,
    /// A node that the pod fits. If the pod charges a guess, the charged node.
    pub(super) node: Option<NodeId>,
    /// A node that could hold the pod if it were empty. Searched for when the pod is refused and fits no node.
    pub(super) possible_node: Option<NodeId>,
    /// Whether the pod's time to charge a guess is over.
    pub(super) is_expired: bool,
    /// Whether the pod is of a gang, which is refused while members are missing.
    pub(super) is_gang: bool,
}

impl Unbound {
    /// Whether the pod was refused and its scheduler makes no room for it.
    pub(super) fn is_refused(&self) -> bool {
        self.refusal.is_some() && self.nominated.is_none()
    }

    /// Whether the pod may charge a guess: it was not refused, and its time is not over.
    pub(super) fn may_charge(&self) -> bool {
        (self.refusal.is_none() || self.is_gang) && !self.is_expired
    }

    /// Whether the pod waits for room that its site could have.
    pub(super) fn is_in_queue(&self) -> bool {
        self.is_refused() && self.possible_node.is_some()
    }

    /// Whether the pod was refused although it fits a node. It then waits for something that edgeward does not evaluate.
    pub(super) fn closes_site(&self) -> bool {
        self.is_refused() && self.node.is_some()
    }
}

/// How a pod was counted at its site, so that the same can be taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) site: usize,
    /// The queue group in which the pod waits for room: class, pod priority and SLO priority.
    pub(super) group: Option<(Class, i32, u8)>,
    /// Whether the pod closes the site to its controller.
    pub(super) closes: bool,
    /// Whether the pod is bound to the site, a cloud, although it has no room there.
    pub(super) is_witness: bool,
    /// Whether the pod counts for its controller.
    pub(super) stays: bool,
    /// Whether the pod counts for its controller in the features of the learned scorer.
    pub(super) is_owned: bool,
    /// Whether the pod counts by its labels.
    pub(super) lives: bool,
    /// Whether the pod counts for its group, as a live pod or as one that has succeeded.
    pub(super) member: Option<Membered>,
}

/// How a pod counts for its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membered {
    Live,
    Succeeded,
}
