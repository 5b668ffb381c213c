//! A second webhook that injects a sidecar. Configurations run in the order of their names.

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::scene::Scene;
use crate::{fleet, hook, workloads};

/// The injector runs after edgeward, so the API server shows edgeward the pod again; the decision stands.
pub(crate) fn after_a_later_injector(scene: &Scene<'_>) -> Result<()> {
    let rounds = create_with_injector(scene, "zzz-mesh")?;
    ensure!(rounds == [(0, true), (1, false)], "called in rounds {rounds:?}");
    Ok(())
}

/// The injector runs before edgeward, which decides once, on the pod that has the sidecar.
pub(crate) fn not_after_an_earlier_injector(scene: &Scene<'_>) -> Result<()> {
    let rounds = create_with_injector(scene, "mesh")?;
    ensure!(rounds == [(0, true)], "called in rounds {rounds:?}");
    Ok(())
}

/// Creates a pod that both webhooks change; returns the rounds in which edgeward was asked, and changed something.
fn create_with_injector(scene: &Scene<'_>, name: &str) -> Result<Vec<(u32, bool)>> {
    let edgeward = scene.edgeward(&fleet::overloaded())?;
    let ours = scene.register(&edgeward.url, &edgeward.ca)?;
    let injector = scene.hook(hook::injects_a_sidecar)?;
    let _injecting = scene.register_as(name, &[&scene.namespace], &injector.url, &injector.ca)?;

    let stored = scene.kubectl.create(&workloads::pod("meshed", workloads::latency()))?;
    let containers = stored["spec"]["containers"].as_array().map(Vec::len);
    ensure!(containers == Some(2), "{stored:#}");
    let annotations = &stored["metadata"]["annotations"];
    ensure!(
        annotations["scheduling.example.io/decision"] == "cloud",
        "{annotations}"
    );

    // A later injector was shown the first decision; it is the one that was stored.
    let is_ours = |request: &&Value| request["object"]["metadata"]["name"] == "meshed";
    if let Some(shown) = injector.seen().iter().find(is_ours)
        && let Some(id) = shown["object"]["metadata"]["annotations"].get("scheduling.example.io/decision-id")
    {
        ensure!(
            annotations["scheduling.example.io/decision-id"] == *id,
            "{id} became {annotations}"
        );
    }
    let creation = scene.creation_of(&scene.namespace, "meshed")?;
    ensure!(creation.annotation("decision") == Some("cloud"), "{creation:?}");
    Ok(creation.rounds(&ours.name))
}
