//! Whether a site can take the pod: its nodes, its WAN, the pod's ties, the time (sections 3 to 5 of docs/decision.md).

use serde_json::{Map, Value};

use crate::config::Config;
use crate::excerpt::excerpt;
use crate::model::constraints::{Toleration, VolumeAffinity};
use crate::model::link::{LinkState, Thresholds};
use crate::model::liqo::{ApiServerStatus, OffloadingPhase, VIRTUAL_NODE};
use crate::model::node::{Node, Terminating};
use crate::model::site::SiteKind;
use crate::model::slo::Slo;
use crate::model::snapshot::{Site, Snapshot};
use crate::model::ties::{Tie, Ties};
use crate::model::workload::Workload;
use crate::placement::room::Room;
use crate::placement::verdict::{Estimate, Refusal, RefusalCode};
use crate::resources::Amounts;
use crate::units::{Micros, Moment, Now};

/// Whether the pod's own nodeSelector and affinity allow any node of the site. Cost: a pass over its nodes at most, nothing for
/// a pod without constraints.
pub(super) fn allows(workload: &Workload<'_>, site: &Site) -> bool {
    let constraints = &workload.constraints;
    let is_allowed = |node: &Node| constraints.is_empty() || constraints.allow(&node.name, &node.labels);
    site.nodes().any(is_allowed)
}

/// Whether nodes that the pod's own constraints allow may still come to the cloud: it has a young one, which may get the labels, or
/// none, and the pod's nodeSelector has the labels of the site.
pub(super) fn may_allow(workload: &Workload<'_>, site: &Site) -> bool {
    let is_named = || {
        let constraints = &workload.constraints;
        constraints.volumes.is_empty() && constraints.selects(site.definition.selector())
    };
    match site.nodes.is_empty() {
        true => site.kind() == SiteKind::Cloud && is_named(),
        false => workload.constraints.volumes.is_empty() && site.nodes().any(|node| may_change(site, node)),
    }
}

/// Whether the node is a cloud's and young: a virtual node may be registered before it has its labels and resources.
pub(super) fn may_change(site: &Site, node: &Node) -> bool {
    site.kind() == SiteKind::Cloud && node.young_until.is_some()
}

/// Whether the same constraints allow one but for where its data is.
pub(super) fn allows_by_pod(workload: &Workload<'_>, site: &Site) -> bool {
    site.nodes()
        .any(|node| workload.constraints.allow_by_pod(&node.name, &node.labels))
}

/// The claim whose volume keeps the pod from every node of the site that its own constraints allow; one of those that do so
/// together. Cost: a pass over its nodes for each claim, nothing where no volume is known.
pub(super) fn data_elsewhere<'w>(workload: &'w Workload<'_>, site: &Site) -> Option<&'w str> {
    if workload.constraints.volumes.is_empty() || !allows_by_pod(workload, site) || allows(workload, site) {
        return None;
    }
    let volumes = &workload.constraints.volumes;
    let place = volumes
        .iter()
        .position(|volume| !is_at(volume, site))
        .unwrap_or_default();
    workload.data_claims().nth(place)
}

/// The first claim of the pod whose volume can be used on no node of these sites. Cost: a pass over the nodes for each claim.
pub(super) fn data_nowhere<'w>(workload: &'w Workload<'_>, snapshot: &Snapshot) -> Option<&'w str> {
    let is_somewhere = |volume: &VolumeAffinity| snapshot.sites.iter().any(|site| is_at(volume, site));
    let place = workload
        .constraints
        .volumes
        .iter()
        .position(|volume| !is_somewhere(volume))?;
    workload.data_claims().nth(place)
}

/// Whether the volume can be used on a node of the site.
fn is_at(volume: &VolumeAffinity, site: &Site) -> bool {
    site.nodes()
        .any(|node| volume.iter().any(|term| term.matches(&node.name, &node.labels)))
}

/// Nodes of the site on which the pod fits now. Cost: a pass over its nodes.
pub(super) fn fitting_nodes<'n>(
    workload: &Workload<'_>,
    site: &'n Site,
    room: &Room<'_, '_>,
) -> impl Iterator<Item = &'n Node> {
    let fits = |node: &&Node| room.fits(&workload.request, node) && may_run(workload, site, node);
    site.nodes().filter(fits)
}

/// Nodes of the site on which the pod [may run](may_run), whether there is room or not. Cost: a pass over its nodes.
pub(super) fn usable_nodes<'n>(workload: &Workload<'_>, site: &'n Site) -> impl Iterator<Item = &'n Node> {
    site.nodes().filter(|node| may_run(workload, site, node))
}

/// Whether the scheduler's filters on readiness, labels, taints and cordon let the pod onto the node, once it carries
/// the site's placement.
pub(super) fn may_run(workload: &Workload<'_>, site: &Site, node: &Node) -> bool {
    node.admits(&workload.constraints, tolerations(workload, site)) && has_traits(workload, site, node)
}

/// Whether the node has what the pod requires of it.
fn has_traits(workload: &Workload<'_>, site: &Site, node: &Node) -> bool {
    workload
        .traits()
        .is_none_or(|traits| traits.are_at(node, &site.definition))
}

/// The pod's own tolerations, and those of the site's placement.
fn tolerations<'t>(workload: &'t Workload<'_>, site: &'t Site) -> impl Iterator<Item = &'t Toleration<'t>> + Clone {
    workload.tolerations.iter().chain(&site.definition.tolerations)
}

/// For each node of the site that the pod's constraints and tolerations allow: whether it could hold the pod if it
/// were empty. Cordon and readiness are left out, for they pass; a young node of a cloud could hold any pod.
pub(super) fn holds_when_empty(workload: &Workload<'_>, site: &Site) -> impl Iterator<Item = bool> {
    let of_node = |node: &Node| match is_meant_for(workload, site, node) {
        _ if may_change(site, node) => Some(true),
        is_meant => is_meant.then(|| could_hold(workload, node)),
    };
    site.nodes().filter_map(of_node)
}

/// Whether the node could hold the pod if it were empty.
pub(super) fn is_holder(workload: &Workload<'_>, site: &Site, node: &Node) -> bool {
    is_meant_for(workload, site, node) && could_hold(workload, node)
}

/// Whether constraints and tolerations let the pod onto the node, but for what passes with a condition of it.
fn is_meant_for(workload: &Workload<'_>, site: &Site, node: &Node) -> bool {
    workload.constraints.allow(&node.name, &node.labels) && is_tolerated(workload, site, node)
}

/// The same of a node that its constraints allow.
pub(super) fn is_tolerated(workload: &Workload<'_>, site: &Site, node: &Node) -> bool {
    node.is_tolerated_when_healthy(tolerations(workload, site)) && has_traits(workload, site, node)
}

/// Whether the node could hold the pod if it were empty.
fn could_hold(workload: &Workload<'_>, node: &Node) -> bool {
    node.slots > 0 && workload.request.fits(&node.allocatable, &Amounts::default())
}

/// Whether the pod would fit a node of the site once pods of lower priority had left it. A reserved pod that has not
/// come yet can be evicted like another.
pub(super) fn could_preempt(workload: &Workload<'_>, site: &Site, room: &Room<'_, '_>) -> bool {
    let makes_room = |node: &Node| {
        let mut used = node.used.clone();
        let mut pods = node.pods;
        for lower in node
            .by_priority
            .iter()
            .filter(|lower| lower.priority < workload.priority)
        {
            used = used.less(&lower.used);
            pods -= lower.pods;
        }
        let mut evicts = pods < node.pods;
        for charge in room.charges(node) {
            if charge.priority < workload.priority {
                evicts = true;
            } else {
                used.add(charge.amount, charge.times);
                pods += i64::from(charge.times);
            }
        }
        // Those ahead are of no lower priority.
        if let Some(ahead) = room.claimed_ahead(node) {
            used.add(&ahead.taken.amounts, 1);
            pods += ahead.taken.pods;
        }
        evicts && pods < node.slots && workload.request.fits(&node.allocatable, &used)
    };
    workload.may_preempt && usable_nodes(workload, site).any(makes_room)
}

/// A node of the site on which the pod fits once the pods are gone that terminate there and may be gone within `wait`, the
/// first by name. Cost: a pass over the nodes until then.
pub(super) fn node_after_terminating<'n>(
    workload: &Workload<'_>,
    site: &'n Site,
    room: &Room<'_, '_>,
    wait: Micros,
    now: Now,
) -> Option<&'n Node> {
    // What is headroom is not counted as taken.
    let is_headroom = |placeholder| room.headroom().is_some_and(|headroom| headroom.covers(placeholder));
    let makes_room = |node: &&Node| {
        let soon = || {
            node.terminating.iter().filter(|Terminating { termination, .. }| {
                termination.is_soon(wait, now) && !termination.placeholder.is_some_and(is_headroom)
            })
        };
        soon().next().is_some() && {
            let taken = room.taken(node);
            let (mut used, mut pods) = (taken.amounts.into_owned(), taken.pods);
            for terminating in soon() {
                used = used.less(&terminating.share.amounts);
                pods -= terminating.share.pods;
            }
            pods < node.slots && workload.request.fits(&node.allocatable, &used)
        }
    };
    site.nodes()
        .filter(makes_room)
        .find(|node| may_run(workload, site, node))
}

/// The node of the site that comes closest to having room for the pod, among those that could hold it and are not `is_claimed`,
/// with what is missing there: the largest share of any resource, in millionths. Of equals, the first by name. Cost: a pass
/// over the nodes.
pub(super) fn nearest_node<'n>(
    workload: &Workload<'_>,
    site: &'n Site,
    room: &Room<'_, '_>,
    is_claimed: impl Fn(&Node) -> bool,
) -> Option<(i64, &'n Node)> {
    let nothing = Amounts::default();
    let could_hold = |node: &&Node| {
        node.slots > 0
            && workload.request.fits(&node.allocatable, &nothing)
            && may_run(workload, site, node)
            && !is_claimed(node)
    };
    let missing = |node: &Node| {
        let taken = room.taken(node);
        let share = |request: i64, total: i64, used: i64| {
            let missing = i128::from(request) + i128::from(used) - i128::from(total);
            let millionths = missing.max(0) * 1_000_000 / i128::from(total.max(1));
            i64::try_from(millionths).unwrap_or(i64::MAX)
        };
        let resources = workload.request.named();
        let shares =
            resources.map(|(name, request)| share(request, node.allocatable.get(name), taken.amounts.get(name)));
        shares.chain([share(1, node.slots, taken.pods)]).max().unwrap_or(0)
    };
    let candidates = site.nodes().filter(could_hold);
    candidates
        .map(|node| (missing(node), node))
        .min_by(|(a, one), (b, other)| a.cmp(b).then(one.name.cmp(&other.name)))
}

/// The most resources that a refusal names: their number is the pod's choice, and each costs a pass over the nodes.
const MAX_NAMED_RESOURCES: usize = 16;

/// What the pod asks for of one resource; `pods` is its slot.
pub(super) fn request(workload: &Workload<'_>, name: &str) -> i64 {
    match name {
        "pods" => 1,
        name => workload.request.get(name),
    }
}

/// A number for its slot and for each resource that the pod asks for, as far as a refusal names them.
pub(super) fn asked(workload: &Workload<'_>, number: impl Fn(&str) -> i64) -> Map<String, Value> {
    let resources = workload.request.named().map(|(name, _)| name);
    let names = std::iter::once("pods").chain(resources).take(MAX_NAMED_RESOURCES);
    names.map(|name| (name.to_owned(), number(name).into())).collect()
}

/// Whether the pod asks for more than is free at the site as a whole by measurement.
pub(super) fn refuse_measured(workload: &Workload<'_>, site: &Site, room: &Room<'_, '_>) -> Option<Refusal> {
    let free = room.free(site);
    let bounds = [
        ("cpu", workload.request.cpu.0, free.cpu.map(|cpu| cpu.0)),
        ("memory", workload.request.memory.0, free.memory.map(|memory| memory.0)),
    ];
    // What is not asked for needs no room.
    let exceeds =
        |(_, request, free): &(&str, i64, Option<i64>)| *request > 0 && free.is_some_and(|free| *request > free);
    if !bounds.iter().any(exceeds) {
        return None;
    }
    let (mut requests, mut measured) = (Map::new(), Map::new());
    for (name, request, free) in bounds {
        if let Some(free) = free {
            requests.insert(name.to_owned(), request.into());
            measured.insert(name.to_owned(), free.into());
        }
    }
    let refusal = Refusal::new(RefusalCode::NoRoom).with("request", requests);
    Some(refusal.with("measuredFree", measured))
}

/// Whether kube-scheduler closes the site to pods of this one's controller (`closed_by_scheduler` in section 4).
pub(super) fn refuse_closed(workload: &Workload<'_>, site: &Site) -> Option<Refusal> {
    let waiting = site.closed.get(&workload.namespace, workload.controller.as_deref()?)?;
    Some(Refusal::new(RefusalCode::ClosedByScheduler).with("waitingPods", *waiting))
}

/// Whether the cluster behind the site has no room for what the pod asks for, by what pods there say. Cost: a comparison for each of
/// a few bounds.
pub(super) fn refuse_full(workload: &Workload<'_>, site: &Site) -> Option<Refusal> {
    let full = site.full.iter().find(|full| full.bound.refuses(&workload.request))?;
    let amounts = full.bound.amounts().take(MAX_NAMED_RESOURCES);
    let refused: Map<String, Value> = amounts.map(|(name, amount)| (name.to_owned(), amount.into())).collect();
    Some(
        Refusal::new(RefusalCode::RemoteFull)
            .with("refused", refused)
            .with("waitingPods", full.pods),
    )
}

/// How much is shown of the sites that a pod asks for.
const SHOWN_SITES: usize = 100;

/// Whether the pod may not run at this site, by its own word or by that of its policy.
pub(super) fn refuse_site(workload: &Workload<'_>, site: &Site, snapshot: &Snapshot) -> Option<Refusal> {
    // Liqo tells the clusters apart, and this site does not: nobody knows whose nodes its own are.
    let is_of_any = snapshot.offloadings.is_some() && site.definition.is_of_all_virtual_nodes();
    let out = workload
        .sites()
        .filter(|sites| is_of_any || !sites.allows(&site.definition));
    match out {
        Some(sites) => Some(Refusal::new(RefusalCode::NotInSites).with("sites", excerpt(sites, SHOWN_SITES))),
        None => refuse_traits(workload, site),
    }
}

/// Whether no node of the site has what the pod requires. Cost: a pass over its nodes at most, nothing for a
/// pod without traits.
pub(super) fn refuse_traits(workload: &Workload<'_>, site: &Site) -> Option<Refusal> {
    let traits = workload.traits()?;
    let is_on_nodes = traits.is_unreadable() || traits.of_nodes(&site.definition).next().is_some();
    if !is_on_nodes || site.nodes().any(|node| traits.are_at(node, &site.definition)) {
        return None;
    }
    let missing = traits.missing(&site.definition, site.nodes()).join(", ");
    Some(Refusal::new(RefusalCode::MissingTrait).with("traits", excerpt(missing, SHOWN_SITES)))
}

/// Whether the cloud is as far as the pod states that its site may not be, or farther. One whose RTT is not known may be.
pub(super) fn refuse_distance(workload: &Workload<'_>, site: &Site) -> Option<Refusal> {
    let bound = workload
        .traits()?
        .distance()
        .filter(|_| site.kind() == SiteKind::Cloud)?;
    let rtt = site.link.and_then(|link| link.rtt);
    let is_far = rtt.is_none_or(|rtt| rtt >= bound);
    is_far.then(|| {
        Refusal::new(RefusalCode::DistanceLimit)
            .with("rttMs", rtt)
            .with("boundMs", bound)
    })
}

/// How many of the pod's optional traits the site has not.
pub(super) fn missing_optional(workload: &Workload<'_>, site: &Site, fitting: &[&Node]) -> usize {
    let rtt = match site.kind() {
        SiteKind::Edge => Some(Micros(0)),
        SiteKind::Cloud => site.link.and_then(|link| link.rtt),
    };
    let traits = workload.traits();
    traits.map_or(0, |traits| {
        traits.missing_optional(&site.definition, fitting.iter().copied(), rtt)
    })
}

/// What speaks against the pod leaving the edge for this site: offload switched off, or ties it cannot serve.
pub(super) fn refuse_offload(workload: &Workload<'_>, offload: bool, site: &Site) -> Option<Refusal> {
    let mut ties = workload.ties.beyond(site.definition.supports);
    if !workload.claims.is_empty() && workload.claims.iter().all(|claim| claim.is_served_by(&site.definition)) {
        ties = ties.beyond(Ties::from_iter([Tie::PersistentVolumeClaim]));
    }
    let refused = site.kind() == SiteKind::Cloud && (!offload || !ties.is_empty());
    refused.then(|| {
        ties.iter()
            .fold(Refusal::new(RefusalCode::NotOffloadable), |refusal, tie| {
                refusal.with(tie.as_str(), 1)
            })
    })
}

/// Whether Liqo does not run pods of this namespace there (`namespace_not_offloaded` in section 4).
pub(super) fn refuse_namespace(phase: Option<OffloadingPhase>) -> Option<Refusal> {
    let phase = phase.filter(|phase| *phase != OffloadingPhase::Accepted)?;
    Some(Refusal::new(RefusalCode::NamespaceNotOffloaded).with("phase", phase.as_str()))
}

/// Whether Liqo keeps the pods of the namespace on virtual nodes (strategy Remote), and this site has none.
pub(super) fn is_left_by_strategy(workload: &Workload<'_>, site: &Site, snapshot: &Snapshot) -> bool {
    let is_virtual = |node: &Node| node.labels.contain([VIRTUAL_NODE]);
    snapshot.is_remote(&workload.namespace) && (site.kind() == SiteKind::Edge || !site.nodes().any(is_virtual))
}

/// What speaks against the WAN towards the site. A cloud site of which nothing is known is unreachable.
pub(super) fn refuse_link(site: &Site, config: &Config, now: Moment) -> Option<Refusal> {
    if site.kind() == SiteKind::Edge {
        return None;
    }
    if let Some(status) = site.api_server.filter(|status| *status != ApiServerStatus::Established) {
        return Some(Refusal::new(RefusalCode::Unreachable).with("apiServerStatus", status.as_str()));
    }
    let Some(link) = site.link else {
        return Some(Refusal::new(RefusalCode::Unreachable));
    };
    let age = now.since(link.as_of);
    let thresholds = Thresholds::from(config).with(site.definition.thresholds);
    match (link.state, link.rtt) {
        (LinkState::Unreachable, _) => Some(Refusal::new(RefusalCode::Unreachable)),
        _ if age > config.telemetry_ttl => Some(
            Refusal::new(RefusalCode::Stale)
                .with("ageMs", age)
                .with("telemetryCacheTTLMs", config.telemetry_ttl),
        ),
        (LinkState::Healthy, Some(_)) => None,
        (_, rtt) => Some(
            Refusal::new(RefusalCode::Degraded)
                .with("rttMs", rtt)
                .with("rttThresholdMs", thresholds.rtt)
                .with("lossPct", link.loss)
                .with("lossThresholdPct", thresholds.loss),
        ),
    }
}

/// The deadline and the latency target, where the estimate misses them, of a pod that was held for so long. A time that is
/// not known misses nothing here: the link's refusal already says so.
pub(super) fn refuse_time(slo: &Slo, held: Micros, estimate: &Estimate) -> impl Iterator<Item = Refusal> {
    let missed = |code, bound: Option<Micros>, name: &str, held: Micros, time: Option<Micros>| {
        let (bound, time) = (bound?, time?);
        let refusal = || Refusal::new(code).with(name, time).with("boundMs", bound);
        (held + time > bound).then(refusal)
    };
    let (eta, latency) = (estimate.eta(), estimate.latency());
    let deadline = missed(RefusalCode::Deadline, slo.deadline, "etaMs", held, eta);
    let deadline = deadline.map(|refusal| match held {
        Micros(0) => refusal,
        held => refusal.with("heldMs", held),
    });
    let target = missed(
        RefusalCode::LatencyTarget,
        slo.latency_target,
        "latencyMs",
        Micros(0),
        latency,
    );
    deadline.into_iter().chain(target)
}
