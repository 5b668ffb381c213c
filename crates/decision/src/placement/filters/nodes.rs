//! The site's nodes: their labels, taints, size and readiness, and the volumes of the pod's claims.

use crate::model::site::SiteKind;
use crate::model::snapshot::{Site, Snapshot};
use crate::model::workload::Workload;
use crate::placement::filters::Case;
use crate::placement::filters::room::{asked, request};
use crate::placement::room::Room;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};
use edgeward_kube::constraints::{Toleration, VolumeAffinity};
use edgeward_kube::excerpt::{LONGEST_NAME, excerpt};
use edgeward_kube::node::Node;
use edgeward_kube::resources::Amounts;

/// Why a node cannot run the pod even with free room. In order: the first variant comes closest to running the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    /// The node's topology domain has a pod that required anti-affinity excludes.
    Apart,
    NotReady,
    /// The node is young, so its labels and resources may still change.
    New,
    /// The node lacks required traits and nothing else.
    Traits,
    Size,
    Taints,
    Data,
    Constraints,
}

/// Nodes of the site that can run the pod once they have room. Cost: a pass over the site's nodes.
pub(super) fn usable_nodes<'s>(workload: &Workload<'_>, site: &'s Site, room: &Room<'_, '_>) -> Vec<&'s Node> {
    usable_among(site.nodes(), workload, site, room).collect()
}

/// Nodes of the site on which the pod fits now. Resources are compared first, because that is cheap. Cost: a pass over the
/// site's nodes.
pub(crate) fn fitting_nodes<'s: 'c, 'c>(
    workload: &'c Workload<'_>,
    site: &'s Site,
    room: &'c Room<'_, '_>,
) -> impl Iterator<Item = &'s Node> {
    let fitting = site.nodes().filter(|node| room.fits(&workload.request, node));
    usable_among(fitting, workload, site, room)
}

fn usable_among<'s: 'c, 'c>(
    nodes: impl Iterator<Item = &'s Node>,
    workload: &'c Workload<'_>,
    site: &'c Site,
    room: &Room<'_, '_>,
) -> impl Iterator<Item = &'s Node> {
    let apart = room.domains_apart(&workload.request, site);
    let is_apart = move |node: &Node| apart.iter().any(|(key, value)| node.labels.get(key) == Some(value));
    nodes.filter(move |node| is_usable(workload, site, node) && !is_apart(node))
}

fn is_usable(workload: &Workload<'_>, site: &Site, node: &Node) -> bool {
    could_hold(workload, node)
        && node.admits(&workload.constraints, tolerations(workload, site))
        && has_traits(workload, site, node)
}

pub(super) fn no_usable_node(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let (workload, site) = (case.workload, found.site);
    if site.nodes.is_empty() {
        return Some(refuse_without_nodes(case, site));
    }
    let count = |obstacle| obstacles(workload, site).filter(|other| *other == obstacle).count();
    let nearest = nearest_obstacle(case, found)?;
    Some(match nearest {
        Obstacle::Traits => return None,
        Obstacle::Apart => {
            let nodes = count(nearest);
            let refusal = Refusal::new(RefusalCode::NoRoom).with("usableNodes", nodes);
            refusal.with("excludedNodes", nodes)
        }
        Obstacle::NotReady => Refusal::new(RefusalCode::NodeNotReady).with("matchingNodes", count(nearest)),
        Obstacle::New => Refusal::new(RefusalCode::NewNode),
        Obstacle::Size => refuse_size(workload, site),
        Obstacle::Taints | Obstacle::Constraints => {
            let excluded = count(Obstacle::Constraints) + count(Obstacle::Data);
            let refusal = no_matching_node(site.nodes.len(), site.nodes.len() - excluded);
            let is_tainted = |node: &&Node| lasting_obstacle(workload, site, node) == Some(Obstacle::Taints);
            let tainted = site.nodes().find(is_tainted);
            match tainted.and_then(|node| node.lasting_taints(tolerations(workload, site)).next()) {
                Some(taint) => refusal.with("taint", excerpt(taint, LONGEST_NAME)),
                None => refusal,
            }
        }
        Obstacle::Data => refuse_data(workload, site),
    })
}

/// Refuses a site without nodes, which may still get some: `NoNode` is `Away`. It is `Never` if the pod's nodeSelector
/// contradicts the site's or matches another site's, or if the pod's volumes are elsewhere.
fn refuse_without_nodes(case: &Case<'_, '_>, site: &Site) -> Refusal {
    let constraints = &case.workload.constraints;
    if !constraints.volumes.is_empty() {
        return refuse_data(case.workload, site);
    }
    let names = |site: &Site| constraints.selects(site.definition.selector());
    let contradicts = |(key, value): (&str, &str)| {
        let mut selector = constraints.selector.iter();
        selector.any(|(own, wanted)| own == key && wanted != value)
    };
    let names_another = !names(site) && case.room.snapshot.sites.iter().any(names);
    if names_another || site.definition.selector().any(contradicts) {
        return no_matching_node(0, 0);
    }
    Refusal::new(RefusalCode::NoNode)
}

fn no_matching_node(nodes: usize, selected: usize) -> Refusal {
    let refusal = Refusal::new(RefusalCode::NoMatchingNode);
    refusal.with("nodes", nodes).with("selectedNodes", selected)
}

fn refuse_size(workload: &Workload<'_>, site: &Site) -> Refusal {
    let is_too_small = |node: &&Node| lasting_obstacle(workload, site, node) == Some(Obstacle::Size);
    let too_small: Vec<_> = site.nodes().filter(is_too_small).collect();
    let largest = |name: &str| {
        let sizes = too_small.iter().map(|node| match name {
            "pods" => node.slots,
            name => node.allocatable.capacity(name),
        });
        sizes.max().unwrap_or(0)
    };
    Refusal::new(RefusalCode::TooLarge)
        .with("request", asked(workload, |name| request(workload, name)))
        .with("largestNode", asked(workload, largest))
}

/// The refusal for volume data, with the first claim whose volume no node of the site can use. If each volume has a node,
/// but no node can use them all, it names the first claim.
fn refuse_data(workload: &Workload<'_>, site: &Site) -> Refusal {
    let volumes = &workload.constraints.volumes;
    let missing = volumes.iter().position(|volume| !is_at(volume, site));
    let claim = workload.data_claims().nth(missing.unwrap_or_default());
    Refusal::new(RefusalCode::DataElsewhere).with("claim", claim.unwrap_or_default())
}

/// The obstacle of the node that comes closest to running the pod; `None` if a node is usable or the site has no nodes.
pub(super) fn nearest_obstacle(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Obstacle> {
    if !found.usable.is_empty() {
        return None;
    }
    obstacles(case.workload, found.site).min()
}

/// The obstacle of each node of a site without usable nodes. A young cloud node counts as `New`, because a virtual node may
/// be registered before it has its labels and resources.
fn obstacles(workload: &Workload<'_>, site: &Site) -> impl Iterator<Item = Obstacle> {
    site.nodes()
        .map(move |node| match lasting_obstacle(workload, site, node) {
            Some(Obstacle::Traits) => Obstacle::Traits,
            Some(_) if site.kind() == SiteKind::Cloud && node.state.young_until.is_some() => Obstacle::New,
            Some(lasting) => lasting,
            None if is_usable(workload, site, node) => Obstacle::Apart,
            None => Obstacle::NotReady,
        })
}

/// Why the node could not run the pod even if it were empty, Ready and not cordoned.
fn lasting_obstacle(workload: &Workload<'_>, site: &Site, node: &Node) -> Option<Obstacle> {
    let constraints = &workload.constraints;
    if !constraints.allow_by_pod(&node.name, &node.labels) {
        return Some(Obstacle::Constraints);
    }
    if !constraints.allow(&node.name, &node.labels) {
        return Some(Obstacle::Data);
    }
    if node.lasting_taints(tolerations(workload, site)).next().is_some() {
        return Some(Obstacle::Taints);
    }
    if !could_hold(workload, node) {
        return Some(Obstacle::Size);
    }
    (!has_traits(workload, site, node)).then_some(Obstacle::Traits)
}

/// Whether the node could hold the pod if it were empty.
fn could_hold(workload: &Workload<'_>, node: &Node) -> bool {
    node.slots > 0 && workload.request.fits(&node.allocatable, &Amounts::default())
}

fn has_traits(workload: &Workload<'_>, site: &Site, node: &Node) -> bool {
    let traits = workload.traits();
    traits.is_none_or(|traits| traits.are_at(node, &site.definition))
}

/// The pod's own tolerations and the tolerations that the site's placement adds.
fn tolerations<'t>(workload: &'t Workload<'_>, site: &'t Site) -> impl Iterator<Item = &'t Toleration> + Clone {
    let added = match workload.unpatchable {
        true => &[][..],
        false => &site.definition.tolerations,
    };
    workload.tolerations.iter().chain(added)
}

/// Whether no known node can use the volume of one of the pod's claims. Cost: a pass over the nodes for each claim.
pub(crate) fn is_data_nowhere(workload: &Workload<'_>, snapshot: &Snapshot) -> bool {
    let is_nowhere = |volume: &VolumeAffinity| !snapshot.sites.iter().any(|site| is_at(volume, site));
    workload.constraints.volumes.iter().any(is_nowhere)
}

fn is_at(volume: &VolumeAffinity, site: &Site) -> bool {
    site.nodes()
        .any(|node| volume.iter().any(|term| term.matches(&node.name, &node.labels)))
}
