//! What a patch has made of a pod.

use edgeward_core::config::Config;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::documents;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The pod with these operations applied, by an implementation that is not ours.
///
/// # Panics
/// They do not apply.
pub(crate) fn applied(pod: &Value, operations: &impl Serialize) -> Value {
    let mut patched = pod.clone();
    try_apply(&mut patched, operations).unwrap_or_else(|error| panic!("{error}: {}", json!(operations)));
    patched
}

pub(crate) fn try_apply(pod: &mut Value, operations: &impl Serialize) -> Result<(), json_patch::PatchError> {
    let operations: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
    json_patch::patch(pod, &operations)
}

/// Whether Kubernetes could decode it as a pod, as far as a patch goes into it.
pub(crate) fn has_shape_of_pod(pod: &Value) -> bool {
    let is_map = |pointer| pod.pointer(pointer).is_none_or(|map| map.is_object() || map.is_null());
    let maps = [
        "/metadata",
        "/metadata/annotations",
        "/metadata/labels",
        "/spec/nodeSelector",
    ];
    pod["spec"].is_object() && maps.into_iter().all(is_map) && documents::is_of_objects(pod)
}

/// # Panics
/// A patch has changed what is not ours: anything but a selector, tolerations, gates, a RuntimeClass and our label that are added, and
/// annotations.
pub(crate) fn assert_only_adds(before: &Value, after: &Value, config: &Config) {
    assert_eq!(rest(before, config), rest(after, config), "what is not ours");

    let selectors = [before, after].map(|pod| strings(&pod["spec"]["nodeSelector"]));
    for (key, value) in &selectors[0] {
        assert_eq!(selectors[1].get(key), Some(value), "nodeSelector {key}");
    }
    let labels = [before, after].map(|pod| strings(&pod["metadata"]["labels"]).remove(&config.keys.placed));
    assert!(labels[0].is_none() || labels[0] == labels[1], "the label stays");
    let tolerations = [before, after].map(|pod| list(&pod["spec"]["tolerations"]));
    assert!(
        tolerations[1].starts_with(&tolerations[0]),
        "tolerations stay, in order"
    );
    let class = [before, after].map(|pod| pod["spec"]["runtimeClassName"].as_str().unwrap_or_default());
    assert!(class[0].is_empty() || class[0] == class[1], "the RuntimeClass stays");
    let cost = [before, after].map(|pod| strings(&pod["metadata"]["annotations"]).remove(DELETION_COST));
    assert!(cost[0].is_none() || cost[0] == cost[1], "the deletion cost stays");
}

/// The gates of a pod.
pub(crate) fn gates(pod: &Value) -> Vec<Value> {
    list(&pod["spec"]["schedulingGates"])
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// A map of strings, in which a null is the empty one.
fn strings(value: &Value) -> Map<String, Value> {
    let mut map = value.as_object().cloned().unwrap_or_default();
    map.values_mut()
        .filter(|value| value.is_null())
        .for_each(|value| *value = "".into());
    map
}

/// The pod without what a patch may add to or write.
fn rest(pod: &Value, config: &Config) -> Value {
    let mut pod = pod.clone();
    if let Some(spec) = pod["spec"].as_object_mut() {
        for field in ["nodeSelector", "tolerations", "schedulingGates", "runtimeClassName"] {
            spec.remove(field);
        }
    }
    // A parent that a patch had to create is no change.
    let mut annotations = strings(&pod["metadata"]["annotations"]);
    annotations.retain(|key, _| key != DELETION_COST && !config.keys.written().contains(&&**key));
    if pod["metadata"].is_null() {
        pod["metadata"] = json!({});
    }
    let mut labels = strings(&pod["metadata"]["labels"]);
    labels.remove(&config.keys.placed);
    pod["metadata"]["annotations"] = annotations.into();
    pod["metadata"]["labels"] = labels.into();
    pod
}
