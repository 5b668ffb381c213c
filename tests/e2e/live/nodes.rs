//! Nodes come, go and change.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{CLOUD, EDGE, fill, would_be};
use crate::scene::Scene;
use crate::stage::Stage;

/// Whatever keeps pods from the only edge node that is large enough, the next goes to the cloud; when it is over, the
/// next goes to the edge.
pub(crate) fn nodes_change(scene: &Scene<'_>) -> Result<()> {
    let stage = Stage::new(scene)?;
    let node = stage.edge_node("edge-0", "1")?;
    stage.edge_node("edge-1", "100m")?;
    stage.cloud_node("cloud-0")?;
    let edgeward = scene.live_edgeward(&stage.config())?;
    let _registered = scene.register(&edgeward.url, &edgeward.ca)?;
    would_be(scene, 900, EDGE)?;

    let kubectl = |args: &[&str]| scene.kubectl.run(args, "").map(drop);
    kubectl(&["cordon", &node])?;
    would_be(scene, 900, CLOUD)?;
    kubectl(&["uncordon", &node])?;
    would_be(scene, 900, EDGE)?;

    stage.stop(&node)?;
    would_be(scene, 900, CLOUD)?;
    let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    let ready = scene.kubectl.run(&["get", "node", &node, "-o", ready], "")?.stdout;
    ensure!(ready == "False", "Ready is {ready}");
    stage.start_again(&node)?;
    would_be(scene, 900, EDGE)?;

    kubectl(&["taint", "node", &node, "full=yes:NoSchedule"])?;
    would_be(scene, 900, CLOUD)?;
    kubectl(&["taint", "node", &node, "full=yes:NoSchedule-"])?;
    would_be(scene, 900, EDGE)?;

    let label = stage.edge_label();
    let (key, _) = label.split_once('=').unwrap_or_default();
    kubectl(&["label", "node", &node, &format!("{key}-")])?;
    would_be(scene, 900, CLOUD)?;
    kubectl(&["label", "node", &node, &label])?;
    would_be(scene, 900, EDGE)?;

    stage.remove(&node)?;
    would_be(scene, 900, CLOUD)?;
    stage.edge_node("edge-0", "1")?;
    would_be(scene, 900, EDGE)?;

    would_be(scene, 1500, CLOUD)?;
    stage.resize(&node, "2")?;
    would_be(scene, 1500, EDGE)?;
    stage.resize(&node, "1")?;
    would_be(scene, 1500, CLOUD)
}

/// The edge is full. While the cloud's node, or the way to it, cannot be used, pods stay at the edge and say why.
pub(crate) fn cloud_node_states(scene: &Scene<'_>) -> Result<()> {
    const MISSING: &str = "edge: edge_cloud_site_missing";
    let stage = Stage::new(scene)?;
    stage.edge_node("edge-0", "1")?;
    let node = stage.cloud_node("cloud-0")?;
    let mut config = stage.config();
    config["probing"] = json!({"period": "1s"});
    let edgeward = scene.live_edgeward(&config)?;
    let _registered = scene.register(&edgeward.url, &edgeward.ca)?;
    fill(scene, "fills", 900, EDGE)?;
    would_be(scene, 500, CLOUD)?;

    scene.kubectl.run(&["cordon", &node], "")?;
    would_be(scene, 500, MISSING)?;
    scene.kubectl.run(&["uncordon", &node], "")?;
    would_be(scene, 500, CLOUD)?;

    stage.stop(&node)?;
    would_be(scene, 500, MISSING)?;
    stage.start_again(&node)?;
    would_be(scene, 500, CLOUD)?;

    stage.remove(&node)?;
    would_be(scene, 500, MISSING)?;
    stage.cloud_node("cloud-0")?;
    would_be(scene, 500, CLOUD)?;

    stage.wan.close();
    would_be(scene, 500, "edge: edge_wan_unreachable")?;
    stage.wan.reopen()?;
    would_be(scene, 500, CLOUD)
}
