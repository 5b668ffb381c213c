//! Picks the reason code of a verdict.

use crate::model::slo::Slo;
use crate::placement::act::{Act, Facts, Gate, Impossible};
use crate::placement::filters::Case;
use crate::placement::rank;
use crate::placement::verdict::{Assessment, Learned, Reason, RefusalCode, Standing};
use crate::placement::wait;

/// The reason for the action of `row`, and for the chosen site if there is one.
pub(super) fn reason(
    case: &Case<'_, '_>,
    sites: &[Assessment<'_>],
    facts: &Facts,
    (row, act): (u8, Act),
    chosen: Option<&Assessment<'_>>,
    learned: Option<&Learned<'_>>,
) -> Reason {
    let Some(chosen) = chosen else {
        return match act {
            Act::PassThrough => Reason::NoSiteMatches,
            _ if sites.iter().any(|site| site.is_refused(RefusalCode::TooFar)) => Reason::HeldGroup,
            _ if waits_for_site(facts, row) || waits_for_trait(sites) => Reason::HeldSiteAway,
            _ => Reason::HeldNoCapacity,
        };
    };
    let gives_up = match facts.gate {
        Gate::None => false,
        Gate::Within => row >= 9,
        Gate::Over => row == 3 || row != 2 && !chosen.is_good() || chosen.far.is_some(),
    };
    if gives_up {
        return Reason::ReleasedTimeout;
    }
    if rank::is_edge(chosen) {
        edge_reason(case, sites, chosen, row)
    } else {
        cloud_reason(case, sites, chosen, row, learned)
    }
}

/// Whether the pod waits for a site that can run it, as opposed to room.
fn waits_for_site(facts: &Facts, row: u8) -> bool {
    let is_stated = row == 1 && facts.impossible == Impossible::Stated;
    let all_are_away = row == 8 && facts.edge == Standing::Never && facts.cloud == Standing::Away;
    is_stated || all_are_away
}

/// Whether every possible site is `Away`, and one of them for want of a measured trait.
fn waits_for_trait(sites: &[Assessment<'_>]) -> bool {
    let possible = || sites.iter().filter(|site| site.is_possible());
    possible().any(|site| site.is_refused(RefusalCode::LostTrait))
        && possible().all(|site| site.standing() == Standing::Away)
}

fn cloud_reason(
    case: &Case<'_, '_>,
    sites: &[Assessment<'_>],
    chosen: &Assessment<'_>,
    row: u8,
    learned: Option<&Learned<'_>>,
) -> Reason {
    let edge = sites.iter().find(|site| rank::is_edge(site));
    let is_excluded = |edge: &Assessment<'_>| !edge.is_possible() && !edge.is_refused(RefusalCode::TooLarge);
    let is_pinned = edge.is_none_or(|edge| is_excluded(edge) || edge.site.nodes.is_empty());
    if is_pinned {
        return Reason::CloudPinnedByPod;
    }
    if row != 5 && !chosen.is_good() {
        return Reason::CloudBestEffort;
    }
    match edge.map(Assessment::standing) {
        Some(Standing::Good) => Reason::CloudProfile,
        _ if rank::profile_decides(case, sites) => Reason::CloudProfile,
        _ if learned.is_some_and(Learned::decides) => Reason::CloudLearned,
        Some(Standing::Late) => Reason::CloudEdgeDeadlineMissed,
        _ => Reason::CloudEdgeNoCapacity,
    }
}

/// The first reason that holds.
fn edge_reason(case: &Case<'_, '_>, sites: &[Assessment<'_>], edge: &Assessment<'_>, row: u8) -> Reason {
    let clouds = || sites.iter().filter(|site| !rank::is_edge(site));
    if !case.intent.faults.is_empty() {
        return Reason::EdgeInvalidSlo;
    }
    if row == 1 && edge.is_refused(RefusalCode::TooLarge) {
        return Reason::EdgeTooLarge;
    }
    if row == 2 && clouds().next().is_some() && clouds().all(is_excluded_by_pod) {
        return Reason::EdgePinnedByPod;
    }
    if row == 3 {
        return Reason::EdgeTelemetryStale;
    }
    if edge.is_good() {
        return if case.slo().has_time_bound() {
            Reason::EdgeFeasibleSloMet
        } else {
            Reason::EdgeNoSloTarget
        };
    }
    if let Some(reason) = why_not_a_cloud(case, sites) {
        return reason;
    }
    match edge.standing() {
        Standing::Full if wait::could_preempt(case.workload, edge, case.room) => Reason::EdgePreempts,
        Standing::Late if is_urgent(case) => Reason::EdgeBestEffort,
        Standing::Late => Reason::EdgeFailSoft,
        _ => Reason::EdgeNoCapacity,
    }
}

/// Whether the site is excluded by the pod's own constraints, sites, traits, volumes or pod affinity.
fn is_excluded_by_pod(site: &Assessment<'_>) -> bool {
    let codes = [
        RefusalCode::NoMatchingNode,
        RefusalCode::DataElsewhere,
        RefusalCode::PodsElsewhere,
        RefusalCode::NotInSites,
        RefusalCode::MissingTrait,
    ];
    codes.iter().any(|code| site.is_refused(*code))
}

/// Why no cloud can be used; `None` if one can.
fn why_not_a_cloud(case: &Case<'_, '_>, sites: &[Assessment<'_>]) -> Option<Reason> {
    if !case.config.may_offload(case.slo()) {
        return Some(Reason::EdgeOffloadNotAllowed);
    }
    let clouds = || sites.iter().filter(|site| !rank::is_edge(site));
    let possible = || clouds().filter(|cloud| cloud.is_possible());
    if possible().next().is_none() {
        let codes = [RefusalCode::NotOffloadable, RefusalCode::NamespaceNotOffloaded];
        let is_tied = |cloud: &Assessment<'_>| codes.iter().any(|code| cloud.is_refused(*code));
        return match (clouds().next(), clouds().any(is_tied)) {
            (None, _) => Some(Reason::EdgeCloudSiteMissing),
            (_, true) => Some(Reason::EdgeNotOffloadable),
            _ => None,
        };
    }
    // Report the cloud that comes closest to being used.
    let neighbours = possible().filter(|cloud| !cloud.is_refused(RefusalCode::NotInNeighbourhood));
    let causes: Option<Vec<_>> = neighbours.map(why_away).collect();
    let closest = causes?.into_iter().max();
    closest.map(|(_, reason)| reason)
}

/// Why the cloud is `Away`, and how close it is to being used (higher is closer); `None` if it is not `Away`, or for want of a
/// measured trait.
fn why_away(cloud: &Assessment<'_>) -> Option<(u8, Reason)> {
    if cloud.standing() != Standing::Away {
        return None;
    }
    let has_no_node = [RefusalCode::NoNode, RefusalCode::NewNode, RefusalCode::NodeNotReady];
    if has_no_node.iter().any(|code| cloud.is_refused(*code)) {
        Some((0, Reason::EdgeCloudSiteMissing))
    } else if cloud.is_refused(RefusalCode::Unreachable) {
        Some((1, Reason::EdgeWanUnreachable))
    } else if cloud.is_refused(RefusalCode::OffloadingInProgress) {
        Some((2, Reason::EdgeNotOffloadable))
    } else if cloud.is_refused(RefusalCode::LostTrait) {
        None
    } else {
        Some((3, Reason::EdgeWanDegraded))
    }
}

/// Whether the pod's SLO priority is high. Its namespace may cap the priority.
pub(super) fn is_urgent(case: &Case<'_, '_>) -> bool {
    case.workload.slo_priority(&case.config.priority_caps) >= Slo::HIGH_PRIORITY
}
