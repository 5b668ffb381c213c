//! The benchmark's own nodes, run by kwok.

use edgeward_harness::control_plane::node;
use edgeward_harness::decision::is_usable;
use edgeward_harness::prelude::*;

const LABEL: &str = "edgeward.test/fleet";

/// Creates many edge nodes and one virtual node with the same total capacity. Returns once all of them are Ready.
pub(crate) fn create(fixture: &Fixture<'_>, edge_nodes: usize) -> Result<()> {
    let edge = json!({"node.role/edge": "true", LABEL: "true"});
    let room = json!({"cpu": "64", "memory": "256Gi", "pods": "500"});
    let mut nodes: Vec<Value> = (0..edge_nodes)
        .map(|i| node(&edge_node(i), edge.clone(), json!([]), room.clone()))
        .collect();
    nodes.push(node(
        "fleet-virtual",
        json!({"node.role/cloud": "true", LABEL: "true"}),
        json!([{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}]),
        json!({"cpu": "12800", "memory": "50Ti", "pods": "100000"}),
    ));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": nodes});
    fixture.kubectl.run(&["create", "-f", "-"], &list.to_string())?;
    eventually("the nodes are Ready", 4 * BOUND, || {
        let nodes = fixture.kubectl.list("nodes", LABEL)?;
        let ready = nodes.iter().filter(|node| is_usable(node)).count();
        ensure!(ready == edge_nodes + 1, "{ready} of {}", nodes.len());
        Ok(())
    })
}

pub(crate) fn edge_node(number: usize) -> String {
    format!("fleet-{number}")
}
