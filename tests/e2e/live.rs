//! The live view: decisions follow what happens in the cluster.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::patience::{BOUND, eventually};
use crate::scene::Scene;
use crate::stage::Stage;
use crate::workloads;

/// A pod that asks for so many millicores and has a minute.
fn pod(name: &str, millicores: u32) -> Value {
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"});
    let mut pod = workloads::pod(name, slo);
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{millicores}m"));
    pod
}

/// Waits until a pod of this size would be placed like this: `edge: edge_feasible_slo_met`.
fn would_be(scene: &Scene<'_>, millicores: u32, expected: &str) -> Result<()> {
    eventually(&format!("a pod of {millicores} m: {expected}"), BOUND, || {
        let pod = scene.kubectl.dry_run(&pod("asking", millicores))?;
        let outcome = outcome(&pod)?;
        ensure!(outcome == expected, "{outcome}");
        Ok(())
    })
}

/// Site and reason of a pod that was decided.
fn outcome(pod: &Value) -> Result<String> {
    let annotations = &pod["metadata"]["annotations"];
    let text = |name: &str| annotations[format!("scheduling.example.io/{name}")].as_str();
    let (site, reason) = text("site").zip(text("reason")).context("not decided")?;
    Ok(format!("{site}: {reason}"))
}

/// Pods fill the edge, the next goes to the cloud; they are deleted, and the edge has room again.
pub(crate) fn capacity_comes_and_goes(scene: &Scene<'_>) -> Result<()> {
    let stage = Stage::new(scene)?;
    stage.edge_node("edge-0", "1")?;
    stage.edge_node("edge-1", "1")?;
    stage.cloud_node("cloud-0")?;
    let edgeward = scene.live_edgeward(&stage.config()?)?;
    let _registered = scene.register(&edgeward.url, &edgeward.ca)?;

    would_be(scene, 900, "edge: edge_feasible_slo_met")?;
    for name in ["first", "second"] {
        let created = scene.kubectl.create(&pod(name, 900))?;
        ensure!(
            outcome(&created)? == "edge: edge_feasible_slo_met",
            "{name}: {}",
            outcome(&created)?
        );
        eventually("it runs", BOUND, || {
            let pod = scene.kubectl.get("pod", name)?;
            ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]);
            Ok(())
        })?;
    }
    // 100 m are left on each node: a sum over nodes is not a fit.
    would_be(scene, 150, "cloud: cloud_edge_no_capacity")?;
    would_be(scene, 100, "edge: edge_feasible_slo_met")?;
    scene.kubectl.run(&["delete", "pod", "first", "--wait=false"], "")?;
    would_be(scene, 900, "edge: edge_feasible_slo_met")
}
