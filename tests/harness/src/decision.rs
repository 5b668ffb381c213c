//! Reads decisions from pods under any domain, and what other objects say about them.

use serde_json::Value;

/// The value of an annotation that edgeward writes, such as `reason` or `site`.
pub fn annotation<'p>(pod: &'p Value, name: &str) -> Option<&'p str> {
    find(pod, "scheduling.", name)
}

/// The value of an annotation that edgeward reads, such as `class` or `priority`.
pub fn slo<'p>(pod: &'p Value, name: &str) -> Option<&'p str> {
    find(pod, "slo.", name)
}

fn find<'p>(pod: &'p Value, group: &str, name: &str) -> Option<&'p str> {
    let mut annotations = pod["metadata"]["annotations"].as_object()?.iter();
    annotations.find_map(|(key, value)| {
        let (prefix, found) = key.split_once('/')?;
        (prefix.starts_with(group) && found == name).then(|| value.as_str())?
    })
}

pub fn is_gated(pod: &Value) -> bool {
    let mut gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
    gates.any(|gate| {
        gate["name"]
            .as_str()
            .is_some_and(|name| name.ends_with("/awaiting-capacity"))
    })
}

/// Whether the object's status has this condition, as true.
pub fn has_condition(object: &Value, kind: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Whether a node is Ready, and kube-scheduler may know it.
pub fn is_usable(node: &Value) -> bool {
    has_condition(node, "Ready") && !node["spec"]["taints"].to_string().contains("not-ready")
}

pub fn is_unschedulable(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "Unschedulable")
}

/// Whether the pod is placed or gated.
pub fn is_decided(pod: &Value) -> bool {
    annotation(pod, "decision").is_some() || is_gated(pod)
}
