//! The live view: decisions follow what happens in the cluster.

pub(crate) mod connection;
pub(crate) mod controllers;
pub(crate) mod nodes;
pub(crate) mod restart;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::decision::annotation;
use crate::patience::{BOUND, eventually};
use crate::scene::Scene;
use crate::stage::Stage;
use crate::workloads;

/// A pod that asks for so many millicores and has a minute.
fn pod(scene: &Scene<'_>, name: &str, millicores: u32) -> Value {
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"});
    let mut pod = workloads::pod(name, slo);
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{millicores}m"));
    scene.in_its_domain(pod)
}

/// Outcomes of an edge that has room, and of one that has none and a cloud that has.
const EDGE: &str = "edge: edge_feasible_slo_met";
const CLOUD: &str = "cloud: cloud_edge_no_capacity";

/// Waits until a pod of this size would be placed like this.
fn would_be(scene: &Scene<'_>, millicores: u32, expected: &str) -> Result<()> {
    would_be_within(scene, millicores, expected, BOUND)
}

fn would_be_within(scene: &Scene<'_>, millicores: u32, expected: &str, bound: Duration) -> Result<()> {
    eventually(&format!("a pod of {millicores} m: {expected}"), bound, || {
        is_now(scene, &pod(scene, "asking", millicores), expected)
    })
}

/// Fails if this pod would not be placed like this now.
fn is_now(scene: &Scene<'_>, pod: &Value, expected: &str) -> Result<()> {
    // What was cut on its way is passed over.
    let outcome = eventually("it is decided", BOUND, || outcome(&scene.kubectl.dry_run(pod)?))?;
    ensure!(outcome == expected, "{outcome}");
    Ok(())
}

/// Creates a pod of this size and waits until it runs.
fn fill(scene: &Scene<'_>, name: &str, millicores: u32, expected: &str) -> Result<()> {
    let created = outcome(&scene.kubectl.create(&pod(scene, name, millicores))?)?;
    ensure!(created == expected, "{name}: {created}");
    runs(scene, name)
}

/// Waits until this pod runs.
fn runs(scene: &Scene<'_>, name: &str) -> Result<()> {
    eventually(&format!("{name} runs"), BOUND, || {
        let pod = scene.kubectl.get("pod", name)?;
        ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]);
        Ok(())
    })
}

/// Site and reason of a pod that was decided.
fn outcome(pod: &Value) -> Result<String> {
    let (site, reason) = annotation(pod, "site")
        .zip(annotation(pod, "reason"))
        .context("not decided")?;
    Ok(format!("{site}: {reason}"))
}

/// Pods fill the edge, the next goes to the cloud; they are deleted, and the edge has room again.
pub(crate) fn capacity_comes_and_goes(scene: &Scene<'_>) -> Result<()> {
    let stage = Stage::new(scene)?;
    stage.edge_node("edge-0", "1")?;
    stage.edge_node("edge-1", "1")?;
    stage.cloud_node("cloud-0")?;
    let edgeward = scene.live_edgeward(&stage.config())?;
    let _registered = scene.register(&edgeward.url, &edgeward.ca)?;

    would_be(scene, 900, EDGE)?;
    fill(scene, "first", 900, EDGE)?;
    fill(scene, "second", 900, EDGE)?;
    // 100 m are left on each node: a sum over nodes is not a fit.
    would_be(scene, 150, CLOUD)?;
    would_be(scene, 100, EDGE)?;
    scene.kubectl.run(&["delete", "pod", "first", "--wait=false"], "")?;
    would_be(scene, 900, EDGE)
}
