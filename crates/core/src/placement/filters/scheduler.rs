//! Sites where a pod of the same controller is Pending for something that edgeward does not evaluate.

use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

pub(super) fn closed_to_controller(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let controller = case.workload.controller.as_deref()?;
    let waiting = found.site.closed.get(&case.workload.namespace, controller)?;
    Some(Refusal::new(RefusalCode::ClosedByScheduler).with("waitingPods", *waiting))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::placement::decide::tests::{fleet, pod, with};
    use crate::placement::filters::tests::said;

    #[test]
    fn pods_of_the_controller_are_refused() {
        let closed = |namespace: &str| json!({namespace: {"rs-1": 2}});
        let of = |uid: &str| -> Value {
            let owners = json!([{"kind": "ReplicaSet", "uid": uid, "controller": true}]);
            with(pod(json!({})), "/metadata/ownerReferences", owners)
        };
        for (namespace, pod, expected) in [
            ("shop", of("rs-1"), r#"closed_by_scheduler {"waitingPods":2}"#),
            ("shop", of("rs-2"), ""),
            ("elsewhere", of("rs-1"), ""),
            ("shop", pod(json!({})), ""),
        ] {
            let fleet = with(fleet(0), "/sites/0/closed", closed(namespace));
            assert_eq!(
                said(closed_to_controller, "edge", &fleet, &pod),
                expected,
                "{namespace} {pod}"
            );
        }
    }
}
