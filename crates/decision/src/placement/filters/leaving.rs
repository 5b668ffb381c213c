//! Whether the pod may leave the edge: by its SLO, by the configuration, and by what ties it to its cluster.

use crate::model::site::SiteKind;
use crate::model::snapshot::Site;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};
use edgeward_kube::node::Node;
use edgeward_kube::resources::BY_CLAIM;
use edgeward_kube::ties::Tie;

pub(super) fn not_offloadable(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let (workload, definition) = (case.workload, &found.site.definition);
    if found.site.kind() == SiteKind::Edge {
        return None;
    }
    let mut ties = workload.ties.clone();
    if asks_for_devices(case, found.site) {
        ties.insert(Tie::ResourceClaims);
    }
    ties.retain(|tie| !definition.supports.contains(tie));
    let mut claims = workload.volume_claims.iter();
    if !workload.volume_claims.is_empty() && claims.all(|claim| claim.is_served_by(definition)) {
        ties.remove(&Tie::PersistentVolumeClaim);
    }
    if case.config.may_offload(case.slo()) && ties.is_empty() {
        return None;
    }
    let refusal = Refusal::new(RefusalCode::NotOffloadable);
    Some(ties.iter().fold(refusal, |refusal, tie| refusal.with(tie.as_str(), 1)))
}

/// Whether kube-scheduler would create a ResourceClaim for an extended resource of the pod. It does so if a DeviceClass
/// serves the resource and no node of the site has it from a device plugin. Cost: for each resource, a pass over the nodes
/// that have it from a device plugin.
fn asks_for_devices(case: &Case<'_, '_>, site: &Site) -> bool {
    let nodes = || case.room.snapshot.sites.iter().flat_map(Site::nodes);
    let is_by_claim = |(name, amount): &(Box<str>, i64)| {
        let has = |node: &Node| (1..BY_CLAIM).contains(&node.allocatable.capacity(name));
        let other = nodes().find(|node| !has(node));
        *amount > 0 && other.is_some_and(|node| node.allocatable.capacity(name) > 0) && !site.nodes().any(has)
    };
    case.workload.request.scalars.iter().any(is_by_claim)
}
