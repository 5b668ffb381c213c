//! Whether the pod may leave the edge: its SLO, the configuration, and what ties it to the cluster it is created in.

use crate::model::site::SiteKind;
use crate::model::ties::{Tie, Ties};
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

pub(super) fn not_offloadable(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let (workload, definition) = (case.workload, &found.site.definition);
    if found.site.kind() == SiteKind::Edge {
        return None;
    }
    let mut ties = workload.ties.beyond(definition.supports);
    if !workload.claims.is_empty() && workload.claims.iter().all(|claim| claim.is_served_by(definition)) {
        ties = ties.beyond(Ties::from_iter([Tie::PersistentVolumeClaim]));
    }
    if case.config.may_offload(case.slo()) && ties.is_empty() {
        return None;
    }
    let refusal = Refusal::new(RefusalCode::NotOffloadable);
    Some(ties.iter().fold(refusal, |refusal, tie| refusal.with(tie.as_str(), 1)))
}
