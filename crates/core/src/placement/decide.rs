//! The decision: [`decide`] reads a workload and the room there is, and returns a [`Verdict`].
//!
//! Pure: the same arguments give the same verdict. Sections in comments are those of `docs/decision.md`.

use super::{estimate, feasibility};
use crate::config::{Config, InvalidSlo};
use crate::model::node::{Node, NodeId, Share};
use crate::model::scores::ProfileScores;
use crate::model::site::SiteKind;
use crate::model::site_restriction::SiteRestriction;
use crate::model::slo::{self, Intent, Management, Slo, SloFault};
use crate::model::snapshot::{Site, Snapshot};
use crate::model::traits::Traits;
use crate::model::workload::Workload;
use crate::placement::choice::{Case, is_waiting};
use crate::placement::located::{located, located_beside};
use crate::placement::room::Room;
use crate::placement::shortage::refuse_room;
use crate::placement::verdict::{Action, Assessment, Reason, Refusal, RefusalCode, Verdict};
use crate::units::{Now, Permille};

/// The most comparisons of the pod's constraints and tolerations with the fleet's nodes that one decision may take: a
/// few thousandths of a second, for which all other decisions may wait. An ordinary pod on five thousand nodes stays far
/// below; one that was written to keep us busy does not.
const MAX_COMPARISONS: usize = 500_000;

/// How long a placement we wrote is recognised as our own.
const REINVOCATION: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);

/// Decides where the pod runs. Never fails, does no I/O; cost: a pass over the nodes of every site.
pub fn decide<'s>(workload: &Workload<'_>, room: &Room<'s, '_>, config: &Config, now: Now) -> Verdict<'s> {
    let workload = &*located_beside(workload, room.snapshot, room.ledger, now.moment);
    if let Some(reason) = bypass(workload, room, config, now) {
        return Verdict::pass_through(reason);
    }
    let Some(intent) = &workload.intent else {
        return Verdict::pass_through(Reason::NotManaged);
    };
    // A pod that exists cannot be refused any more.
    let is_unreadable = intent.sites.as_ref().is_some_and(SiteRestriction::is_unreadable)
        || intent.traits.as_ref().is_some_and(|traits| traits.is_unreadable());
    let may_deny = (config.invalid_slo == InvalidSlo::Deny || is_unreadable) && workload.held.is_none();
    let comparisons = comparisons(workload, room.snapshot);
    if comparisons > MAX_COMPARISONS && !(may_deny && is_unreadable) {
        let warning =
            format!("not placed: {comparisons} comparisons of constraints with nodes, over {MAX_COMPARISONS}");
        // One whose sites nobody looks at waits until somebody can.
        let is_held = is_waiting(workload, intent, config) || intent.sites.is_some();
        let (action, reason) = match is_held {
            true => (Action::Hold, Reason::HeldNoCapacity),
            false => (Action::PassThrough, Reason::Deadline),
        };
        return Verdict {
            action,
            warnings: vec![warning],
            ..Verdict::pass_through(reason)
        };
    }
    let mut warnings: Vec<String> = intent.faults.iter().map(ToString::to_string).collect();
    warnings.extend(intent.unknown_keys.iter().map(|key| slo::not_read(key)));
    if intent.more_unknown_keys > 0 {
        let (more, prefix) = (intent.more_unknown_keys, &config.keys.slo_prefix);
        warnings.push(format!("{more} more annotations {prefix}… are not read by edgeward"));
    }
    let of_strategy = against_strategy(workload, intent, room.snapshot, config);
    if may_deny && (!intent.faults.is_empty() || of_strategy.is_some()) {
        return Verdict {
            action: Action::Deny,
            reason: Reason::DeniedInvalidSlo,
            node: None,
            sites: vec![],
            trait_labels: vec![],
            profile: None,
            warnings: vec![],
            faults: intent.faults.iter().cloned().chain(of_strategy).collect(),
        };
    }
    warnings.extend(of_strategy.as_ref().map(ToString::to_string));

    let cap = workload.slo_priority(&config.priority_caps);
    if intent.priority_known && intent.slo.priority > cap {
        let key = format!("{}priority", config.keys.slo_prefix);
        warnings.push(format!(
            "{key}: {} counts as {cap}, the most in this namespace",
            intent.slo.priority
        ));
    }
    if let Some(reason) = keeps_waiting(workload, room.snapshot, config) {
        return Verdict {
            action: Action::Hold,
            warnings,
            faults: intent.faults.clone(),
            ..Verdict::pass_through(reason)
        };
    }

    let room = &*room.with_headroom(workload, config);
    let profile = intent.profile.as_deref().and_then(|name| {
        let (name, scores) = room.snapshot.profiles.get_key_value(name)?;
        Some((&**name, &**scores))
    });
    let case = Case {
        workload,
        intent,
        room,
        config,
        now,
        profile: profile.map(|(_, scores)| scores),
        sites: assess(
            workload,
            &intent.slo,
            profile.map(|(_, scores)| scores),
            room,
            config,
            now,
        ),
    };
    let stale = room.snapshot.is_stale(config.telemetry_ttl, now.moment);
    let (action, reason) = match case.choose(stale) {
        // What is wrong with the sites may be fixed as long as the pod may wait; without its gate nobody places it any more.
        (Action::PassThrough, _) if case.is_waiting() => (Action::Hold, Reason::HeldNoCapacity),
        choice => choice,
    };
    warnings.extend(case.warnings(action, reason));
    let waits_for = match reason {
        Reason::HeldTerminating => case.terminating(),
        _ => None,
    };
    let reason = case.released(action, reason);
    let trait_labels = match (action, workload.traits()) {
        (Action::Place(site), Some(traits)) => traits.of_nodes(&site.definition).map(Box::from).collect(),
        _ => vec![],
    };
    let verdict = Verdict {
        action,
        reason,
        node: None,
        trait_labels,
        sites: case.sites,
        profile,
        warnings,
        faults: intent.faults.clone(),
    };
    let best = || room.best_node(&workload.request, &verdict.chosen()?.fitting);
    let node = waits_for.or_else(best);
    Verdict {
        node: node.map(|node| node.id),
        ..verdict
    }
}

/// Where a pod that is held waits best: the node that comes closest to having room for it at the sites which, but for room, it
/// might go to, unless it `is_claimed`; with its site. Cost: two passes over the nodes.
pub fn nearest_room<'s>(
    workload: &Workload<'_>,
    verdict: &Verdict<'s>,
    room: &Room<'s, '_>,
    is_claimed: impl Fn(&Node) -> bool,
) -> Option<(&'s Site, NodeId)> {
    let workload = &*located(workload, room.snapshot);
    let sites = verdict.sites.iter().filter(|assessment| assessment.lacks_room());
    let nearest = sites.filter_map(|assessment| {
        let (missing, node) = feasibility::nearest_node(workload, assessment.site, room, &is_claimed)?;
        Some((missing, &node.name, assessment.site, node.id))
    });
    let (_, _, site, node) = nearest.min_by_key(|(missing, name, _, _)| (*missing, *name))?;
    Some((site, node))
}

/// The node that kube-scheduler would take for the pod, if it is placed on this site already; `None` if it fits on none, or if
/// finding out would take too long.
pub(crate) fn node_at(workload: &Workload<'_>, site: &Site, room: &Room<'_, '_>) -> Option<NodeId> {
    if comparisons(workload, room.snapshot) > MAX_COMPARISONS {
        return None;
    }
    let fitting: Vec<&Node> = feasibility::fitting_nodes(workload, site, room).collect();
    room.best_node(&workload.request, &fitting).map(|node| node.id)
}

/// Whether so many pod slots, and so much of what the pod asks for, are at most half of what is free at the site on the
/// nodes that the pod fits together, beside the pods of the snapshot.
pub(crate) fn is_within_share(
    kept: &Share,
    workload: &Workload<'_>,
    site: &Site,
    snapshot: &Snapshot,
    config: &Config,
) -> bool {
    let room = Room::of(snapshot);
    let room = room.with_headroom(workload, config);
    let fitting: Vec<&Node> = feasibility::fitting_nodes(workload, site, &room).collect();
    let measured = |name: &str| match name {
        "cpu" => site.free.cpu.map(|cpu| cpu.0),
        "memory" => site.free.memory.map(|memory| memory.0),
        _ => None,
    };
    let is_within = |name: &str, kept: i64| {
        let free = fitting.iter().map(|node| room.used(node).free(name, node).max(0));
        let free: i128 = free.map(i128::from).sum();
        let free = measured(name).map_or(free, |measured| free.min(measured.into()));
        2 * i128::from(kept) <= free
    };
    is_within("pods", kept.pods)
        && workload
            .request
            .named()
            .all(|(name, _)| is_within(name, kept.amounts.get(name)))
}

/// Section 1, pods that pass through: why the pod is not ours, if it is not.
fn bypass(workload: &Workload<'_>, room: &Room<'_, '_>, config: &Config, now: Now) -> Option<Reason> {
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
    let bypass = bypasses
        .into_iter()
        .find(|(applies, _)| *applies)
        .map(|(_, reason)| reason);
    // Also a pod that a later webhook has gated.
    let is_placed = || !is_ours(workload, config) && is_placed(workload, room, now);
    bypass.or_else(|| is_placed().then_some(Reason::Reinvocation))
}

/// What is wrong with an SLO that forbids to leave the edge in a namespace whose pods Liqo runs on virtual nodes only.
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

/// Whether the pod carries our gate.
fn is_ours(workload: &Workload<'_>, config: &Config) -> bool {
    workload.gates.iter().any(|gate| **gate == *config.keys.gate)
}

/// Why a pod is not decided now: its gates keep it from being scheduled, whatever we say. One that is held is decided by the
/// release plan, once ours is its only gate, and where its data is may be known.
fn keeps_waiting(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config) -> Option<Reason> {
    if config.holding.can_release && workload.has_other_gates(&config.keys) {
        Some(Reason::HeldForeignGate)
    } else if is_ours(workload, config) && workload.held.is_none() {
        Some(Reason::HeldNoCapacity)
    } else if workload.held.is_some() && snapshot.awaits_volumes && !workload.claims.is_empty() {
        // Its data may be in a cloud.
        Some(Reason::HeldSiteAway)
    } else {
        None
    }
}

/// How many comparisons with nodes a decision about the pod takes at most: none where there would be too many, for it is made
/// without.
pub(crate) fn cost(workload: &Workload<'_>, snapshot: &Snapshot) -> usize {
    let comparisons = comparisons(&located(workload, snapshot), snapshot);
    if comparisons > MAX_COMPARISONS { 0 } else { comparisons }
}

/// Whether nothing is decided about the pod, for that would take too many comparisons.
pub(crate) fn takes_too_long(workload: &Workload<'_>, snapshot: &Snapshot) -> bool {
    comparisons(&located(workload, snapshot), snapshot) > MAX_COMPARISONS
}

/// How many comparisons the pod's constraints, tolerations and extended resources take on all nodes at most.
fn comparisons(workload: &Workload<'_>, snapshot: &Snapshot) -> usize {
    let of_traits = workload.traits().map_or(0, Traits::comparisons);
    let per_node =
        workload.constraints.comparisons() + workload.tolerations.len() + workload.request.scalars.len() + of_traits;
    per_node.saturating_mul(snapshot.node_count())
}

/// Whether the pod carries a complete and recent placement of ours: the annotations, and in its spec the whole
/// selector and tolerations of the site they name. This needs no trust: whoever wrote them could have written the
/// same selector without us.
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
        && now.wall.duration_since(stated.at).abs() <= REINVOCATION
        && workload.constraints.selects(site.definition.selector())
        && site.definition.tolerations.iter().all(tolerated)
}

/// What each site would mean for the pod, in the order of the snapshot.
fn assess<'s>(
    workload: &Workload<'_>,
    slo: &Slo,
    profile: Option<&ProfileScores>,
    room: &Room<'s, '_>,
    config: &Config,
    now: Now,
) -> Vec<Assessment<'s>> {
    let offload = config.may_offload(slo);
    let edge_speed = room
        .snapshot
        .sites
        .iter()
        .find(|site| site.kind() == SiteKind::Edge)
        .map_or(Permille::ONE, |edge| edge.definition.speed);
    let assess = |site: &'s Site| {
        let is_left_by_strategy = feasibility::is_left_by_strategy(workload, site, room.snapshot);
        let out = feasibility::refuse_site(workload, site, room.snapshot);
        let fitting: Vec<&Node> = match out {
            Some(_) => vec![],
            None => feasibility::fitting_nodes(workload, site, room).collect(),
        };
        let estimate = estimate::estimate(workload, slo, site, !fitting.is_empty(), edge_speed, config);
        let by_headroom = fitting
            .iter()
            .filter(|node| room.needs_headroom(&workload.request, node));
        let assessment = Assessment {
            site,
            allowed: feasibility::allows(workload, site) && !is_left_by_strategy,
            headroom: by_headroom.count(),
            fitting,
            offloading: None,
            estimate,
            missing_optional: 0,
            score: None,
            refusals: out.into_iter().collect(),
        };
        // What else there is to say of such a site is nothing to the pod.
        if !assessment.refusals.is_empty() {
            return assessment;
        }
        let fitting = &assessment.fitting;
        let offloading = room.snapshot.offloading(&workload.namespace, site);
        let mut refusals = vec![];
        refusals.extend(feasibility::refuse_offload(workload, offload, site));
        refusals.extend(feasibility::refuse_namespace(offloading));
        refusals.extend(match fitting.is_empty() {
            true => Some(refuse_room(workload, site, room)),
            false if is_left_by_strategy => Some(
                Refusal::new(RefusalCode::NoMatchingNode)
                    .with("nodes", site.nodes.len())
                    .with("strategy", "Remote"),
            ),
            false => feasibility::refuse_measured(workload, site, room),
        });
        refusals.extend(feasibility::refuse_closed(workload, site));
        refusals.extend(feasibility::refuse_full(workload, site));
        refusals.extend(feasibility::refuse_link(site, config, now.moment));
        refusals.extend(feasibility::refuse_distance(workload, site));
        refusals.extend(feasibility::refuse_time(
            slo,
            workload.held.unwrap_or_default(),
            &assessment.estimate,
        ));
        let missing_optional = feasibility::missing_optional(workload, site, fitting);
        let score = profile.and_then(|profile| profile.score(site.name(), missing_optional, now.moment));
        Assessment {
            offloading,
            missing_optional,
            score,
            refusals,
            ..assessment
        }
    };
    let mut sites: Vec<Assessment<'s>> = room.snapshot.sites.iter().map(assess).collect();
    if sites.iter().all(|site| !site.allowed) {
        for found in &mut sites {
            let is_left_by_strategy = feasibility::is_left_by_strategy(workload, found.site, room.snapshot);
            found.allowed = !is_left_by_strategy && feasibility::may_allow(workload, found.site);
        }
    }
    sites
}

#[cfg(test)]
mod tests;
