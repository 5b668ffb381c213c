//! The decision: [`decide`] reads a workload and the room for it, and returns a [`Verdict`].
//!
//! It is pure: the same arguments give the same verdict. `docs/guide/decide.md` has the rules for
//! users.

use crate::config::{Config, InvalidSlo};
use crate::model::site_restriction::SiteRestriction;
use crate::model::slo::{self, Intent, Management, SloFault};
use crate::model::snapshot::{Site, Snapshot};
use crate::model::traits::Traits;
use crate::model::workload::Workload;
use crate::placement::act::{Act, Gate, act};
use crate::placement::estimate::Elsewhere;
use crate::placement::facts::{facts, is_for_leader};
use crate::placement::features::CloudScores;
use crate::placement::filters::group::may_wait;
use crate::placement::filters::nodes::fitting_nodes;
use crate::placement::filters::traits;
use crate::placement::filters::{self, Case};
use crate::placement::located::{located, located_beside};
use crate::placement::rank;
use crate::placement::reason::reason;
use crate::placement::room::Room;
use crate::placement::verdict::{Action, Assessment, Reason, RefusalCode, Standing, Verdict};
use crate::placement::wait;
use crate::placement::warnings::warnings;
use edgeward_kube::constraints::HOSTNAME;
use edgeward_kube::node::{Node, NodeId, Share};
use edgeward_kube::units::{Micros, Now};

/// The most comparisons of the pod's constraints and tolerations with nodes that one decision may make. They take a few
/// milliseconds, during which other decisions wait. An ordinary pod on 5,000 nodes stays far below. A pod that is built to
/// overload edgeward does not.
pub(super) const MAX_COMPARISONS: usize = 500_000;

/// How long after its timestamp a placement counts as edgeward's own when a pod is reviewed again.
const REINVOCATION: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);

/// Decides where the pod runs, with scores of the learned scorer that are computed now. For callers that do not hold the ledger's
/// lock. Cost: that of [`decide`] and [`CloudScores::of`].
pub fn decide_with_scores<'s>(workload: &Workload<'_>, room: &Room<'s, '_>, config: &Config, now: Now) -> Verdict<'s> {
    let scores = CloudScores::of(workload, room.snapshot, config, now.moment);
    decide(workload, &room.with_scores(scores.as_ref()), config, now)
}

/// Decides where the pod runs. The learned scorer has a say only if the room has its scores. It never fails and does no I/O. Cost:
/// a pass over the nodes of every site.
pub fn decide<'s>(workload: &Workload<'_>, room: &Room<'s, '_>, config: &Config, now: Now) -> Verdict<'s> {
    let workload = &*located_beside(workload, room.snapshot, room.ledger, now.moment);
    if let Some(reason) = bypass(workload, room, config, now) {
        return Verdict::pass_through(reason);
    }
    let Some(intent) = &workload.intent else {
        return Verdict::pass_through(Reason::NotManaged);
    };
    let too_many = || too_many_comparisons(workload, intent, room.snapshot, config);
    if let Some(verdict) = denial(workload, intent, room.snapshot, config).or_else(too_many) {
        return verdict;
    }
    let mut warnings = slo_warnings(workload, intent, room.snapshot, config);
    if let Some(reason) = keeps_waiting(workload, room.snapshot, config) {
        return Verdict {
            action: Action::Gate,
            warnings,
            faults: intent.faults.clone(),
            ..Verdict::pass_through(reason)
        };
    }

    let room = &room.with_headroom(workload, config);
    let profile = intent.profile.as_deref().and_then(|name| {
        let (name, scores) = room.snapshot.profiles.get_key_value(name)?;
        Some((&**name, &**scores))
    });
    let case = Case {
        workload,
        intent,
        room,
        homes: room.homes(workload),
        peers: room.peers(workload),
        elsewhere: Elsewhere::of(workload, intent.slo.class, room.snapshot),
        config,
        now,
        profile: profile.map(|(_, scores)| scores),
    };
    let verdict = decide_case(&case);
    warnings.extend(verdict.warnings);
    Verdict {
        profile,
        warnings,
        faults: intent.faults.clone(),
        ..verdict
    }
}

/// Denies a pod whose SLO has faults if `invalidSlo` is `deny`, or in any case if its sites or traits cannot be read. A
/// gated pod already exists, so it is not denied.
fn denial<'s>(workload: &Workload<'_>, intent: &Intent, snapshot: &Snapshot, config: &Config) -> Option<Verdict<'s>> {
    let is_unreadable = intent.sites.as_ref().is_some_and(SiteRestriction::is_unreadable)
        || intent.traits.as_ref().is_some_and(|traits| traits.is_unreadable());
    if workload.gated_for.is_some() || config.invalid_slo != InvalidSlo::Deny && !is_unreadable {
        return None;
    }
    let of_strategy = against_strategy(workload, intent, snapshot, config);
    let faults: Vec<_> = intent.faults.iter().cloned().chain(of_strategy).collect();
    (!faults.is_empty()).then(|| Verdict {
        action: Action::Deny,
        faults,
        ..Verdict::pass_through(Reason::DeniedInvalidSlo)
    })
}

/// The verdict for a pod whose constraints are so costly to compare that all other pods would wait. A pod that is gated
/// within its limit stays gated. A pod that states its sites or requires traits is gated without a limit. Any other pod passes
/// through.
fn too_many_comparisons<'s>(
    workload: &Workload<'_>,
    intent: &Intent,
    snapshot: &Snapshot,
    config: &Config,
) -> Option<Verdict<'s>> {
    let comparisons = comparisons(workload, snapshot);
    if comparisons <= MAX_COMPARISONS {
        return None;
    }
    let limit = config.gating.limits[intent.slo.class];
    let requires_traits = workload.traits().is_some_and(|traits| traits.names().next().is_some());
    let is_gated = workload.gated_for.is_some_and(|gated| gated < limit) || intent.sites.is_some() || requires_traits;
    let (action, reason) = if is_gated {
        (Action::Gate, Reason::HeldNoCapacity)
    } else {
        (Action::PassThrough, Reason::Deadline)
    };
    let warning = format!("not placed: {comparisons} comparisons of constraints with nodes, over {MAX_COMPARISONS}");
    Some(Verdict {
        action,
        warnings: vec![warning],
        ..Verdict::pass_through(reason)
    })
}

/// Warnings about the SLO: its faults, its unknown keys, and a priority above the maximum of the namespace.
fn slo_warnings(workload: &Workload<'_>, intent: &Intent, snapshot: &Snapshot, config: &Config) -> Vec<String> {
    let mut warnings: Vec<String> = intent.faults.iter().map(ToString::to_string).collect();
    warnings.extend(intent.unknown_keys.iter().map(|key| slo::not_read(key)));
    let prefix = &config.keys.slo_prefix;
    let of_strategy = against_strategy(workload, intent, snapshot, config);
    warnings.extend(of_strategy.as_ref().map(ToString::to_string));
    let cap = workload.slo_priority(&config.priority_caps);
    let stated = intent.slo.priority;
    if intent.priority_known && stated > cap {
        warnings.push(format!(
            "{prefix}priority: {stated} counts as {cap}, the most in this namespace"
        ));
    }
    warnings
}

/// Runs the three steps: filter, rank, act.
fn decide_case<'s>(case: &Case<'_, 's>) -> Verdict<'s> {
    let sites = filters::assess(case);
    let (facts, terminating) = facts(case, &sites);
    let members = members(case.workload, case.room);
    let (row, act) = match lacks_edge(case, &sites) {
        true if facts.gate == Gate::Within => (0, Act::Gate),
        true => (0, Act::PassThrough),
        false if members.as_ref().is_some_and(StartsTogether::hold) && may_wait(case, &sites) => (0, Act::Gate),
        false => act(&facts),
    };
    let edge = || sites.iter().find(|site| rank::is_edge(site));
    let learned = matches!(act, Act::PlaceGood)
        .then(|| rank::learned(case, &sites))
        .flatten();
    let chosen = match act {
        Act::PlaceEdge => edge(),
        Act::PlaceGood => rank::best_good(case, &sites, learned.as_ref()),
        Act::PlaceLate => rank::best_late_cloud(case, &sites),
        Act::PlaceBest => rank::best_possible(sites.iter()),
        Act::Gate | Act::PassThrough => None,
    };
    let is_lost =
        |found: &Assessment<'_>| traits::is_lost(case, found.site) || found.is_refused(RefusalCode::NotInNeighbourhood);
    // Another site that could run the pod takes the place of one that has lost a measured trait or is no neighbour.
    let chosen = match chosen {
        Some(chosen) if row == 10 && is_lost(chosen) => {
            let others = sites.iter().filter(|found| found.standing() <= Standing::Full);
            rank::best_possible(others).or(Some(chosen))
        }
        chosen => chosen,
    };
    // kube-scheduler knows neither measured traits nor neighbourhoods nor distances nor bandwidth. The first two are kept without
    // a limit.
    let waits_for_site = chosen.is_some_and(is_lost);
    let may_gate = facts.may_gate && facts.gate != Gate::Over;
    let waits_for_other = chosen.is_some_and(|chosen| {
        let is_for_leader = !facts.stale && is_for_leader(case, chosen.site);
        let waits_for_link = chosen.is_refused(RefusalCode::NoBandwidth) || is_for_leader;
        chosen.far.is_some() && may_wait(case, &sites) || waits_for_link && may_gate
    });
    let (act, chosen) = match waits_for_site || waits_for_other {
        true => (Act::Gate, None),
        false => (act, chosen),
    };
    let action = match (act, chosen) {
        (_, Some(chosen)) => Action::Place(chosen.site),
        (Act::Gate, None) => Action::Gate,
        (_, None) => Action::PassThrough,
    };
    let is_held = matches!(act, Act::Gate) && members.as_ref().is_some_and(StartsTogether::hold);
    let reason = match (row, act) {
        (0, Act::PassThrough) => Reason::EdgeSiteMissing,
        (0, Act::Gate) if is_held => Reason::HeldGroup,
        _ if waits_for_site => Reason::HeldSiteAway,
        row => reason(case, &sites, &facts, row, chosen, learned.as_ref()),
    };
    let node = match chosen {
        Some(chosen) => case.room.best_node(&case.workload.request, &chosen.fitting),
        None => terminating.filter(|_| row == 4),
    };
    // For the release plan, which places the whole group.
    let starts_together = members.is_some() && matches!(action, Action::Place(_));
    let places = starts_together.then(|| rank::in_order(case, &sites, facts.gate == Gate::Over));
    let labels = |chosen: &Assessment<'_>| {
        let traits = case.workload.traits()?;
        Some(traits.of_nodes(&chosen.site.definition).map(Box::from).collect())
    };
    Verdict {
        action,
        reason,
        node: node.map(|node| node.id),
        places: places.unwrap_or_default(),
        trait_labels: chosen.and_then(labels).unwrap_or_default(),
        warnings: warnings(case, &sites, reason, chosen),
        rtt: rtt(case, &sites, chosen),
        profile: None,
        learned: learned.filter(|_| chosen.is_some()),
        members: members
            .filter(|members| members.existing < members.size)
            .map(|members| (members.existing, members.size)),
        faults: vec![],
        sites,
    }
}

/// The pods of a group that starts together.
struct StartsTogether {
    /// The number that exist, including those that have succeeded and the pod itself.
    existing: u32,
    /// The number that start together.
    size: u32,
    /// The number that are placed, including those that have succeeded.
    placed: u32,
    is_gang: bool,
    /// Whether the pod is being created.
    is_new: bool,
}

impl StartsTogether {
    /// Whether the pod waits for the others. A new pod of a group that has started does not, unless it is of a gang.
    fn hold(&self) -> bool {
        let is_missed = self.placed.saturating_add(1) < self.size;
        self.is_new && is_missed && (self.is_gang || self.placed == 0)
    }
}

/// The pods of the pod's group, if it starts together. Cost: a few searches.
fn members(workload: &Workload<'_>, room: &Room<'_, '_>) -> Option<StartsTogether> {
    let membership = workload.membership()?;
    let (snapshot, namespace) = (room.snapshot, &*workload.namespace);
    let size = snapshot.size_of(namespace, membership)?;
    let placed = snapshot.placed(namespace, &membership.group);
    let gated = snapshot.gated_members.count(namespace, &membership.group);
    let is_new = workload.gated_for.is_none();
    let existing = placed.saturating_add(gated).saturating_add(u64::from(is_new));
    let count = |pods: u64| u32::try_from(pods).unwrap_or(u32::MAX);
    Some(StartsTogether {
        existing: count(existing),
        size,
        placed: count(placed),
        is_gang: membership.is_gang,
        is_new,
    })
}

/// Whether the fleet has an edge site but no node carries its selector, so that there is nothing to compare a cloud with. False if
/// the pod's own constraints exclude the edge. Also false if the pod states its sites or requires traits, which it would lose by
/// passing through.
fn lacks_edge(case: &Case<'_, '_>, sites: &[Assessment<'_>]) -> bool {
    let states_sites = case.intent.sites.is_some();
    let is_there = |site: &Assessment<'_>| {
        let labels = |traits: &Traits| traits.of_nodes(&site.site.definition).next().is_some();
        let needs_labels = case.workload.traits().is_some_and(labels) || traits::is_lost(case, site.site);
        !site.is_possible() || needs_labels || !site.site.nodes.is_empty()
    };
    let edge = sites.iter().find(|site| rank::is_edge(site));
    !states_sites && edge.is_some_and(|edge| !is_there(edge))
}

/// The last RTT measured to the chosen cloud. Otherwise, the lowest recent RTT of a reachable cloud that the pod's sites
/// and traits allow.
fn rtt(case: &Case<'_, '_>, sites: &[Assessment<'_>], chosen: Option<&Assessment<'_>>) -> Option<Micros> {
    if let Some(link) = chosen.and_then(|chosen| chosen.site.link) {
        return link.rtt;
    }
    let is_out =
        |site: &Assessment<'_>| site.is_refused(RefusalCode::NotInSites) || site.is_refused(RefusalCode::MissingTrait);
    let (ttl, now) = (case.config.telemetry_ttl, case.now.moment);
    let allowed = sites.iter().filter(|site| !is_out(site));
    let links = allowed.filter_map(|site| site.site.fresh_link(ttl, now));
    links.filter_map(|link| link.live_rtt()).min()
}

/// The best node for a gated pod to wait for, and its site. Among sites that lack only room, it is the node that comes
/// closest to having room and is not `is_claimed`; ties go to the first by name. Cost: a pass over the usable nodes of these
/// sites.
pub fn nearest_room<'s>(
    workload: &Workload<'_>,
    verdict: &Verdict<'s>,
    room: &Room<'s, '_>,
    is_claimed: impl Fn(&Node) -> bool,
) -> Option<(&'s Site, NodeId)> {
    let sites = verdict.sites.iter().filter(|found| found.lacks_room());
    let nodes = sites.flat_map(|found| found.usable.iter().map(|node| (found.site, *node)));
    let is_kept_from = |node: &Node| workload.request.is_kept_from(&room.taken(node).amounts);
    let nodes = nodes.filter(|(_, node)| !is_claimed(node) && !is_kept_from(node));
    let nearest = nodes.min_by_key(|&(_, node)| (wait::missing_fraction(workload, node, room), &*node.name));
    nearest.map(|(site, node)| (site, node.id))
}

/// The node that kube-scheduler would pick for a pod that is already placed on this site. `None` if the pod fits no node
/// there, or if the search would take too many comparisons.
pub fn node_at(workload: &Workload<'_>, site: &Site, room: &Room<'_, '_>) -> Option<NodeId> {
    if comparisons(workload, room.snapshot) > MAX_COMPARISONS {
        return None;
    }
    let fitting: Vec<_> = fitting_nodes(workload, site, room).collect();
    room.best_node(&workload.request, &fitting).map(|node| node.id)
}

/// Whether `kept` is at most half of what is free at the site for this pod. Only pod slots and resources that the pod
/// requests count, on nodes that the pod fits. Pods of the snapshot are subtracted; reservations and queue claims are not.
/// Cost: a pass over the nodes at most.
pub fn is_within_half(
    kept: &Share,
    workload: &Workload<'_>,
    site: &Site,
    snapshot: &Snapshot,
    config: &Config,
) -> bool {
    let room = Room::of(snapshot).with_headroom(workload, config);
    let amounts = workload.request.named().map(|(name, _)| (name, kept.amounts.get(name)));
    let needed = amounts
        .chain([("pods", kept.pods)])
        .map(|(name, kept)| (name, 2 * i128::from(kept)));
    let mut missing: Vec<_> = needed.collect();
    let is_above_measured =
        |(name, needed): &(&str, i128)| site.free.get(name).is_some_and(|free| *needed > free.into());
    if missing.iter().any(is_above_measured) {
        return false;
    }
    // Usually, the first few nodes have enough.
    let mut nodes = fitting_nodes(workload, site, &room);
    loop {
        missing.retain(|(_, missing)| *missing > 0);
        if missing.is_empty() {
            return true;
        }
        let Some(node) = nodes.next() else { return false };
        let used = room.used(node);
        for (name, missing) in &mut missing {
            *missing -= i128::from(used.free(name, node).max(0));
        }
    }
}

/// Why edgeward does not decide about the pod; `None` if it does ("Which pods are decided" in docs/guide/decide.md).
fn bypass(workload: &Workload<'_>, room: &Room<'_, '_>, config: &Config, now: Now) -> Option<Reason> {
    // Such a pod passes through even if a later webhook has gated it.
    let is_placed = || !is_ours(workload, config) && is_placed(workload, room, now);
    unmanaged(workload, config).or_else(|| is_placed().then_some(Reason::Reinvocation))
}

/// Why edgeward does not decide about the pod, whether it has a placement or not.
pub fn unmanaged(workload: &Workload<'_>, config: &Config) -> Option<Reason> {
    let excluded = config
        .excluded_namespaces
        .iter()
        .any(|name| **name == *workload.namespace);
    let bypasses = [
        (excluded, Reason::ExcludedNamespace),
        (workload.mirror, Reason::Mirror),
        (workload.bound, Reason::NodeName),
        (workload.daemonset, Reason::DaemonSet),
        (workload.shadow, Reason::ShadowPod),
        (workload.management == Management::OptedOut, Reason::OptedOut),
        (workload.intent.is_none(), Reason::NotManaged),
    ];
    let mut bypasses = bypasses.into_iter();
    bypasses.find(|(applies, _)| *applies).map(|(_, reason)| reason)
}

/// The fault of `offloadAllowed: "false"` in a namespace whose pods Liqo runs only on virtual nodes (strategy `Remote`).
fn against_strategy(
    workload: &Workload<'_>,
    intent: &Intent,
    snapshot: &Snapshot,
    config: &Config,
) -> Option<SloFault> {
    let forbids = intent.faults.is_empty() && !intent.slo.offload_allowed;
    (forbids && snapshot.is_remote(&workload.namespace)).then(|| SloFault {
        key: format!("{}offloadAllowed", config.keys.slo_prefix),
        value: Some("false".to_owned()),
        allowed: "\"true\", which Liqo's strategy Remote of this namespace takes",
    })
}

/// Whether the pod carries edgeward's gate.
fn is_ours(workload: &Workload<'_>, config: &Config) -> bool {
    workload.gates.iter().any(|gate| **gate == *config.keys.gate)
}

/// Why the pod is not decided now; `None` if it is. Gates of others keep it from being scheduled whatever the verdict. The
/// release plan decides a gated pod once edgeward's gate is its only one. If the pod has volume claims, they must have been
/// listed.
fn keeps_waiting(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config) -> Option<Reason> {
    if config.gating.can_release && workload.has_other_gates(&config.keys) {
        Some(Reason::HeldForeignGate)
    } else if is_ours(workload, config) && workload.gated_for.is_none() {
        Some(Reason::HeldNoCapacity)
    } else if workload.gated_for.is_some() && snapshot.awaits_volumes && !workload.volume_claims.is_empty() {
        // Its data may be in a cloud, which only its claims tell.
        Some(Reason::HeldSiteAway)
    } else {
        None
    }
}

/// The most comparisons with nodes that a decision about the pod takes. Zero above `MAX_COMPARISONS`, because such a pod is
/// decided without comparisons.
pub fn cost(workload: &Workload<'_>, snapshot: &Snapshot) -> usize {
    let comparisons = comparisons(&located(workload, snapshot), snapshot);
    if comparisons > MAX_COMPARISONS { 0 } else { comparisons }
}

/// The number of comparisons with a node that cost as much as one pass over the labels of a pod.
const LABELS: usize = 8;

/// The most comparisons that the pod takes: of its constraints, tolerations, extended resources and traits with all nodes,
/// and of its affinity with other pods.
pub(super) fn comparisons(workload: &Workload<'_>, snapshot: &Snapshot) -> usize {
    let of_traits = workload.traits().map_or(0, Traits::comparisons);
    let per_node =
        workload.constraints.comparisons() + workload.tolerations.len() + workload.request.scalars.len() + of_traits;
    let with_pods = workload.near.iter().map(|term| {
        let namespaces = term.namespaces.iter();
        let pods = namespaces.flat_map(|name| snapshot.sites.iter().map(|site| site.labelled.of(name).count()));
        pods.sum::<usize>() * term.parts() * LABELS
    });
    // Affinity compares the topology domains of each site with those of every other site.
    let of_domains = workload
        .near
        .iter()
        .filter(|term| *term.topology_key != *HOSTNAME)
        .count()
        * snapshot.sites.len();
    (per_node + of_domains).saturating_mul(snapshot.node_count()) + with_pods.sum::<usize>()
}

/// Whether the pod carries a complete placement by edgeward: the annotations, and in its spec the full selector and tolerations of
/// the site that they name. It must be recent, unless kube-scheduler is placing the pod. The annotations need no trust, because
/// their author could also have written the selector directly.
fn is_placed(workload: &Workload<'_>, room: &Room<'_, '_>, now: Now) -> bool {
    let Some(stated) = &workload.placement else {
        return false;
    };
    let Some(site) = room.snapshot.sites.iter().find(|site| site.name() == stated.site) else {
        return false;
    };
    let tolerated = |wanted| workload.tolerations.iter().any(|toleration| toleration.covers(wanted));
    let has_labels = |traits: &Traits| {
        workload
            .constraints
            .selects(traits.of_nodes(&site.definition).map(|label| (label, "true")))
    };
    stated.decision == site.kind().as_str()
        && workload.traits().is_none_or(has_labels)
        && workload.may_be_at(&site.definition)
        && (workload.unpatchable || now.wall.duration_since(stated.at).abs() <= REINVOCATION)
        && workload.constraints.selects(site.definition.selector())
        && site.definition.tolerations.iter().all(tolerated)
}

#[cfg(test)]
pub(super) mod tests;
