//! Whether Liqo offloads the pod's namespace to the site.

use crate::model::liqo::{OffloadingPhase, VIRTUAL_NODE};
use crate::model::node::Node;
use crate::model::site::SiteKind;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::placement::decide::tests::{fleet, pod, with};
    use crate::placement::filters::tests::said;

    #[test]
    fn each_phase_of_the_offloading() {
        let label = |name: &str| json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": name});
        let fleet = |strategy: &str, phase: &str| {
            let fleet = with(fleet(0), "/sites/1/nodeSelector", label("c"));
            let fleet = with(fleet, "/nodes/1/labels", label("c"));
            let shop = json!({"strategy": strategy, "phase": "SomeFailed", "clusters": {"c": phase}});
            with(fleet, "/liqo", json!({"namespaces": {"shop": shop}}))
        };
        let local = "LocalAndRemote";
        for (site, strategy, phase, expected) in [
            ("cloud", local, "Accepted", ""),
            (
                "cloud",
                local,
                "InProgress",
                r#"offloading_in_progress {"phase":"InProgress"}"#,
            ),
            (
                "cloud",
                local,
                "SomeFailed",
                r#"namespace_not_offloaded {"phase":"SomeFailed"}"#,
            ),
            ("edge", local, "Accepted", ""),
            (
                "edge",
                "Remote",
                "Accepted",
                r#"namespace_not_offloaded {"strategy":"Remote"}"#,
            ),
            ("cloud", "Remote", "Accepted", ""),
        ] {
            let refusal = said(not_offloaded, site, &fleet(strategy, phase), &pod(json!({})));
            assert_eq!(refusal, expected, "{site} {strategy} {phase}");
        }
        assert_eq!(said(not_offloaded, "cloud", &without_liqo(), &pod(json!({}))), "");
    }

    fn without_liqo() -> Value {
        fleet(0)
    }
}
