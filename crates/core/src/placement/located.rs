//! A pod with what is known of its claims ("Where its data is" in docs/decision.md).

use std::borrow::Cow;
use std::sync::Arc;

use crate::model::snapshot::Snapshot;
use crate::model::workload::Workload;

/// The workload with where each of its claims lets it run, and the nodes on which its volumes can be used. Unchanged where it has none,
/// or nothing is known; watches that are behind decide about held pods alone. Cost: a few searches for each claim, and a copy.
pub(crate) fn located<'w, 'a>(workload: &'w Workload<'a>, snapshot: &Snapshot) -> Cow<'w, Workload<'a>> {
    let known = snapshot.volumes.as_deref();
    let known = known.filter(|volumes| !volumes.is_stale || workload.held.is_some());
    let Some(volumes) = known.filter(|_| !workload.claims.is_empty()) else {
        return Cow::Borrowed(workload);
    };
    let mut located = workload.clone();
    located.constraints.volumes.clear();
    for claim in &mut located.claims {
        let (data, affinity) = volumes.locate(&workload.namespace, claim);
        claim.data = data;
        located.constraints.volumes.extend(affinity.map(Arc::clone));
    }
    Cow::Owned(located)
}
