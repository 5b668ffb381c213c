//! Whether the pod may leave the edge: its SLO, the configuration, and what ties it to the cluster it is created in.

use crate::model::site::SiteKind;
use crate::model::ties::{Tie, Ties};
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

pub(super) fn not_offloadable(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let (workload, definition) = (case.workload, &found.site.definition);
    if found.site.kind() == SiteKind::Edge {
        return None;
    }
    let mut ties = workload.ties.beyond(definition.supports);
    if !workload.volume_claims.is_empty()
        && workload
            .volume_claims
            .iter()
            .all(|claim| claim.is_served_by(definition))
    {
        ties = ties.beyond(Ties::from_iter([Tie::PersistentVolumeClaim]));
    }
    if case.config.may_offload(case.slo()) && ties.is_empty() {
        return None;
    }
    let refusal = Refusal::new(RefusalCode::NotOffloadable);
    Some(ties.iter().fold(refusal, |refusal, tie| refusal.with(tie.as_str(), 1)))
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
}
