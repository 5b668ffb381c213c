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
    /// Whether it has begun there.
    pub(super) start: Start,
    /// Until when it may be that nothing is said of its containers, as long as nothing is.
    pub(super) silent_until: Option<Moment>,
    /// Whether nothing was said of them until then.
    pub(super) is_silent_for_long: bool,
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

    /// What it would be to the cluster behind a cloud, if it is one that it is sent to.
    pub(super) fn remote_state(&self) -> Option<RemoteState> {
        let state = self.unbound.as_deref().map(|unbound| unbound.state);
        match (&self.start, self.node, state) {
            _ if !self.is_pending() || self.terminating.is_some() => None,
            (Start::Refused(Some(_)), Some(_), _) => Some(RemoteState::Witness),
            (Start::Silent, Some(_), _) if !self.is_silent_for_long => Some(RemoteState::Trying),
            (_, None, Some(SchedulingState::Assumed | SchedulingState::New)) => Some(RemoteState::Trying),
            _ => None,
        }
    }

    /// Whether a cluster behind its node does not take it for another reason than room, or says nothing of it for too long.
    pub(super) fn is_refused_remotely(&self) -> bool {
        let is_stuck = self.start == Start::Refused(None) || self.is_silent_for_long;
        is_stuck && self.is_pending() && self.terminating.is_none() && self.node.is_some()
    }

    /// Whether it waits for a site: pending, and not held by a gate.
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
    /// That kube-scheduler found no node for it: a number for its message, and when it was reported.
    pub(super) unschedulable: Option<(u64, Moment)>,
    /// When kube-scheduler last had a reason to retry it.
    pub(super) chance: Option<Moment>,
    /// A node it fits; the one it charges, if it charges one.
    pub(super) node: Option<NodeId>,
    /// A node that could hold it if it were empty, looked for when it waits for room.
    pub(super) holder: Option<NodeId>,
    pub(super) timer: Option<Moment>,
    pub(super) state: SchedulingState,
}

impl Unbound {
    /// Whether its scheduler has neither refused it nor nominated a node for it.
    pub(super) fn is_unreported(&self) -> bool {
        self.unschedulable.is_none() && self.nominated.is_none()
    }

    /// Whether its scheduler has refused it, and does not make room for it.
    pub(super) fn is_refused(&self) -> bool {
        self.unschedulable.is_some() && self.nominated.is_none()
    }

    /// Whether it waits for room that its site could have.
    pub(super) fn is_in_queue(&self) -> bool {
        self.state == SchedulingState::WaitsForRoom && self.holder.is_some()
    }
}

/// How a pod without a node is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchedulingState {
    /// It charges the node it will probably be bound to.
    Assumed,
    /// It fits no node, and kube-scheduler has not reported that yet.
    New,
    /// It fits a node, and its scheduler says nothing: it charges nothing.
    WaitsForScheduler,
    /// It fits no node. It charges nothing, and counts in the queue if a node could ever hold it.
    WaitsForRoom,
    /// It fits a node, and kube-scheduler does not take it: it charges nothing, and closes its site.
    ClosesSite,
}

/// What was known of a pod when it changed.
#[derive(Debug)]
pub(super) enum Before {
    /// Nothing: it is seen for the first time, with the node of the reservation it confirms.
    Unseen {
        reserved_node: Option<NodeId>,
        /// Whether a list shows it, so that it may have been there for long.
        is_listed: bool,
    },
    /// It was in the cache, and without a node if this is there; and whether it asked for something else.
    Seen {
        unbound: Option<Box<Unbound>>,
        is_resized: bool,
    },
}

/// Site, class, pod priority and SLO priority.
pub(super) type Group = (usize, Class, i32, u8);

/// What a pod was counted as, to be taken back as the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Where it waits for room.
    pub(super) group: Option<Group>,
    pub(super) closes: Option<usize>,
    /// What it is to the cluster behind a cloud.
    pub(super) remote: Option<(usize, RemoteState)>,
    /// The site at which it is one of its controller's.
    pub(super) stays: Option<u32>,
}

/// What a pod is to the cluster behind the cloud that it is sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemoteState {
    /// It is on its way: it may find room.
    Trying,
    /// There is no room for it.
    Witness,
}

impl Counted {
    /// Class, pod priority and SLO priority, where it was counted at all.
    pub(super) fn group(&self) -> Option<(Class, i32, u8)> {
        self.group
            .map(|(_, class, priority, slo_priority)| (class, priority, slo_priority))
    }
}
