//! What a pod without room may wait for: terminating pods, pods that kube-scheduler could evict, and the node that comes
//! closest to having room.

use crate::model::workload::Workload;
use crate::placement::room::{Room, all_of, fits_beside};
use crate::placement::verdict::Assessment;
use edgeward_kube::node::{Node, Share, Termination};
use edgeward_kube::units::{Micros, Now};

/// Whether kube-scheduler could make room for the pod on a usable node by evicting pods of lower priority. A reservation of
/// lower priority counts as evictable. Cost: a pass over the usable nodes, with copies.
pub(super) fn could_preempt(workload: &Workload<'_>, found: &Assessment<'_>, room: &Room<'_, '_>) -> bool {
    workload.may_preempt && !found.fits() && found.usable.iter().any(|node| could_preempt_on(workload, node, room))
}

fn could_preempt_on(workload: &Workload<'_>, node: &Node, room: &Room<'_, '_>) -> bool {
    let is_lower = |priority: i32| priority < workload.priority;
    let mut kept = all_of(node);
    let by_priority = node.charges.by_priority.iter();
    for (_, lower) in by_priority.filter(|(priority, _)| is_lower(*priority)) {
        kept.remove(&lower.amounts, lower.pods);
    }
    let mut evicts = kept.pods < node.charges.pods;
    for (reservation, times) in room.charges(node) {
        if is_lower(reservation.priority) {
            evicts = true;
        } else {
            kept.add(&reservation.amount, times);
        }
    }
    // Pods ahead in the queue have at least this pod's priority, so they stay.
    for claim in room.claimed_ahead(node) {
        kept.add(&claim.amount, 1);
    }
    evicts && fits_beside(&workload.request, node, &kept)
}

/// The first usable node by name on which the pod fits once pods terminating there are gone. Only pods that may be gone
/// within `wait` count. Placeholders that make room for the pod are not charged, so their termination does not count again.
/// Cost: a pass over the usable nodes.
pub(super) fn node_after_terminating<'s>(
    workload: &Workload<'_>,
    found: &Assessment<'s>,
    room: &Room<'s, '_>,
    wait: Micros,
    now: Now,
) -> Option<&'s Node> {
    let is_headroom = |placeholder| room.headroom.is_some_and(|headroom| headroom.covers(placeholder));
    let is_counted = |(termination, _): &&(Termination, Share)| {
        termination.is_soon(wait, now) && !termination.placeholder.is_some_and(is_headroom)
    };
    let fits_after = |node: &&Node| {
        let mut terminating = node.charges.terminating.iter().filter(is_counted).peekable();
        if terminating.peek().is_none() {
            return false;
        }
        let mut taken = room.taken(node);
        for (_, leaving) in terminating {
            taken.remove(&leaving.amounts, leaving.pods);
        }
        fits_beside(&workload.request, node, &taken)
    };
    found.usable.iter().copied().find(fits_after)
}

/// The largest share of any resource that the node lacks for the pod, in millionths.
pub(super) fn missing_fraction(workload: &Workload<'_>, node: &Node, room: &Room<'_, '_>) -> i64 {
    let taken = room.taken(node);
    let share = |request: i64, total: i64, used: i64| {
        let missing = i128::from(request) + i128::from(used) - i128::from(total);
        let millionths = missing.max(0) * 1_000_000 / i128::from(total.max(1));
        i64::try_from(millionths).unwrap_or(i64::MAX)
    };
    let resources = workload.request.named();
    let shares =
        resources.map(|(name, request)| share(request, node.allocatable.capacity(name), taken.amounts.get(name)));
    shares.chain([share(1, node.slots, taken.pods)]).max().unwrap_or(0)
}
