//! The pod's limit on the RTT of its site. A cloud with an unknown RTT is too far. The edge never is.

use crate::model::site::SiteKind;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

pub(super) fn too_far(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let bound = case.workload.traits()?.distance()?;
    if found.site.kind() == SiteKind::Edge {
        return None;
    }
    let rtt = found.site.link.and_then(|link| link.rtt);
    if rtt.is_some_and(|rtt| rtt < bound) {
        return None;
    }
    let refusal = Refusal::new(RefusalCode::DistanceLimit).with("rttMs", rtt);
    Some(refusal.with("boundMs", bound))
}
