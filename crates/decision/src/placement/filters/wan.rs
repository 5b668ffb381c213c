//! The WAN to a cloud, and the API server behind it as Liqo's ForeignCluster reports it. A cloud without a measurement
//! counts as unreachable. The edge has no WAN.

use crate::model::link::{LinkState, Thresholds};
use crate::model::liqo::ApiServerStatus;
use crate::model::site::SiteKind;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

pub(super) fn bad_link(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let (site, config) = (found.site, case.config);
    if site.kind() == SiteKind::Edge {
        return None;
    }
    let unreachable = Refusal::new(RefusalCode::Unreachable);
    if let Some(status) = site.api_server.filter(|status| *status != ApiServerStatus::Established) {
        return Some(unreachable.with("apiServerStatus", status.as_str()));
    }
    let Some(link) = site.link.filter(|link| link.state != LinkState::Unreachable) else {
        return Some(unreachable);
    };
    let age = case.now.moment.since(link.as_of);
    if age > config.telemetry_ttl {
        let refusal = Refusal::new(RefusalCode::Stale).with("ageMs", age);
        return Some(refusal.with("telemetryCacheTTLMs", config.telemetry_ttl));
    }
    let is_usable = config.can_use(&link) && (link.state == LinkState::Healthy || case.slo().has_time_bound());
    if is_usable {
        return None;
    }
    let thresholds = Thresholds::from(config).with(site.definition.thresholds);
    let refusal = Refusal::new(RefusalCode::Degraded)
        .with("rttMs", link.rtt)
        .with("rttThresholdMs", thresholds.rtt)
        .with("lossPct", link.loss)
        .with("lossThresholdPct", thresholds.loss);
    Some(refusal)
}

/// The pod's limit on the RTT of its site. A cloud with an unknown RTT is too far.
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
