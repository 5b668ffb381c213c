//! What is kept of a pod.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::model::node::{NodeId, Placeholder, Termination};
use crate::model::pod_record::{Phase, Placement};
use crate::model::remote_room::Start;
use crate::model::slo::Class;
use crate::resources::Amounts;
use crate::units::{Micros, Moment};

/// The order in which kube-scheduler takes waiting pods.
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
    /// `None` where they are not kept.
    pub(super) labels: Option<Arc<str>>,
    pub(super) created: i64,
    pub(super) request: Amounts,
    pub(super) priority: i32,
    pub(super) may_preempt: bool,
    pub(super) placeholder_grace: Option<Micros>,
    pub(super) slo: Option<(Class, u8)>,
    pub(super) phase: Phase,
    pub(super) gated: bool,
    pub(super) terminating: Option<Termination>,
    /// Else nobody knows how long it takes.
    pub(super) was_seen_before_it_terminated: bool,
    /// The decision that it was last seen with; 0 without one.
    pub(super) decision: u64,
    pub(super) listed: u32,
    /// The node it is bound to.
    pub(super) node: Option<NodeId>,
    /// Whether it has begun there. [`Start::Silent`] for too long becomes `Refused(None)`.
    pub(super) start: Start,
    /// How long it may be [`Start::Silent`].
    pub(super) silent_until: Moment,
    /// The node it charges, bound to it or not.
    pub(super) charged: Option<NodeId>,
    /// What becomes of it until it is bound; `None` for a pod with a node, a gate, or an end.
    pub(super) unbound: Option<Box<Unbound>>,
    pub(super) counted: Counted,
    /// When it first charged a node.
    pub(super) first_charged: Option<Moment>,
}

impl PodEntry {
    pub(super) fn key(&self, uid: &Arc<str>) -> SchedulerKey {
        SchedulerKey {
            priority: Reverse(self.priority),
            created: self.created,
            uid: Arc::clone(uid),
        }
    }

    /// What it is as a placeholder, if it is one where these are below this priority.
    pub(super) fn placeholder(&self, headroom_below: i32) -> Option<Placeholder> {
        let priority = self.priority;
        let grace = self.placeholder_grace.filter(|_| priority < headroom_below)?;
        Some(Placeholder { priority, grace })
    }

    /// Whether kube-scheduler evicts such placeholders for it.
    pub(super) fn evicts_placeholders(&self, headroom_below: i32) -> bool {
        self.may_preempt && self.priority >= headroom_below
    }

    /// Whether it is assumed on a node, which kube-scheduler has not nominated for it.
    pub(super) fn is_assumed(&self) -> bool {
        let free_to_move = |unbound: &Unbound| unbound.nominated.is_none();
        self.unbound.as_deref().is_some_and(free_to_move)
    }

    /// Whether it waits for a site: pending, and without a gate.
    pub(super) fn is_pending(&self) -> bool {
        self.phase == Phase::Pending && !self.gated
    }
}

/// What is known of a pod until it has a node.
#[derive(Debug)]
pub(super) struct Unbound {
    pub(super) placement: Arc<Placement>,
    /// The site whose selector it carries.
    pub(super) site: Option<usize>,
    /// The scheduler that is to take it.
    pub(super) scheduler: Option<Arc<str>>,
    /// The node that kube-scheduler is making free for it.
    pub(super) nominated: Option<NodeId>,
    /// A number for the last message with which kube-scheduler refused it.
    pub(super) refusal: Option<u64>,
    /// A node it fits; the one it charges, if it charges one.
    pub(super) node: Option<NodeId>,
    /// A node that could hold it if it were empty, looked for when it was refused and fits none.
    pub(super) holder: Option<NodeId>,
    /// When its time to charge is over, or looked at again.
    pub(super) until: Moment,
    /// Whether its time to charge a guess is over.
    pub(super) is_expired: bool,
}

impl Unbound {
    /// Whether it was refused, and its scheduler does not make room for it.
    pub(super) fn is_refused(&self) -> bool {
        self.refusal.is_some() && self.nominated.is_none()
    }

    /// Whether it may charge a guess: it was not refused, and its time is not over.
    pub(super) fn may_charge(&self) -> bool {
        self.refusal.is_none() && !self.is_expired
    }

    /// Whether it waits for room that its site could have.
    pub(super) fn is_in_queue(&self) -> bool {
        self.is_refused() && self.holder.is_some()
    }

    /// Whether it was refused although it fits a node, so that it waits for something that we do not evaluate.
    pub(super) fn closes_site(&self) -> bool {
        self.is_refused() && self.node.is_some()
    }
}

/// Site, class, pod priority and SLO priority.
pub(super) type Group = (usize, Class, i32, u8);

/// What a pod was counted as, to be taken back as the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Where it waits for room.
    pub(super) group: Option<Group>,
    /// The site that it closes to its controller.
    pub(super) closes: Option<usize>,
    /// The cloud that has no room for it although it is bound there.
    pub(super) witness_at: Option<usize>,
    /// Until when nothing needs to be said of it by the cloud that it is bound to.
    pub(super) silent_until: Option<Moment>,
    /// The site at which it is one of its controller's.
    pub(super) stays: Option<usize>,
    /// The site at which it counts by its labels.
    pub(super) lives: Option<usize>,
}
