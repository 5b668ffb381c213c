//! The deadline and the latency target, and inputs whose transfer takes an unknown time. Any other unknown time misses neither bound: the
//! WAN filter has refused that site already.

use crate::model::slo::Class;
use crate::model::snapshot::Site;
use crate::placement::estimate::transfer;
use crate::placement::filters::Case;
use crate::placement::reason::is_urgent;
use crate::placement::verdict::{Assessment, Estimate, Refusal, RefusalCode};
use edgeward_kube::units::Micros;

pub(super) fn deadline_missed(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    if found.is_trial || !misses_deadline(case, &found.estimate) {
        return None;
    }
    let (deadline, eta) = (case.slo().deadline?, found.estimate.eta_at(case.config.confidence)?);
    let gated_for = case.gated_for();
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
    if found.is_trial || !misses_target(case, &found.estimate) {
        return None;
    }
    let (target, latency) = (case.slo().latency_target?, found.estimate.latency()?);
    let refusal = Refusal::new(RefusalCode::LatencyTarget).with("latencyMs", latency);
    Some(refusal.with("boundMs", target))
}

/// Whether the pod only meets its time if the site has become faster since its time was observed, and may find out: a pod that is
/// being created, has a deadline and no group, is no urgent pod of class `latency`, and is the only one of its kind for a while.
pub(super) fn is_trial(case: &Case<'_, '_>, site: &Site, estimate: &Estimate) -> bool {
    let misses = |estimate: &Estimate| misses_deadline(case, estimate) || misses_target(case, estimate);
    let (room, workload) = (case.room, case.workload);
    let is_spared = case.slo().class == Class::Latency && is_urgent(case);
    // A service has no deadline. It would stay, and no time of it be observed.
    let may_try = room.is_of_arrival && case.slo().deadline.is_some() && workload.membership().is_none() && !is_spared;
    may_try
        && estimate.aged > Micros(0)
        && misses(estimate)
        && !misses(&estimate.at_best())
        && !room.ledger.has_tried(site.name(), workload, case.now.moment)
}

fn misses_deadline(case: &Case<'_, '_>, estimate: &Estimate) -> bool {
    let eta = estimate.eta_at(case.config.confidence);
    let bound = case.slo().deadline.zip(eta);
    bound.is_some_and(|(deadline, eta)| case.gated_for() + eta > deadline)
}

fn misses_target(case: &Case<'_, '_>, estimate: &Estimate) -> bool {
    let bound = case.slo().latency_target.zip(estimate.latency());
    bound.is_some_and(|(target, latency)| latency > target)
}
