//! Pods that require traits of their node.

use edgeward_harness::prelude::*;

use super::{goes, is_gated_for, pod};
use crate::leader::events;

const LABEL: &str = "traits.edgeward.io/SecureRuntime";

fn requiring(fixture: &Fixture<'_>, name: &str, traits: &str) -> Value {
    let mut pod = pod(fixture, name, 100, 5);
    pod["metadata"]["annotations"][fixture.key("slo.example.io/traits")] = json!(traits);
    // The cloud's node is younger than a minute and may still get its labels.
    pod["metadata"]["annotations"][fixture.key("slo.example.io/offloadAllowed")] = json!("false");
    pod
}

e2e! { "traits::pod_runs_only_on_node_with_trait", Domain, pod_runs_only_on_node_with_trait }
/// One edge node of five has the trait, and kube-scheduler finds it, because the placement selects the trait. A pod whose trait
/// no node has is gated, with the trait's name, until a node has it. After its limit it waits at the edge and never runs
/// without the trait.
fn pod_runs_only_on_node_with_trait(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    let edge: Vec<_> = (0..5)
        .map(|at| nodes.edge_node(&format!("edge-{at}"), "2"))
        .collect::<Result<_>>()?;
    nodes.cloud_node("cloud-0")?;
    let kubectl = &fixture.kubectl;
    let label = |node: &str, label: &str| {
        kubectl
            .run(&["label", "node", node, &format!("{label}=true")], "")
            .map(drop)
    };
    label(&edge[3], LABEL)?;
    let config = nodes.gating(&json!({"latency": "4s", "throughput": "4s", "batch": "1m"}));
    let (_edgeward, _registered) = fixture.registered_live(&config)?;

    for name in ["one", "two", "three"] {
        kubectl.create(&requiring(fixture, name, "SecureRuntime, GreenEnergy?"))?;
        goes(fixture, &nodes, name, "edge", "edge_feasible_slo_met")?;
        let pod = kubectl.get("pod", name)?;
        ensure!(
            pod["spec"]["nodeName"] == edge[3] && pod["spec"]["nodeSelector"][LABEL] == "true",
            "{pod}"
        );
    }

    // No node has this trait. The pod's class waits for four seconds.
    let mut urgent = requiring(fixture, "urgent", "Attestation");
    urgent["metadata"]["annotations"][fixture.key("slo.example.io/class")] = json!("latency");
    kubectl.create(&urgent)?;
    let event = eventually("that it is gated is told", BOUND, || {
        events::one(fixture, "urgent", "Gated")
    })?;
    let note = event["note"].as_str().unwrap_or_default();
    ensure!(note.starts_with("gated: ") && note.contains("missing_trait"), "{note}");
    eventually("its limit is over", BOUND, || {
        let pod = kubectl.get("pod", "urgent")?;
        ensure!(annotation(&pod, "reason") == Some("released_timeout"), "{pod}");
        ensure!(
            pod["spec"]["nodeSelector"]["traits.edgeward.io/Attestation"] == "true",
            "{pod}"
        );
        ensure!(pod["spec"]["nodeName"].is_null(), "{pod}");
        Ok(())
    })?;
    // A pod that waits longer is released once a node has the trait. The first pod is then bound there too.
    kubectl.create(&requiring(fixture, "patient", "Attestation"))?;
    is_gated_for(fixture, "patient", "held_no_capacity")?;
    label(&edge[1], "traits.edgeward.io/Attestation")?;
    goes(fixture, &nodes, "patient", "edge", "edge_feasible_slo_met")?;
    for name in ["patient", "urgent"] {
        eventually("it is bound where its trait is", BOUND, || {
            let pod = kubectl.get("pod", name)?;
            ensure!(pod["spec"]["nodeName"] == edge[1], "{pod}");
            Ok(())
        })?;
    }

    let refused = kubectl.attempt(
        &["create", "-f", "-"],
        &requiring(fixture, "typo", "Secure Runtime").to_string(),
    )?;
    ensure!(
        !refused.succeeded && refused.stderr.contains("is not a list of at most 16 traits"),
        "{refused:?}"
    );
    Ok(())
}
