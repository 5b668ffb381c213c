//! Whether the pod may leave the edge: by its SLO, by the configuration, and by what ties it to its cluster.

use crate::model::node::Node;
use crate::model::site::SiteKind;
use crate::model::snapshot::Site;
use crate::model::ties::Tie;
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};
use crate::resources::BY_CLAIM;

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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::placement::decide::tests::{fleet, pod, with};
    use crate::placement::filters::tests::said;

    #[test]
    fn what_ties_a_pod_to_its_cluster() {
        let with_spec = |field: &str, value: Value| with(pod(json!({})), &format!("/spec/{field}"), value);
        let claim = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]);
        let refused = |tie: &str| format!(r#"not_offloadable {{"{tie}":1}}"#);
        for (site, pod, expected) in [
            ("cloud", pod(json!({})), String::new()),
            (
                "cloud",
                pod(json!({"offloadAllowed": "false"})),
                "not_offloadable".to_owned(),
            ),
            ("edge", pod(json!({"offloadAllowed": "false"})), String::new()),
            ("cloud", with_spec("hostNetwork", json!(true)), refused("hostNetwork")),
            ("cloud", with_spec("hostPID", json!(true)), refused("hostPID")),
            ("cloud", with_spec("hostIPC", json!(true)), refused("hostIPC")),
            (
                "cloud",
                with_spec("resourceClaims", json!([{"name": "gpu"}])),
                refused("resourceClaims"),
            ),
            (
                "cloud",
                with_spec("volumes", json!([{"name": "h", "hostPath": {"path": "/"}}])),
                refused("hostPath"),
            ),
            ("cloud", with_spec("volumes", claim), refused("persistentVolumeClaim")),
            ("edge", with_spec("hostNetwork", json!(true)), String::new()),
        ] {
            assert_eq!(said(not_offloadable, site, &fleet(0), &pod), expected, "{site} {pod}");
        }
        let supporting = with(fleet(0), "/sites/1/supports", json!(["hostNetwork"]));
        let host_network = with_spec("hostNetwork", json!(true));
        assert_eq!(said(not_offloadable, "cloud", &supporting, &host_network), "");
    }

    #[test]
    fn an_extended_resource_that_a_device_class_serves_is_a_tie() {
        let asking = |name: &str, amount: u32| {
            let requests = json!({"cpu": "500m", "example.com/other": 0, name: amount});
            with(pod(json!({})), "/spec/containers/0/resources/requests", requests)
        };
        let gpu = "example.com/gpu";
        let having = |edge: i64, cloud: i64| {
            let mut fleet = fleet(0);
            for (node, amount) in [(0, edge), (1, cloud)] {
                fleet["nodes"][node]["allocatable"][gpu] = json!(amount);
            }
            fleet
        };
        let tied = r#"not_offloadable {"resourceClaims":1}"#;
        let without_cloud = with(having(BY_CLAIM, 0), "/nodes", json!([having(BY_CLAIM, 0)["nodes"][0]]));
        for (fleet, pod, expected) in [
            (having(BY_CLAIM, BY_CLAIM), asking(gpu, 1), tied),
            (without_cloud, asking(gpu, 1), tied),
            (having(BY_CLAIM, BY_CLAIM), asking(gpu, 0), ""),
            (having(BY_CLAIM, BY_CLAIM), pod(json!({})), ""),
            // By a device plugin.
            (having(BY_CLAIM, 4), asking(gpu, 1), ""),
            (having(4, BY_CLAIM), asking(gpu, 1), tied),
            (having(4, 0), asking(gpu, 1), ""),
            (having(0, 0), asking(gpu, 1), ""),
            (having(0, 0), asking("deviceclass.resource.kubernetes.io/gpu", 1), tied),
        ] {
            assert_eq!(said(not_offloadable, "cloud", &fleet, &pod), expected, "{fleet} {pod}");
        }
        let supporting = with(
            having(BY_CLAIM, BY_CLAIM),
            "/sites/1/supports",
            json!(["resourceClaims"]),
        );
        assert_eq!(said(not_offloadable, "cloud", &supporting, &asking(gpu, 1)), "");
    }
}
