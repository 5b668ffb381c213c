//! Room in the cluster behind the site, from what its scheduler reports about pods that are Pending there.

use serde_json::{Map, Value};

use crate::model::remote_room::FullFrom;
use crate::placement::filters::Case;
use crate::placement::filters::room::MAX_NAMED_RESOURCES;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

pub(super) fn full_behind_nodes(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let refuses = |full: &&FullFrom| full.bound.refuses(&case.workload.request);
    let full = found.site.full.iter().find(refuses)?;
    let amounts = full.bound.amounts().take(MAX_NAMED_RESOURCES);
    let refused: Map<String, Value> = amounts.map(|(name, amount)| (name.to_owned(), amount.into())).collect();
    let refusal = Refusal::new(RefusalCode::RemoteFull).with("refused", refused);
    Some(refusal.with("waitingPods", full.pods))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::placement::decide::tests::{fleet, pod, with};
    use crate::placement::filters::tests::said;

    #[test]
    fn pods_that_ask_for_as_much_as_was_refused() {
        for (refused, expected) in [
            (
                json!({"cpu": "500m"}),
                r#"remote_full {"refused":{"cpu":500},"waitingPods":1}"#,
            ),
            (json!({"cpu": "501m"}), ""),
            (json!({"cpu": "100m", "memory": "257Mi"}), ""),
            (
                json!({"cpu": "100m", "memory": "256Mi"}),
                r#"remote_full {"refused":{"cpu":100,"memory":268435456},"waitingPods":1}"#,
            ),
            (
                json!({"pods": 1}),
                r#"remote_full {"refused":{"pods":1},"waitingPods":1}"#,
            ),
            (json!({"nvidia.com/gpu": 1}), ""),
        ] {
            let fleet: Value = with(fleet(0), "/sites/1/full", json!([{"refused": refused}]));
            assert_eq!(
                said(full_behind_nodes, "cloud", &fleet, &pod(json!({}))),
                expected,
                "{refused}"
            );
        }
    }
}
