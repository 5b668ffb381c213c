//! Collects what the action table reads about a pod and its sites.

use crate::config::OnNoCapacity;
use crate::model::snapshot::Site;
use crate::placement::act::{Facts, Gate, Impossible};
use crate::placement::filters::{Case, nodes};
use crate::placement::rank;
use crate::placement::reason::is_urgent;
use crate::placement::verdict::{Assessment, RefusalCode, Standing};
use crate::placement::wait;
use edgeward_kube::node::Node;
use edgeward_kube::units::Micros;

/// Returns the facts, and the edge node whose terminating pods the pod may wait for.
pub(super) fn facts<'s>(case: &Case<'_, 's>, sites: &[Assessment<'s>]) -> (Facts, Option<&'s Node>) {
    let edge = sites.iter().find(|site| rank::is_edge(site));
    let clouds = || sites.iter().filter(|site| !rank::is_edge(site) && site.is_possible());
    let edge_standing = edge.map_or(Standing::Never, Assessment::standing);
    let cloud = clouds().map(Assessment::standing).min().unwrap_or(Standing::Never);
    let gate = gate(case, sites);
    let waits = edge.filter(|_| gate != Gate::Over);
    let terminating = waits.and_then(|edge| terminating(case, sites, edge));
    let late_cloud = rank::best_late_cloud(case, sites).zip(edge);
    // Except in row 4 and for bandwidth, a pod is gated only if no site is good. `may_gate` can be slow, so it is called only
    // then.
    let is_for_leader = sites.iter().any(|found| is_for_leader(case, found.site));
    let asks_for_gate =
        is_for_leader || terminating.is_some() || edge_standing != Standing::Good && cloud != Standing::Good;
    let facts = Facts {
        edge: edge_standing,
        cloud,
        several_clouds: clouds().nth(1).is_some(),
        impossible: impossible(case, sites),
        gate,
        may_gate: (asks_for_gate || case.is_stale()) && may_gate(case, sites),
        stale: case.is_stale(),
        waits_for_terminating: terminating.is_some(),
        urgent: is_urgent(case),
        late_cloud_is_sooner: late_cloud.is_some_and(|(cloud, edge)| late_cloud_is_sooner(case, edge, cloud)),
        prefers_late_cloud: late_cloud.is_some_and(|(cloud, edge)| prefers_late_cloud(case, edge, cloud)),
        clouds_are_lost: clouds().all(|cloud| is_lost(case, cloud)),
    };
    (facts, terminating)
}

/// Whether only the leader may place the pod at this site. kube-scheduler refuses no pod for want of bandwidth, so replicas that
/// place pods at the same time would exceed the link.
pub(super) fn is_for_leader(case: &Case<'_, '_>, site: &Site) -> bool {
    let asked = case.workload.request.bandwidth;
    let is_narrow = asked.egress > 0 && site.uplink.is_some() || asked.ingress > 0 && site.downlink.is_some();
    is_narrow && case.room.replicas() > 1
}

/// A site is too far from the pod's group only while the pod may wait for the group, which may be longer than its own limit.
fn gate(case: &Case<'_, '_>, sites: &[Assessment<'_>]) -> Gate {
    let limit = case.config.gating.limits[case.slo().class];
    let waits_for_group = sites.iter().any(|site| site.is_refused(RefusalCode::TooFar));
    match case.workload.gated_for {
        None => Gate::None,
        Some(gated_for) if gated_for < limit || waits_for_group => Gate::Within,
        Some(_) => Gate::Over,
    }
}

fn impossible(case: &Case<'_, '_>, sites: &[Assessment<'_>]) -> Impossible {
    if sites.iter().any(Assessment::is_possible) {
        return Impossible::Other;
    }
    let is_stated = case.intent.sites.is_some()
        || nodes::is_data_nowhere(case.workload, case.room.snapshot) && is_class_gated(case);
    let edge_is_refused = |code| sites.iter().any(|site| rank::is_edge(site) && site.is_refused(code));
    let lacks_traits = |site: &Assessment<'_>| site.is_refused(RefusalCode::MissingTrait);
    if is_stated {
        Impossible::Stated
    } else if edge_is_refused(RefusalCode::MissingTrait) {
        Impossible::Traits
    } else if edge_is_refused(RefusalCode::TooLarge) {
        Impossible::Size
    } else if sites.iter().any(lacks_traits) {
        // If the pod passed through, it could run on a node without the traits.
        Impossible::Stated
    } else {
        Impossible::Other
    }
}

/// Whether the configuration lets pods of this class be gated while no site has room.
pub(super) fn is_class_gated(case: &Case<'_, '_>) -> bool {
    let gating = &case.config.gating;
    gating.on_no_capacity == OnNoCapacity::Hold && gating.limits[case.slo().class] > Micros(0)
}

/// Whether the pod may be gated. It may not if a possible site would give it a RuntimeClass, which only a new pod can get.
/// It may not if kube-scheduler could make room at the edge by evicting other pods.
fn may_gate(case: &Case<'_, '_>, sites: &[Assessment<'_>]) -> bool {
    let gives_class = |site: &Assessment<'_>| site.is_possible() && site.site.definition.runtime_class.is_some();
    let gets_class = !case.workload.runtime_class && sites.iter().any(gives_class);
    let could_preempt = |site: &Assessment<'_>| {
        rank::is_edge(site) && site.standing() == Standing::Full && wait::could_preempt(case.workload, site, case.room)
    };
    (is_class_gated(case) || case.intent.sites.is_some()) && !gets_class && !sites.iter().any(could_preempt)
}

/// The edge node that fits the pod once pods terminating there are gone. `None` unless the edge lacks only room, the pod
/// may still wait, and its profile prefers no good cloud.
fn terminating<'s>(case: &Case<'_, 's>, sites: &[Assessment<'s>], edge: &Assessment<'s>) -> Option<&'s Node> {
    let wait = case.config.gating.wait_for_terminating[case.slo().class];
    if case.gated_for() >= wait
        || !edge.lacks_room()
        || edge.is_refused(RefusalCode::NoBandwidth)
        || edge.fits()
        || misses_time_at(case, edge)
        || rank::prefers_good_cloud(case, sites)
    {
        return None;
    }
    wait::node_after_terminating(case.workload, edge, case.room, wait, case.now)
}

/// Whether the pod misses its deadline or latency target at the edge even if it starts there now.
fn misses_time_at(case: &Case<'_, '_>, edge: &Assessment<'_>) -> bool {
    let (slo, estimate) = (case.slo(), &edge.estimate);
    let processing = estimate.processing_at(case.config.confidence);
    let misses = |bound: Option<Micros>, time: Micros| bound.is_some_and(|bound| time > bound);
    misses(slo.deadline, case.gated_for() + processing) || misses(slo.latency_target, estimate.processing_p95)
}

/// Whether a late cloud has a lower ETA than the edge. A pod with only a latency target serves from its site for as long as it
/// lives, so it does not leave an edge that has room on a guess.
fn late_cloud_is_sooner(case: &Case<'_, '_>, edge: &Assessment<'_>, cloud: &Assessment<'_>) -> bool {
    let is_known = case.slo().deadline.is_some() || !edge.estimate.is_guess && !cloud.estimate.is_guess;
    is_known && cloud.estimate.eta() < edge.estimate.eta()
}

/// Whether a late cloud is better than waiting for the edge.
///
/// A pod with a deadline prefers the cloud if it is urgent, or if it would miss a bound at the edge even if it started
/// there now. A pod with only a latency target serves from its site for as long as it lives, so it prefers a cloud that is
/// no slower than the edge.
fn prefers_late_cloud(case: &Case<'_, '_>, edge: &Assessment<'_>, cloud: &Assessment<'_>) -> bool {
    match case.slo().deadline {
        Some(_) => is_urgent(case) || misses_time_at(case, edge),
        None => cloud.estimate.latency() <= edge.estimate.latency(),
    }
}

/// Whether the cloud has been `Away` for longer than the pod can wait. A pod can wait for the limit of its class, or for
/// what its deadline leaves for that cloud, if that is less.
fn is_lost(case: &Case<'_, '_>, cloud: &Assessment<'_>) -> bool {
    let limit = case.config.gating.limits[case.slo().class];
    let time = cloud.estimate.processing_at(case.config.confidence) + cloud.estimate.wan.unwrap_or_default();
    let slack = case
        .slo()
        .deadline
        .map(|deadline| Micros(deadline.0.saturating_sub(time.0)));
    let longest = slack.map_or(limit, |slack| slack.min(limit));
    let since = cloud.site.away_since;
    let is_long = since.is_some_and(|since| case.now.moment.since(since) >= longest);
    cloud.standing() == Standing::Away && is_long
}
