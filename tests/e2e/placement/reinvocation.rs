//! When the API server calls edgeward again after another webhook has changed a pod. Configurations run in the order of their
//! names.

use edgeward_harness::prelude::*;

use crate::placement::fleet;

/// The explanation's time in the cloud: 0.5 ms for each of the pod's 200 millicores, plus 20, plus twice the RTT of 25.
const ETA_ALONE: u64 = 170;
/// The sidecar requests 50 millicores more.
const ETA_WITH_SIDECAR: u64 = 195;

e2e! { "reinvocation::placed_pod_is_not_reviewed_again", Nodes, placed_pod_is_not_reviewed_again }
/// The injector runs after edgeward. The pod is already placed, so the API server calls edgeward once.
fn placed_pod_is_not_reviewed_again(fixture: &Fixture<'_>) -> Result<()> {
    ensure!(create_with_injector(fixture, "zzz-mesh", &meshed())? == Asked::once(ETA_ALONE));
    Ok(())
}

e2e! { "reinvocation::token_mount_triggers_no_second_review", Nodes, token_mount_triggers_no_second_review }
/// The injector runs before edgeward, which decides the pod with its sidecar. After a webhook's change, the API server runs its
/// own plugins a second time, and mounts the service account's token into the sidecar too. This change makes it call
/// reinvocable webhooks again, but not for placed pods.
fn token_mount_triggers_no_second_review(fixture: &Fixture<'_>) -> Result<()> {
    ensure!(create_with_injector(fixture, "mesh", &meshed())? == Asked::once(ETA_WITH_SIDECAR));
    Ok(())
}

e2e! { "reinvocation::prelabelled_pod_keeps_first_decision", Nodes, prelabelled_pod_keeps_first_decision }
/// A pod that already carries the label of placed pods is reviewed again. The decision stays.
fn prelabelled_pod_keeps_first_decision(fixture: &Fixture<'_>) -> Result<()> {
    let mut copy = meshed();
    copy["metadata"]["labels"] = json!({"scheduling.example.io/placed": "true"});
    copy["metadata"]["annotations"]["scheduling.example.io/decision-id"] = json!("of another pod");
    let asked = create_with_injector(fixture, "zzz-mesh", &copy)?;
    let expected = Asked {
        rounds: vec![(0, true), (1, false)],
        repeated: 1,
        eta: ETA_ALONE,
    };
    ensure!(asked == expected, "{asked:?}");
    Ok(())
}

e2e! { "reinvocation::slo_added_by_later_webhook_is_decided", Nodes, slo_added_by_later_webhook_is_decided }
/// A pod without an SLO passes through. It is placed when a later webhook has added an SLO.
fn slo_added_by_later_webhook_is_decided(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward(&fleet::overloaded())?;
    let (namespace, kubectl) = fixture.namespace_with_policies("policies")?;
    let namespaces = [namespace.as_str()];
    let ours = fixture.register_as("zz-edgeward", &namespaces, &edgeward.url, &edgeward.ca)?;
    let author = fixture.test_webhook(|_| {
        let class = "/metadata/annotations/slo.example.io~1class";
        vec![json!({"op": "add", "path": class, "value": "batch"})]
    })?;
    let _writing = fixture.register_as("zzz-slo", &namespaces, &author.url, &author.ca)?;
    let stored = kubectl.create(&workloads::pod("silent", json!({"team": "a"})))?;
    ensure!(fixture.creation_of(&namespace, "silent")?.rounds(&ours.name) == [(0, false), (1, true)]);
    let decision = &stored["metadata"]["annotations"]["scheduling.example.io/decision"];
    ensure!(decision == "cloud", "{stored:#}");
    Ok(())
}

fn meshed() -> Value {
    workloads::pod("meshed", workloads::latency())
}

#[derive(Debug, PartialEq, Eq)]
struct Asked {
    /// The rounds in which the API server called edgeward, each with whether that changed the pod.
    rounds: Vec<(u32, bool)>,
    /// How often edgeward recognised the pod as already decided.
    repeated: u64,
    /// Time in the cloud in ms, from the stored explanation.
    eta: u64,
}

impl Asked {
    fn once(eta: u64) -> Self {
        Self {
            rounds: vec![(0, true)],
            repeated: 0,
            eta,
        }
    }
}

/// Creates a pod that both webhooks change. `name` is the injector's.
fn create_with_injector(fixture: &Fixture<'_>, name: &str, pod: &Value) -> Result<Asked> {
    let edgeward = fixture.edgeward(&fleet::overloaded())?;
    let ours = fixture.register(&edgeward.url, &edgeward.ca)?;
    let injector = fixture.test_webhook(injects_a_sidecar)?;
    let _injecting = fixture.register_as(name, &[&fixture.namespace], &injector.url, &injector.ca)?;
    let repeated = || edgeward.count("edgeward_reviews_total", &[("reason", "passthrough_reinvocation")]);
    let before = repeated()?;

    let stored = fixture.kubectl.create(pod)?;
    let containers = stored["spec"]["containers"].as_array().map(Vec::len);
    ensure!(containers == Some(2), "{stored:#}");
    let annotation = |name: &str| stored["metadata"]["annotations"][format!("scheduling.example.io/{name}")].as_str();
    ensure!(annotation("decision") == Some("cloud"), "{stored:#}");
    ensure!(annotation("reason") == Some("cloud_edge_no_capacity"), "{stored:#}");
    ensure!(
        stored["spec"]["nodeSelector"] == json!({"node.role/cloud": "true"}),
        "{stored:#}"
    );

    let label = &stored["metadata"]["labels"]["scheduling.example.io/placed"];
    ensure!(label == "true", "{stored:#}");
    // An injector that ran later saw the first decision, which must be the stored one.
    for shown in injector
        .seen()
        .iter()
        .filter(|request| request["object"]["metadata"]["name"] == "meshed")
    {
        let id = shown["object"]["metadata"]["annotations"]["scheduling.example.io/decision-id"].as_str();
        ensure!(
            id.is_none() || id == annotation("decision-id"),
            "{id:?} became {:?}",
            annotation("decision-id")
        );
    }
    let creation = fixture.creation_of(&fixture.namespace, "meshed")?;

    ensure!(creation.annotation("decision") == Some("cloud"), "{creation:?}");

    let explanation: Value = serde_json::from_str(annotation("explain").context("no explanation")?)?;
    Ok(Asked {
        rounds: creation.rounds(&ours.name),
        repeated: repeated()? - before,
        eta: explanation["cloud"]["eta"]
            .as_u64()
            .with_context(|| explanation.to_string())?,
    })
}

fn injects_a_sidecar(pod: &Value) -> Vec<Value> {
    let containers = pod["spec"]["containers"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    if containers.iter().any(|container| container["name"] == "mesh") {
        return Vec::new();
    }
    let sidecar = json!({
        "name": "mesh",
        "image": "registry.example/mesh:1",
        "resources": {"requests": {"cpu": "50m", "memory": "32Mi"}},
    });
    vec![json!({"op": "add", "path": "/spec/containers/-", "value": sidecar})]
}
