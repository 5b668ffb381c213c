//! Whether Liqo offloads the pod's namespace to the site. `wan` checks the site's ForeignCluster.

use crate::model::liqo::{OffloadingPhase, VIRTUAL_NODE};
use crate::model::site::SiteKind;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};
use edgeward_kube::node::Node;

pub(super) fn not_offloaded(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let (namespace, site) = (&case.workload.namespace, found.site);
    let is_virtual = |node: &Node| node.labels.contain([VIRTUAL_NODE]);
    let has_only_real_nodes = || !site.nodes.is_empty() && !site.nodes().any(is_virtual);
    let snapshot = case.room.snapshot;
    if snapshot.is_remote(namespace) && (site.kind() == SiteKind::Edge || has_only_real_nodes()) {
        return Some(Refusal::new(RefusalCode::NamespaceNotOffloaded).with("strategy", "Remote"));
    }
    let phase = snapshot.offloading(namespace, site)?;
    let code = match phase {
        OffloadingPhase::Accepted => return None,
        phase if phase.is_passing() => RefusalCode::OffloadingInProgress,
        _ => RefusalCode::NamespaceNotOffloaded,
    };
    Some(Refusal::new(code).with("phase", phase.as_str()))
}
