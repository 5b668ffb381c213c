//! Inputs for tests, also of other crates.

use edgeward_decision::keys::Keys;
use edgeward_decision::pod::Pod;
use serde_json::{Value, json};

use crate::pod_record::{self, PodRecord};

/// Returns the record that a watch keeps of a pod.
#[allow(clippy::unwrap_used)]
pub fn record(pod: &Value, keys: &Keys) -> PodRecord {
    let text = pod.to_string();
    pod_record::record(&Pod::from_json(&text).unwrap(), keys)
        .unwrap()
        .unwrap()
}

/// A Ready node of this site, as the API server shows it.
pub fn node(name: &str, site: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {format!("node.role/{site}"): "true"}},
        "spec": {"taints": if site == "cloud" { json!([{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}]) } else { json!([]) }},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}
