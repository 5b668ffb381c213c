//! Free resources on the site's nodes, and measured free resources of the site as a whole.

use serde_json::{Map, Value};

use crate::model::workload::Workload;
use crate::placement::filters::Case;
use crate::placement::room::Taken;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};

/// The most resources that a refusal names. A pod may request any number, and each costs a pass over the nodes.
pub(super) const MAX_NAMED_RESOURCES: usize = 16;

pub(super) fn no_room(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    if found.usable.is_empty() {
        return None;
    }
    if found.fitting.is_empty() {
        return Some(refuse_nodes(case, found));
    }
    refuse_measured(case, found)
}

/// The refusal of a site where no usable node fits the pod. Cost: a pass over the usable nodes for each requested resource.
fn refuse_nodes(case: &Case<'_, '_>, found: &Assessment<'_>) -> Refusal {
    let (workload, room) = (case.workload, case.room);
    let usable: Vec<_> = found.usable.iter().map(|node| (*node, room.taken(node))).collect();
    let largest_free = |name: &str| {
        let free = usable.iter().map(|(node, taken)| taken.free(name, node));
        free.max().unwrap_or(0)
    };
    let reserved = |name: &str| {
        let reserved = usable
            .iter()
            .map(|(node, taken): &(_, Taken<'_>)| taken.get(name).saturating_sub(room.used(node).get(name)));
        reserved.fold(0, i64::saturating_add)
    };
    let code = match room.is_claimed(&workload.request, found.usable.iter().copied()) {
        true => RefusalCode::Claimed,
        false => RefusalCode::NoRoom,
    };
    let refusal = Refusal::new(code)
        .with("usableNodes", usable.len())
        .with("request", asked(workload, |name| request(workload, name)))
        .with("largestFree", asked(workload, largest_free));
    let excluded = usable
        .iter()
        .filter(|(_, taken)| workload.request.is_kept_from(&taken.amounts));
    let refusal = match excluded.count() {
        0 => refusal,
        excluded => refusal.with("excludedNodes", excluded),
    };
    match reserved("pods") {
        0 => refusal,
        _ => refusal.with("reserved", asked(workload, reserved)),
    }
}

/// The refusal of a site whose measured free resources are less than the pod requests.
fn refuse_measured(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let free = case.room.free(found.site);
    let request = &case.workload.request;
    let bounds = [
        ("cpu", request.cpu.0, free.cpu.map(|cpu| cpu.0)),
        ("memory", request.memory.0, free.memory.map(|memory| memory.0)),
    ];
    let exceeds =
        |(_, request, free): &(&str, i64, Option<i64>)| *request > 0 && free.is_some_and(|free| *request > free);
    if !bounds.iter().any(exceeds) {
        return None;
    }
    let (mut requests, mut measured) = (Map::new(), Map::new());
    for (name, request, free) in bounds {
        if let Some(free) = free {
            requests.insert(name.to_owned(), request.into());
            measured.insert(name.to_owned(), free.into());
        }
    }
    let refusal = Refusal::new(RefusalCode::NoRoom).with("request", requests);
    Some(refusal.with("measuredFree", measured))
}

/// The pod's request for one resource; `pods` is its pod slot.
pub(super) fn request(workload: &Workload<'_>, name: &str) -> i64 {
    match name {
        "pods" => 1,
        name => workload.request.get(name),
    }
}

/// Calls `number` for `pods`, the pod's slot, and for each resource that the pod requests, up to [`MAX_NAMED_RESOURCES`]
/// names.
pub(super) fn asked(workload: &Workload<'_>, number: impl Fn(&str) -> i64) -> Map<String, Value> {
    let resources = workload.request.named().map(|(name, _)| name);
    let names = std::iter::once("pods").chain(resources).take(MAX_NAMED_RESOURCES);
    names.map(|name| (name.to_owned(), number(name).into())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::placement::decide::tests::{fleet, pod, with};
    use crate::placement::filters::tests::said;

    #[test]
    fn a_node_and_the_measured_site_have_room() {
        let nodes = |free: u32| {
            format!(
                r#"no_room {{"largestFree":{{"cpu":{free},"memory":8589934592,"pods":105}},"request":{{"cpu":500,"memory":268435456,"pods":1}},"usableNodes":1}}"#
            )
        };
        let slots = |used: u32| with(fleet(0), "/nodes/0/used", json!({"pods": used}));
        let full = r#"no_room {"largestFree":{"cpu":4000,"memory":8589934592,"pods":0},"request":{"cpu":500,"memory":268435456,"pods":1},"usableNodes":1}"#;
        let measured = |free: Value| with(fleet(0), "/sites/0/measuredFree", free);
        let by_measurement = r#"no_room {"measuredFree":{"cpu":499},"request":{"cpu":500}}"#;
        let unusable = with(fleet(4000), "/nodes/0/ready", json!(false));
        for (fleet, expected) in [
            (fleet(3500), String::new()),
            (fleet(3501), nodes(499)),
            (slots(109), String::new()),
            (slots(110), full.to_owned()),
            (measured(json!({"cpu": "500m"})), String::new()),
            (measured(json!({"cpu": "499m"})), by_measurement.to_owned()),
            // The filter of nodes has refused it already.
            (unusable, String::new()),
        ] {
            assert_eq!(said(no_room, "edge", &fleet, &pod(json!({}))), expected, "{fleet}");
        }
    }

    #[test]
    fn a_refusal_names_at_most_16_resources() {
        let gpus: Map<String, Value> = (0..100).map(|i| (format!("example.com/gpu-{i}"), json!("1"))).collect();
        let greedy = with(
            pod(json!({})),
            "/spec/containers/0/resources/requests",
            gpus.clone().into(),
        );
        let mut fleet = fleet(0);
        fleet["nodes"][0]["allocatable"]
            .as_object_mut()
            .unwrap()
            .extend(gpus.clone());
        fleet["nodes"][0]["used"] = gpus.into();
        let refusal = said(no_room, "edge", &fleet, &greedy);
        // In the request, and in what is free.
        assert_eq!(
            refusal.matches("example.com/gpu-").count(),
            2 * (MAX_NAMED_RESOURCES - 1),
            "{refusal}"
        );
    }
}
