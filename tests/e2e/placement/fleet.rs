//! Fleet files for edgeward's view in a test. The nodes are the control plane's, but their load is invented, so that tests need
//! not fill real nodes.

use edgeward_harness::control_plane::{CLOUD_NODE, EDGE_NODES};
use serde_json::{Value, json};

pub(crate) fn relaxed() -> Value {
    fleet("500m", 0, &good_wan())
}

pub(crate) fn overloaded() -> Value {
    fleet("3950m", 40, &good_wan())
}

/// The edge is full and misses the deadline, and the WAN is bad as well.
pub(crate) fn overloaded_behind_a_bad_wan() -> Value {
    fleet(
        "3950m",
        40,
        &json!({"reachable": true, "rttMs": 260, "lossPct": 6.5, "ageSeconds": 2}),
    )
}

pub(crate) fn without_edge_labels() -> Value {
    let mut fleet = relaxed();
    for node in fleet["nodes"].as_array_mut().into_iter().flatten() {
        if let Some(labels) = node["labels"].as_object_mut() {
            labels.remove("node.role/edge");
        }
    }
    fleet
}

fn good_wan() -> Value {
    json!({"reachable": true, "rttMs": 25, "lossPct": 0.1, "ageSeconds": 2})
}

fn fleet(used_cpu: &str, waiting: u32, wan: &Value) -> Value {
    let queues = json!([{"class": "latency", "waiting": waiting}, {"class": "batch", "waiting": waiting}]);
    let mut nodes: Vec<Value> = EDGE_NODES.iter().map(|name| edge_node(name, used_cpu)).collect();
    nodes.push(json!({
        "name": CLOUD_NODE,
        "labels": {"node.role/cloud": "true", "kubernetes.io/hostname": CLOUD_NODE},
        "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}],
        "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "500"},
    }));
    json!({
        "ageSeconds": 0,
        "sites": [
            {"name": "edge", "kind": "edge", "queues": queues},
            {"name": "cloud", "kind": "cloud", "wan": wan},
        ],
        "nodes": nodes,
    })
}

fn edge_node(name: &str, used_cpu: &str) -> Value {
    json!({
        "name": name,
        "labels": {"node.role/edge": "true", "kubernetes.io/hostname": name},
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "used": {"cpu": used_cpu, "memory": "1Gi", "pods": "5"},
    })
}
