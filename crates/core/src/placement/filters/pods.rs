//! Pods that the pod must run with, by its required affinity.

use std::collections::BTreeSet;

use crate::model::constraints::HOSTNAME;
use crate::model::pod_affinity::AffinityTerm;
use crate::model::snapshot::Site;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

/// Without such pods anywhere, no site is refused: kube-scheduler lets the first pod of a group in, and any other waits wherever it is.
pub(super) fn pods_elsewhere(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let is_near = |term: &AffinityTerm, home: &Site| {
        home.name() == found.site.name() || has_domain_of(home, &term.topology_key, found.site)
    };
    let is_met = |term: &AffinityTerm| case.homes.iter().any(|home| is_near(term, home));
    if case.homes.is_empty() || case.workload.near.iter().all(is_met) {
        return None;
    }
    let homes: Vec<_> = case.homes.iter().map(|home| home.name()).collect();
    Some(Refusal::new(RefusalCode::PodsElsewhere).with("sites", homes.join(", ")))
}

/// Whether a topology domain of this key reaches over both sites. Cost: a pass over their nodes.
fn has_domain_of(home: &Site, key: &str, site: &Site) -> bool {
    let domains: BTreeSet<&str> = home.nodes().filter_map(|node| node.labels.get(key)).collect();
    let mut own = site.nodes().filter_map(|node| node.labels.get(key));
    key != HOSTNAME && own.any(|domain| domains.contains(domain))
}
