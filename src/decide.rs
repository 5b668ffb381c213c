//! The decision: [`decide`] reads a workload and the room there is, and returns a [`Verdict`].
//!
//! Pure: the same arguments give the same verdict. The numbers in comments refer to DESIGN section 4, which
//! `docs/decision.md` retells for users.

mod estimate;
pub mod explain;
mod feasibility;
pub mod verdict;

use std::collections::BTreeSet;

use crate::config::{Config, ForeignGates, InvalidSlo, OnNoCapacity};
use crate::model::node::{Node, NodeId};
use crate::model::site::SiteKind;
use crate::model::slo::{Intent, Management, Slo};
use crate::model::snapshot::{Site, Snapshot};
use crate::model::workload::Workload;
use crate::room::Room;
use crate::units::{Micros, Now, Permille};
use verdict::{Action, Assessment, Reason, RefusalCode, Verdict};

/// SLO priority from which a pod takes a cloud that is merely better, not good enough.
pub const HIGH_PRIORITY: u8 = 7;

/// The most comparisons of the pod's constraints and tolerations with the fleet's nodes that one decision may take: a
/// few thousandths of a second, for which all other decisions wait. An ordinary pod on five thousand nodes stays far
/// below; one that was written to keep us busy does not.
const MAX_COMPARISONS: usize = 500_000;

/// How long a placement we wrote is recognised as our own.
const REINVOCATION: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);

/// The nodes of a snapshot that a pod may go to, as far as its own constraints, the nodes' state and the charges in the
/// snapshot say. What was promised since only takes room away, so a decision looks at these alone.
#[derive(Debug)]
pub struct Candidates<'s> {
    /// The snapshot they are of.
    pub snapshot: &'s Snapshot,
    /// One for each of its sites; none where finding them would take too long.
    sites: Vec<SiteCandidates<'s>>,
}

#[derive(Debug)]
struct SiteCandidates<'s> {
    /// Whether the pod's own nodeSelector and affinity allow any node.
    allowed: bool,
    /// The nodes on which it fits but for promises.
    nodes: Vec<&'s Node>,
}

/// Finds the candidates of a pod. Depends on nothing that a lock protects; cost: a pass over the nodes of every site.
pub fn candidates<'s>(workload: &Workload<'_>, snapshot: &'s Snapshot) -> Candidates<'s> {
    let is_decided = workload.intent.is_some() && comparisons(workload, snapshot) <= MAX_COMPARISONS;
    let of_site = |site: &'s Site| SiteCandidates {
        allowed: feasibility::allows(workload, site),
        nodes: feasibility::candidate_nodes(workload, site).collect(),
    };
    let sites = snapshot.sites.iter().filter(|_| is_decided);
    Candidates {
        snapshot,
        sites: sites.map(of_site).collect(),
    }
}

/// Decides where the pod runs. Never fails, does no I/O; cost: a pass over the nodes of every site.
pub fn decide<'s>(workload: &Workload<'_>, room: &Room<'s, '_>, config: &Config, now: Now) -> Verdict<'s> {
    decide_among(workload, &candidates(workload, room.snapshot), room, config, now)
}

/// The same with the candidates of the room's snapshot. Cost: a search for each of them, and a pass over the nodes of the sites
/// that have none.
pub fn decide_among<'s>(
    workload: &Workload<'_>,
    candidates: &Candidates<'s>,
    room: &Room<'s, '_>,
    config: &Config,
    now: Now,
) -> Verdict<'s> {
    if let Some(reason) = bypass(workload, room, config, now) {
        return Verdict::pass_through(reason);
    }
    let Some(intent) = &workload.intent else {
        return Verdict::pass_through(Reason::NotManaged);
    };
    let comparisons = comparisons(workload, room.snapshot);
    if comparisons > MAX_COMPARISONS {
        let warning =
            format!("not placed: {comparisons} comparisons of constraints with nodes, over {MAX_COMPARISONS}");
        let (action, reason) = match is_waiting(workload, intent, config) {
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
    warnings.extend(
        intent
            .unknown_keys
            .iter()
            .map(|key| format!("{key} is not an annotation that edgeward reads")),
    );
    // A pod that exists cannot be refused any more.
    let may_deny = config.invalid_slo == InvalidSlo::Deny && workload.held.is_none();
    if may_deny && !intent.faults.is_empty() {
        return Verdict {
            action: Action::Deny,
            reason: Reason::DeniedInvalidSlo,
            node: None,
            sites: vec![],
            warnings: vec![],
            faults: intent.faults.clone(),
        };
    }

    let cap = workload.slo_priority(&config.priority_caps);
    if intent.slo.priority > cap {
        let key = format!("{}priority", config.keys.slo_prefix);
        warnings.push(format!(
            "{key}: {} counts as {cap}, the most in this namespace",
            intent.slo.priority
        ));
    }
    if let Some(reason) = keeps_waiting(workload, config) {
        return Verdict {
            action: Action::Hold,
            warnings,
            faults: intent.faults.clone(),
            ..Verdict::pass_through(reason)
        };
    }

    let case = Case {
        workload,
        intent,
        room,
        config,
        now: now.wall,
        sites: assess(workload, &intent.slo, candidates, room, config, now),
    };
    let stale = room.snapshot.is_stale(config.telemetry_ttl, now.moment);
    let (action, reason) = match case.choose(stale) {
        // What is wrong with the sites may be mended as long as the pod may wait; without its gate nobody places it any more.
        (Action::PassThrough, _) if case.is_waiting() => (Action::Hold, Reason::HeldNoCapacity),
        choice => choice,
    };
    warnings.extend(case.warnings(reason));
    let waits_for = match reason {
        Reason::HeldTerminating => case.terminating(),
        _ => None,
    };
    let reason = case.released(action, reason);
    let verdict = Verdict {
        action,
        reason,
        node: None,
        sites: case.sites,
        warnings,
        faults: intent.faults.clone(),
    };
    let fitting = verdict.chosen().map_or(&[][..], |chosen| &chosen.fitting);
    let node = waits_for.or_else(|| room.best_node(&workload.request, fitting.iter().copied()));
    Verdict {
        node: node.map(|node| node.id),
        ..verdict
    }
}

/// Where a pod that is held waits best: the node that comes closest to having room for it at the sites which, but for room, it
/// might go to, unless that is `spoken_for`; with the position of its site in the snapshot. Cost: two passes over the nodes.
pub fn nearest_room<'s>(
    workload: &Workload<'_>,
    verdict: &Verdict<'s>,
    room: &Room<'s, '_>,
    spoken_for: impl Fn(&Node) -> bool,
) -> Option<(&'s Site, NodeId)> {
    let sites = verdict.sites.iter().filter(|assessment| assessment.lacks_room());
    let nearest = sites.filter_map(|assessment| {
        let (missing, node) = feasibility::nearest_node(workload, assessment.site, room, &spoken_for)?;
        Some((missing, &node.name, assessment.site, node.id))
    });
    let (_, _, site, node) = nearest.min_by_key(|(missing, name, _, _)| (*missing, *name))?;
    Some((site, node))
}

/// The node that kube-scheduler would take for a pod that is placed on this site already; `None` if it fits on none, or if
/// finding out would take too long. Cost: a pass over the site's nodes.
pub fn node_at(workload: &Workload<'_>, room: &Room<'_, '_>, site: &Site) -> Option<NodeId> {
    if comparisons(workload, room.snapshot) > MAX_COMPARISONS {
        return None;
    }
    let candidates = feasibility::candidate_nodes(workload, site);
    let fitting = candidates.filter(|node| room.fits(&workload.request, node));
    room.best_node(&workload.request, fitting).map(|node| node.id)
}

/// 4.1: why the pod is not ours, if it is not.
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
        (room.snapshot.is_paused(workload, now.moment), Reason::LoopGuard),
    ];
    let bypass = bypasses
        .into_iter()
        .find(|(applies, _)| *applies)
        .map(|(_, reason)| reason);
    bypass.or_else(|| match (workload.gates.is_empty(), config.holding.foreign_gates) {
        (true, _) => is_placed(workload, room, now).then_some(Reason::Reinvocation),
        (false, ForeignGates::PassThrough) if !is_ours(workload, config) => Some(Reason::ForeignGate),
        (false, _) => None,
    })
}

/// Whether the pod carries our gate.
fn is_ours(workload: &Workload<'_>, config: &Config) -> bool {
    workload.gates.iter().any(|gate| **gate == *config.keys.gate)
}

/// Why a pod is not decided now: its gates keep it from being scheduled, whatever we say. One that is held is decided by the
/// release plan, once ours is its only gate.
fn keeps_waiting(workload: &Workload<'_>, config: &Config) -> Option<Reason> {
    if workload.has_other_gates(&config.keys) {
        Some(Reason::HeldForeignGate)
    } else if !workload.gates.is_empty() && workload.held.is_none() {
        Some(Reason::HeldNoCapacity)
    } else {
        None
    }
}

/// Whether the pod is held, and not for as long as its class may be.
fn is_waiting(workload: &Workload<'_>, intent: &Intent, config: &Config) -> bool {
    let limit = config.holding.limits[intent.slo.class];
    workload.held.is_some_and(|held| held < limit)
}

/// How many comparisons the pod's constraints and tolerations take on all nodes, at most and once.
pub(crate) fn comparisons(workload: &Workload<'_>, snapshot: &Snapshot) -> usize {
    let per_node = workload.constraints.comparisons() + workload.tolerations.len();
    let nodes: usize = snapshot.sites.iter().map(|site| site.nodes.len()).sum();
    per_node.saturating_mul(nodes)
}

/// Whether the pod carries a complete and recent placement of ours: the annotations, and in its spec the whole
/// selector and tolerations of the site they name. This needs no trust: whoever wrote them could have written the
/// same selector without us.
fn is_placed(workload: &Workload<'_>, room: &Room<'_, '_>, now: Now) -> bool {
    let Some(claim) = &workload.placement else { return false };
    let Some(site) = room.snapshot.sites.iter().find(|site| site.name() == claim.site) else {
        return false;
    };
    let selected = |(key, value): (&str, &str)| {
        workload
            .constraints
            .selector
            .iter()
            .any(|(k, v)| k == key && v == value)
    };
    let tolerated = |wanted| workload.tolerations.iter().any(|toleration| toleration.covers(wanted));
    claim.decision == site.kind().as_str()
        && now.wall.duration_since(claim.at).abs() <= REINVOCATION
        && site.definition.selector().all(selected)
        && site.definition.tolerations.iter().all(tolerated)
}

/// What each site would mean for the pod, in the order of the snapshot.
fn assess<'s>(
    workload: &Workload<'_>,
    slo: &Slo,
    candidates: &Candidates<'s>,
    room: &Room<'s, '_>,
    config: &Config,
    now: Now,
) -> Vec<Assessment<'s>> {
    let offload = config.enable_offload && slo.offload_allowed;
    let edge_speed = room
        .snapshot
        .sites
        .iter()
        .find(|site| site.kind() == SiteKind::Edge)
        .map_or(Permille::ONE, |edge| edge.definition.speed);
    let assess = |(site, candidates): (&'s Site, &SiteCandidates<'s>)| {
        let estimate = estimate::estimate(workload, slo, site, edge_speed, config);
        let nodes = candidates.nodes.iter().copied();
        let fitting: Vec<_> = nodes.filter(|node| room.fits(&workload.request, node)).collect();
        let mut refusals = Vec::new();
        refusals.extend(feasibility::refuse_offload(workload, offload, site));
        refusals.extend(match fitting.is_empty() {
            true => Some(feasibility::refuse_nodes(workload, site, room)),
            false => feasibility::refuse_measured(workload, site, room)
                .or_else(|| feasibility::refuse_crowded(workload, site, &fitting, room)),
        });
        refusals.extend(feasibility::refuse_closed(workload, site));
        refusals.extend(feasibility::refuse_link(site, config, now.moment));
        refusals.extend(feasibility::refuse_time(slo, &estimate));
        Assessment {
            site,
            allowed: candidates.allowed,
            fitting,
            estimate,
            refusals,
        }
    };
    room.snapshot.sites.iter().zip(&candidates.sites).map(assess).collect()
}

/// One decision under way.
struct Case<'c, 's> {
    workload: &'c Workload<'c>,
    intent: &'c Intent,
    room: &'c Room<'s, 'c>,
    config: &'c Config,
    now: jiff::Timestamp,
    sites: Vec<Assessment<'s>>,
}

impl<'s> Case<'_, 's> {
    fn slo(&self) -> &Slo {
        &self.intent.slo
    }

    fn is_urgent(&self) -> bool {
        self.workload.slo_priority(&self.config.priority_caps) >= HIGH_PRIORITY
    }

    fn edge(&self) -> Option<&Assessment<'s>> {
        self.sites.iter().find(|site| site.site.kind() == SiteKind::Edge)
    }

    fn clouds(&self) -> impl Iterator<Item = &Assessment<'s>> {
        self.sites.iter().filter(|site| site.site.kind() == SiteKind::Cloud)
    }

    /// 4.3 and 4.7.
    fn choose(&self, stale: bool) -> (Action<'s>, Reason) {
        let pass = |reason| (Action::PassThrough, reason);
        let Some(edge) = self.edge().filter(|edge| !edge.site.nodes.is_empty()) else {
            return pass(Reason::EdgeSiteMissing);
        };
        if !edge.allowed {
            return self.choose_among_clouds();
        }
        let mut clouds = self.clouds().filter(|cloud| !cloud.site.nodes.is_empty()).peekable();
        if clouds.peek().is_some() && clouds.all(|cloud| !cloud.allowed) {
            return self.to_edge(edge, Reason::EdgePinnedByPod);
        }
        if stale {
            return match self.is_waiting() {
                true => (Action::Hold, Reason::HeldNoCapacity),
                false => self.to_edge(edge, Reason::EdgeTelemetryStale),
            };
        }

        let usable = || self.clouds().filter(|cloud| cloud.is_usable());
        let urgent = self.is_urgent();
        // (a)
        if edge.is_feasible() {
            let met = if self.slo().has_time_bound() {
                Reason::EdgeFeasibleSloMet
            } else {
                Reason::EdgeNoSloTarget
            };
            return self.to_edge(edge, met);
        }
        if self.terminating().is_some() {
            return (Action::Hold, Reason::HeldTerminating);
        }
        // (b)
        if let Some(cloud) = nearest(usable().filter(|cloud| cloud.is_feasible())) {
            let reason = if edge.takes_for_sure() {
                Reason::CloudEdgeDeadlineMissed
            } else {
                Reason::CloudEdgeNoCapacity
            };
            return (Action::Place(cloud.site), reason);
        }
        let better = nearest(usable());
        if edge.takes() {
            // (c)
            return match better {
                Some(cloud) if urgent && cloud.estimate.eta() < edge.estimate.eta() => {
                    (Action::Place(cloud.site), Reason::CloudBestEffort)
                }
                // A moment, and the pods on their way are where they go.
                _ if !edge.takes_for_sure() && self.may_hold(edge) && !self.is_overdue() => {
                    (Action::Hold, Reason::HeldNoCapacity)
                }
                _ => self.to_edge(edge, self.edge_reason(edge)),
            };
        }
        // (d)
        match better {
            Some(cloud) if urgent || self.misses_by_processing(edge) => {
                (Action::Place(cloud.site), Reason::CloudBestEffort)
            }
            // (e)
            better => match (self.may_hold(edge), better) {
                (true, _) if !self.is_overdue() => (Action::Hold, Reason::HeldNoCapacity),
                (true, Some(cloud)) => (Action::Place(cloud.site), Reason::ReleasedTimeout),
                (true, None) => (Action::Place(edge.site), Reason::ReleasedTimeout),
                (false, _) => self.to_edge(edge, self.edge_reason(edge)),
            },
        }
    }

    /// 4.7: whether the pod may be held for want of room.
    fn may_hold(&self, edge: &Assessment<'s>) -> bool {
        self.config.holding.on_no_capacity == OnNoCapacity::Hold && self.may_wait(edge)
    }

    /// Whether the pod may wait at all. None does whose only candidate is the edge, that no node could hold, or for which
    /// kube-scheduler would evict others: these are for the scheduler and for whoever adds nodes to see. Nor does one that
    /// a site would give a RuntimeClass.
    fn may_wait(&self, edge: &Assessment<'s>) -> bool {
        let is_candidate = |cloud: &Assessment<'s>| {
            // A cloud whose nodes are gone may be back.
            let may_match = cloud.allowed || cloud.site.nodes.is_empty();
            may_match && !cloud.is_refused(RefusalCode::NotOffloadable)
        };
        self.config.holding.classes[self.slo().class]
            && self.clouds().any(is_candidate)
            && !self.is_too_large()
            && !self.would_get_runtime_class()
            && !feasibility::could_preempt(self.workload, edge.site, self.room)
    }

    /// Whether a site it may go to gives it a RuntimeClass: it can have one only at its creation.
    fn would_get_runtime_class(&self) -> bool {
        let mut sites = self.sites.iter().filter(|site| site.allowed);
        !self.workload.runtime_class && sites.any(|site| site.site.definition.runtime_class.is_some())
    }

    /// The edge node that has room for the pod as soon as pods are gone that are terminating there, if that is worth waiting
    /// for: nothing else speaks against the edge, and the pod has not waited long enough, for it or at all.
    fn terminating(&self) -> Option<&'s Node> {
        let edge = self.edge()?;
        let wait = self.config.holding.wait_for_terminating[self.slo().class];
        let has_time = self.workload.held.unwrap_or_default() < wait && !self.is_overdue();
        let is_wanted = has_time && !edge.fits() && edge.lacks_only_room();
        let longest = self.config.holding.wait_for_terminating.0.into_iter().max();
        let node = || {
            let longest = longest.unwrap_or_default();
            feasibility::node_after_terminating(self.workload, edge.site, self.room, longest, self.now)
        };
        is_wanted.then(node).flatten().filter(|_| self.may_wait(edge))
    }

    /// Whether the pod is held, and not for too long yet.
    fn is_waiting(&self) -> bool {
        is_waiting(self.workload, self.intent, self.config)
    }

    /// Whether the pod is held for as long as its class may be.
    fn is_overdue(&self) -> bool {
        self.workload.held.is_some() && !self.is_waiting()
    }

    /// The reason as it is for a pod that was held: what matters is where it went.
    fn released(&self, action: Action<'_>, reason: Reason) -> Reason {
        match action {
            Action::Place(_) if self.workload.held.is_none() || reason == Reason::ReleasedTimeout => reason,
            Action::Place(_) if self.is_overdue() && reason == Reason::EdgeTelemetryStale => Reason::ReleasedTimeout,
            Action::Place(site) if site.kind() == SiteKind::Edge => Reason::ReleasedEdge,
            Action::Place(_) => Reason::ReleasedCloud,
            Action::Hold | Action::PassThrough | Action::Deny => reason,
        }
    }

    /// The pod's own constraints leave no edge: it goes to a cloud that they leave, whatever telemetry, WAN and room
    /// say, and to the best by what we know; but to none that it may not, or cannot, leave the edge for.
    fn choose_among_clouds(&self) -> (Action<'s>, Reason) {
        let clouds = || {
            self.clouds()
                .filter(|cloud| cloud.allowed && !cloud.is_refused(RefusalCode::NotOffloadable))
        };
        let feasible = nearest(clouds().filter(|cloud| cloud.is_feasible()));
        let usable = || nearest(clouds().filter(|cloud| cloud.is_usable()));
        match feasible.or_else(usable).or_else(|| nearest(clouds())) {
            Some(cloud) => (Action::Place(cloud.site), Reason::CloudPinnedByPod),
            None => (Action::PassThrough, Reason::NoSiteMatches),
        }
    }

    fn to_edge(&self, edge: &Assessment<'s>, reason: Reason) -> (Action<'s>, Reason) {
        let reason = if self.intent.faults.is_empty() {
            reason
        } else {
            Reason::EdgeInvalidSlo
        };
        (Action::Place(edge.site), reason)
    }

    /// Why the edge, when it is not simply good (section 6): the first that holds.
    fn edge_reason(&self, edge: &Assessment<'s>) -> Reason {
        let worst_is = |codes: &[RefusalCode]| {
            // A cloud that the pod cannot go to says nothing about those that it can.
            let mut candidates = self
                .clouds()
                .filter(|cloud| !cloud.is_refused(RefusalCode::NotOffloadable));
            candidates.all(|cloud| codes.iter().any(|code| cloud.is_refused(*code)))
        };
        use verdict::RefusalCode::{Degraded, NoMatchingNode, NodeNotReady, Stale, Unreachable};
        if !edge.fits() && self.is_too_large() {
            Reason::EdgeTooLarge
        } else if !self.config.enable_offload {
            Reason::EdgeOffloadDisabled
        } else if !self.slo().offload_allowed {
            Reason::EdgeOffloadNotAllowed
        } else if self.has_ties_everywhere() {
            Reason::EdgeNotOffloadable
        } else if worst_is(&[NoMatchingNode, NodeNotReady]) {
            Reason::EdgeCloudSiteMissing
        } else if worst_is(&[NoMatchingNode, NodeNotReady, Unreachable]) {
            Reason::EdgeWanUnreachable
        } else if worst_is(&[NoMatchingNode, NodeNotReady, Unreachable, Degraded, Stale]) {
            Reason::EdgeWanDegraded
        } else if !edge.fits() && feasibility::could_preempt(self.workload, edge.site, self.room) {
            Reason::EdgePreempts
        } else if !edge.takes_for_sure() {
            Reason::EdgeNoCapacity
        } else if self.is_urgent() {
            Reason::EdgeBestEffort
        } else {
            Reason::EdgeFailSoft
        }
    }

    /// Larger than any node of any site it may go to.
    fn is_too_large(&self) -> bool {
        let sites = self
            .sites
            .iter()
            .filter(|site| !site.is_refused(RefusalCode::NotOffloadable));
        let mut nodes = sites
            .flat_map(|site| feasibility::holds_when_empty(self.workload, site.site))
            .peekable();
        nodes.peek().is_some() && nodes.all(|holds| !holds)
    }

    /// Tied to the edge as far as every cloud site goes.
    fn has_ties_everywhere(&self) -> bool {
        let mut clouds = self.clouds().peekable();
        clouds.peek().is_some() && clouds.all(|cloud| cloud.is_refused(RefusalCode::NotOffloadable))
    }

    /// Whether processing at the edge alone takes longer than the pod has: waiting could not help.
    fn misses_by_processing(&self, edge: &Assessment<'s>) -> bool {
        let bounds = [self.slo().deadline, self.slo().latency_target];
        bounds
            .into_iter()
            .flatten()
            .any(|bound| edge.estimate.processing > bound)
    }

    /// What keeps the pod from the sites that its own constraints leave, or that they leave none.
    fn why_no_site_matches(&self) -> Option<String> {
        let constraints = &self.workload.constraints;
        let clouds = self.clouds().filter(|cloud| cloud.allowed);
        let refusals: Vec<_> = clouds
            .flat_map(|cloud| &cloud.refusals)
            .filter(|refusal| refusal.code == RefusalCode::NotOffloadable)
            .collect();
        let ties: BTreeSet<_> = refusals.iter().flat_map(|refusal| refusal.numbers.keys()).collect();
        let ties = ties.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let cause = match (refusals.is_empty(), &*ties) {
            (true, _) if constraints.is_empty() => return None,
            (true, _) => return Some(format!("not placed: no site for {constraints}")),
            (false, "") if !self.config.enable_offload => "offload is disabled",
            (false, "") => "offload is not allowed",
            (false, ties) => ties,
        };
        Some(format!(
            "not placed: cannot leave the edge ({cause}), and no edge node for {constraints}"
        ))
    }

    fn warnings(&self, reason: Reason) -> Vec<String> {
        let mut warnings = Vec::new();
        match reason {
            Reason::NoSiteMatches => warnings.extend(self.why_no_site_matches()),
            Reason::EdgeSiteMissing => {
                let selector = self.edge().map(|edge| {
                    let pairs = edge
                        .site
                        .definition
                        .selector()
                        .map(|(key, value)| format!("{key}={value}"));
                    pairs.collect::<Vec<_>>().join(",")
                });
                let selector = selector.unwrap_or_default();
                warnings.push(format!("not placed: no node carries the edge label {selector}"));
            }
            Reason::EdgeTooLarge => {
                let request = self.workload.request.named().map(|(name, amount)| match name {
                    "cpu" => format!("cpu {amount}m"),
                    name => format!("{name} {amount}"),
                });
                let request = request.collect::<Vec<_>>().join(", ");
                warnings.push(format!("larger than any node it may run on: {request}"));
            }
            _ => {}
        }
        let candidates = self
            .sites
            .iter()
            .filter(|site| site.allowed && !site.is_refused(RefusalCode::NotOffloadable));
        let fastest = candidates.map(|site| site.estimate.processing).min();
        if let (Some(target), Some(fastest)) = (self.slo().latency_target, fastest)
            && fastest > target
        {
            warnings.push(format!(
                "latency target {target} ms is below the processing time {fastest} ms of every site"
            ));
        }
        warnings
    }
}

/// The site with the lowest ETA; of equals, the first by name (the order of the snapshot).
fn nearest<'a, 's>(sites: impl Iterator<Item = &'a Assessment<'s>>) -> Option<&'a Assessment<'s>>
where
    's: 'a,
{
    sites.min_by_key(|site| site.estimate.eta().unwrap_or(Micros(u64::MAX)))
}

#[cfg(test)]
mod tests;
