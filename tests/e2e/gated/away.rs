//! Pods that fit only in a cloud, while that cloud is away.

use edgeward_harness::prelude::*;

use super::{goes, pod};

/// A resource that only the cloud's node has.
const GPU: &str = "example.com/gpu";

fn gpu(fixture: &Fixture<'_>, name: &str) -> Value {
    let mut pod = pod(fixture, name, 100, 5);
    let resources = &mut pod["spec"]["containers"][0]["resources"];
    resources["requests"][GPU] = json!("1");
    resources["limits"] = json!({GPU: "1"});
    pod
}

fn cloud_node(nodes: &Nodes<'_>) -> Result<String> {
    let node = nodes.cloud_node("cloud-0")?;
    nodes.provide(&node, GPU, "16")?;
    Ok(node)
}

/// Waits until a pod like this would be decided for this reason.
pub(crate) fn would_be(fixture: &Fixture<'_>, pod: &Value, reason: &str) -> Result<()> {
    eventually(&format!("it would be decided: {reason}"), BOUND, || {
        let created = fixture.kubectl.dry_run(pod)?;
        ensure!(annotation(&created, "reason") == Some(reason), "{created}");
        Ok(())
    })
}

e2e! { "away::pod_for_absent_cloud_runs_on_its_return", Domain, pod_for_absent_cloud_runs_on_its_return }
/// A pod that fits only in a cloud is placed there at once while the cloud is away. It runs when the cloud is back.
fn pod_for_absent_cloud_runs_on_its_return(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "1")?;
    let node = cloud_node(&nodes)?;
    let (_edgeward, _registered) = fixture.registered_live(&nodes.config())?;
    would_be(fixture, &gpu(fixture, "dry"), "cloud_edge_no_capacity")?;

    nodes.stop(&node)?;
    would_be(fixture, &gpu(fixture, "dry"), "cloud_best_effort")?;
    let said = fixture.kubectl.apply(&gpu(fixture, "not-ready"))?;
    let warnings = said.warnings();
    let is_warned = warnings.iter().any(|warning| warning.contains("(node_not_ready)"));
    ensure!(is_warned, "{said:?}");
    nodes.start_again(&node)?;
    goes(fixture, &nodes, "not-ready", "cloud", "cloud_best_effort")?;

    nodes.remove(&node)?;
    would_be(fixture, &gpu(fixture, "dry"), "cloud_best_effort")?;
    fixture.kubectl.create(&gpu(fixture, "gone"))?;
    cloud_node(&nodes)?;
    goes(fixture, &nodes, "gone", "cloud", "cloud_best_effort")
}
