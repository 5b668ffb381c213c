//! Gates that stay, because the API server refuses their removal.

use edgeward_harness::prelude::*;
use edgeward_harness::registration::Registration;

use crate::gated::{fill, goes, is_gated_for, pod};
use crate::leader::events;

e2e! { "gate::forbidden_gate_removal_is_reported", Domain, 79, forbidden_gate_removal_is_reported }
/// A cluster policy forbids the removal of gates. The refusal is counted, and an Event on the pod shows the API server's
/// message. Without the policy, the pod is released.
fn forbidden_gate_removal_is_reported(fixture: &Fixture<'_>) -> Result<()> {
    const WORDS: &str = "gates are not removed on Fridays";
    let (nodes, _) = Nodes::without_wan(fixture)?;
    let (edgeward, _registered) = fixture.registered_live(&nodes.gating(&for_long()))?;
    fill(fixture, &nodes)?;
    fixture.kubectl.create(&pod(fixture, "waiting", 500, 5))?;
    is_gated_for(fixture, "waiting", "held_no_capacity")?;

    let policy = forbid_removal(fixture, WORDS, "true")?;
    forbids(fixture, "waiting", WORDS)?;
    nodes.wan.reopen()?;
    let event = eventually("the refusal is told", BOUND, || {
        events::one(fixture, "waiting", "ReleaseRefused")
    })?;
    let note = event["note"].as_str().unwrap_or_default();
    ensure!(event["type"] == "Warning" && note.contains(WORDS), "{event:#}");
    let refused = [("reason", "cloud_edge_no_capacity"), ("result", "refused")];
    eventually("it is tried again", BOUND, || {
        ensure!(edgeward.count("edgeward_gated_pod_changes_total", &refused)? >= 2);
        Ok(())
    })?;
    ensure!(is_gated(&fixture.kubectl.get("pod", "waiting")?), "it is free");
    drop(policy);
    goes(fixture, &nodes, "waiting", "cloud", "cloud_edge_no_capacity")?;
    events::one(fixture, "waiting", "ReleaseRefused").map(drop)
}

/// Waits until the policy with these words keeps the gate of this pod.
pub(crate) fn forbids(fixture: &Fixture<'_>, pod: &str, words: &str) -> Result<()> {
    let remove = json!([{"op": "remove", "path": "/spec/schedulingGates"}]).to_string();
    let args = ["patch", "pod", pod, "--type=json", "--dry-run=server", "-p", &remove];
    eventually("the policy is in force", BOUND, || {
        let said = fixture.kubectl.attempt(&args, "")?;
        ensure!(said.stderr.contains(words), "{said:?}");
        Ok(())
    })
}

/// A policy that forbids the removal of gates with these words, and its binding. It applies to the test's pods for which the CEL
/// expression is true.
pub(crate) fn forbid_removal(fixture: &Fixture<'_>, words: &str, applies: &str) -> Result<[Registration; 2]> {
    let name = &fixture.namespace;
    let gates = |object: &str| format!("{object}.spec.?schedulingGates.orValue([]).size()");
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}]);
    let register = |kind: &str, spec: Value| {
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        Registration::create(&fixture.kubectl, &object)
    };
    let validation = json!({
        "expression": format!("!({applies}) || {} >= {}", gates("object"), gates("oldObject")),
        "message": words,
    });
    let policy = register(
        "ValidatingAdmissionPolicy",
        json!({"matchConstraints": {"resourceRules": rules}, "validations": [validation]}),
    )?;
    let binding = register(
        "ValidatingAdmissionPolicyBinding",
        json!({
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}},
        }),
    )?;
    Ok([binding, policy])
}
