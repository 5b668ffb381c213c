//! Required pod affinity: the pod runs at the sites of the pods that it selects.

use std::collections::BTreeSet;

use crate::model::snapshot::Site;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};
use edgeward_kube::constraints::HOSTNAME;

/// If no site has such pods, refuses no site: kube-scheduler lets the first pod of a group in, and any other is Pending
/// wherever it is placed.
pub(super) fn pods_elsewhere(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let is_home = case.homes.iter().any(|home| home.name() == found.site.name());
    let shares_domain = |key: &str| case.homes.iter().any(|home| has_domain_of(home, key, found.site));
    let keys: BTreeSet<_> = case.workload.near.iter().map(|term| &*term.topology_key).collect();
    if case.homes.is_empty() || is_home || keys.into_iter().all(shares_domain) {
        return None;
    }
    let homes: Vec<_> = case.homes.iter().map(|home| home.name()).collect();
    Some(Refusal::new(RefusalCode::PodsElsewhere).with("sites", homes.join(", ")))
}

/// Whether a topology domain of this key has nodes of both sites. Cost: a pass over their nodes.
fn has_domain_of(home: &Site, key: &str, site: &Site) -> bool {
    if key == HOSTNAME {
        return false;
    }
    let domains: BTreeSet<&str> = home.nodes().filter_map(|node| node.labels.get(key)).collect();
    let mut own = site.nodes().filter_map(|node| node.labels.get(key));
    own.any(|domain| domains.contains(domain))
}
