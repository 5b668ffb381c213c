//! When edgeward is not there, or cannot know: pods are created as they were written.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::patience::{BOUND, eventually};
use crate::scene::Scene;
use crate::untouched::undecided;
use crate::{fleet, workloads};

/// The webhook's `timeoutSeconds`.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Stopped, it costs each pod the webhook's timeout; dead, nothing. Every pod is created, unmodified, and bound.
pub(crate) fn frozen_and_killed(scene: &Scene<'_>) -> Result<()> {
    let mut edgeward = scene.edgeward(&fleet::overloaded())?;
    let _registered = scene.register_with_its_timeout(&edgeward.url, &edgeward.ca)?;

    edgeward.freeze()?;
    let took = created_unmodified(scene, "while-frozen")?;
    ensure!(took >= TIMEOUT, "created in {took:?}, without waiting for the answer");
    edgeward.thaw()?;
    eventually("it decides again", BOUND, || {
        let pod = scene.kubectl.dry_run(&workloads::pod("thawed", workloads::latency()))?;
        let decision = &pod["metadata"]["annotations"]["scheduling.example.io/decision"];
        ensure!(decision == "cloud", "{decision}");
        Ok(())
    })?;

    edgeward.kill()?;
    created_unmodified(scene, "while-dead")?;
    scene
        .kubectl
        .apply(&workloads::deployment("replicas", 3, workloads::latency()))?;
    let timeout = format!("--timeout={}s", BOUND.as_secs());
    let wait = ["wait", "--for=condition=Available", "deployment/replicas", &timeout];
    scene.kubectl.run(&wait, "")?;
    scene
        .kubectl
        .list("pods", "app=replicas")?
        .iter()
        .try_for_each(undecided)
}

/// A verdict that no node could satisfy would leave the pod Pending for ever; it is left to kube-scheduler instead.
pub(crate) fn edge_label_missing(scene: &Scene<'_>) -> Result<()> {
    let edgeward = scene.edgeward(&fleet::without_edge_labels())?;
    let _registered = scene.register(&edgeward.url, &edgeward.ca)?;

    let said = scene
        .kubectl
        .apply(&workloads::pod("unlabelled", workloads::latency()))?;
    let warned = said.warnings().iter().any(|warning| warning.contains("node.role/edge"));
    ensure!(warned, "no warning names the label: {said:?}");
    let creation = scene.creation_of(&scene.namespace, "unlabelled")?;
    ensure!(
        creation.annotation("reason") == Some("passthrough_edge_site_missing"),
        "{creation:?}"
    );
    bound_undecided(scene, "unlabelled")
}

/// Creates a pod that edgeward would have decided; returns how long its creation took.
fn created_unmodified(scene: &Scene<'_>, name: &str) -> Result<Duration> {
    let started = Instant::now();
    scene.kubectl.create(&workloads::pod(name, workloads::latency()))?;
    let took = started.elapsed();
    bound_undecided(scene, name)?;
    let creation = scene.creation_of(&scene.namespace, name)?;
    ensure!(creation.failed_open() == 1, "it did not fail open: {creation:?}");
    Ok(took)
}

fn bound_undecided(scene: &Scene<'_>, name: &str) -> Result<()> {
    let pod = eventually(&format!("{name} is bound"), BOUND, || {
        let pod = scene.kubectl.get("pod", name)?;
        ensure!(pod["spec"]["nodeName"].is_string(), "{}", pod["status"]);
        Ok(pod)
    })?;
    undecided(&pod).with_context(|| json!(pod).to_string())
}
