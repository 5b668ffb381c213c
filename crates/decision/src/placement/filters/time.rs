//! The deadline and the latency target, and inputs whose transfer takes an unknown time. Any other unknown time misses neither bound: the
//! WAN filter has refused that site already.

use crate::placement::estimate::transfer;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};
use edgeward_kube::units::Micros;

pub(super) fn deadline_missed(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let (deadline, eta) = (case.slo().deadline?, found.estimate.eta()?);
    let gated_for = case.gated_for();
    if gated_for + eta <= deadline {
        return None;
    }
    let refusal = Refusal::new(RefusalCode::Deadline)
        .with("etaMs", eta)
        .with("boundMs", deadline);
    match gated_for {
        Micros(0) => Some(refusal),
        gated_for => Some(refusal.with("gatedMs", gated_for)),
    }
}

/// Refuses a site to which the transfer of the pod's input takes an unknown time, if the pod has a time bound.
pub(super) fn bandwidth_unknown(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let is_unknown = case.slo().has_time_bound()
        && transfer(case.workload, found.site, case.room.snapshot.edge(), case.config).is_none();
    let input = case.intent.input.as_ref().filter(|_| is_unknown)?;
    Some(Refusal::new(RefusalCode::UnknownBandwidth).with("inputBytes", input.bytes))
}

pub(super) fn latency_target_missed(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let (target, latency) = (case.slo().latency_target?, found.estimate.latency()?);
    if latency <= target {
        return None;
    }
    let refusal = Refusal::new(RefusalCode::LatencyTarget).with("latencyMs", latency);
    Some(refusal.with("boundMs", target))
}
