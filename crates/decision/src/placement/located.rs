//! Adds to a pod what is known about its volume claims ("Data" in docs/guide/decide.md).

use std::borrow::Cow;

use crate::model::snapshot::Snapshot;
use crate::model::volumes::Whereabouts;
use crate::model::workload::Workload;
use crate::placement::ledger::Ledger;
use edgeward_kube::units::Moment;

/// The workload with the location of each volume claim, and the nodes that can use its volumes. Unchanged if the pod has no
/// claims or nothing is known about volumes. While the watches are behind, existing volumes still count. Where a new volume
/// can be made then counts only for a gated pod. Cost: a few searches for each claim, and a copy.
pub fn located<'w, 'a>(workload: &'w Workload<'a>, snapshot: &Snapshot) -> Cow<'w, Workload<'a>> {
    let known = snapshot.volumes.as_deref();
    let Some(volumes) = known.filter(|_| !workload.volume_claims.is_empty()) else {
        return Cow::Borrowed(workload);
    };
    let is_behind = volumes.is_stale && workload.gated_for.is_none();
    let mut located = workload.clone();
    located.constraints.volumes.clear();
    for claim in &mut located.volume_claims {
        let (data, affinity) = volumes.locate(&workload.namespace, claim);
        claim.data = match data {
            Whereabouts::OfClass(_) if is_behind => Whereabouts::Here,
            data => data,
        };
        located.constraints.volumes.extend(affinity);
    }
    Cow::Owned(located)
}

/// The workload as [`located()`] returns it, with the nodes where volumes of its claims are assumed to be made.
pub fn located_beside<'w, 'a>(
    workload: &'w Workload<'a>,
    snapshot: &Snapshot,
    ledger: &Ledger,
    now: Moment,
) -> Cow<'w, Workload<'a>> {
    let located = located(workload, snapshot);
    match ledger.assumed_volumes.locate(&located, now) {
        Some(assumed) => Cow::Owned(assumed),
        None => located,
    }
}
