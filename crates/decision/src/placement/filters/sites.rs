//! The sites at which the pod's own annotation or its policy lets it run, and the neighbourhood that its policy keeps.

use crate::model::site::SiteKind;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};
use edgeward_kube::excerpt::excerpt;

/// The most bytes of the pod's list of sites that a refusal shows.
const SHOWN: usize = 100;

pub(super) fn not_in_sites(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let sites = case.workload.sites()?;
    let definition = &found.site.definition;
    // With Liqo, a site that selects every virtual node may be any remote cluster, so it is never an allowed site.
    let is_of_any = case.room.snapshot.offloadings.is_some() && definition.is_of_all_virtual_nodes();
    if !is_of_any && sites.allows(definition) {
        return None;
    }
    Some(Refusal::new(RefusalCode::NotInSites).with("sites", excerpt(sites, SHOWN)))
}

/// A cloud that does not belong to the neighbourhood of the pod's policy. A policy that is gone, or has no neighbourhood any more,
/// restricts nothing.
pub(super) fn not_in_neighbourhood(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let policy = case.intent.neighbourhood.as_deref()?;
    if found.site.kind() == SiteKind::Edge {
        return None;
    }
    let neighbourhoods = &case.room.snapshot.neighbourhoods;
    let members = neighbourhoods.get(&case.workload.namespace, policy)?;
    if members.iter().any(|member| **member == *found.site.name()) {
        return None;
    }
    Some(Refusal::new(RefusalCode::NotInNeighbourhood).with("policy", policy))
}
