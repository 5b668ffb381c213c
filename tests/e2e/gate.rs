//! A gate that stays: because the API server does not let us remove it, or because it is that of another domain.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::decision::is_gated;
use crate::events;
use crate::held::{fill, for_long, goes, holding, is_held, pod};
use crate::leader::leads;
use crate::patience::{BOUND, eventually};
use crate::scene::Scene;
use crate::stage::Stage;

/// A policy of the cluster forbids that gates are removed. The refusal is counted, and told on the pod in the API server's words;
/// once the policy is gone, the pod is released.
pub(crate) fn may_not_be_removed(scene: &Scene<'_>) -> Result<()> {
    const WORDS: &str = "gates are not removed on Fridays";
    let stage = Stage::new(scene)?;
    stage.edge_node("edge-0", "1")?;
    stage.cloud_node("cloud-0")?;
    stage.wan.close();
    let edgeward = scene.live_edgeward(&holding(&stage, &for_long()))?;
    let _registered = scene.register(&edgeward.url, &edgeward.ca)?;
    fill(scene, &stage)?;
    scene.kubectl.create(&pod(scene, "waiting", 500, 5))?;
    is_held(scene, "waiting", "held_no_capacity")?;

    let policy = Policy::forbid(scene, WORDS)?;
    let remove = json!([{"op": "remove", "path": "/spec/schedulingGates"}]).to_string();
    let args = [
        "patch",
        "pod",
        "waiting",
        "--type=json",
        "--dry-run=server",
        "-p",
        &remove,
    ];
    eventually("the policy is in force", BOUND, || {
        let said = scene.kubectl.attempt(&args, "")?;
        ensure!(said.stderr.contains(WORDS), "{said:?}");
        Ok(())
    })?;
    stage.wan.reopen()?;
    let event = eventually("the refusal is told", BOUND, || {
        events::one(scene, "waiting", "ReleaseRefused")
    })?;
    let note = event["note"].as_str().unwrap_or_default();
    ensure!(event["type"] == "Warning" && note.contains(WORDS), "{event:#}");
    let refused = [("reason", "released_cloud"), ("result", "refused")];
    eventually("it is tried again", BOUND, || {
        let count = edgeward.count("edgeward_held_pod_changes_total", &refused)?;
        ensure!(count >= 2, "{count}");
        Ok(())
    })?;
    ensure!(is_gated(&scene.kubectl.get("pod", "waiting")?), "it is free");
    drop(policy);
    goes(scene, &stage, "waiting", "cloud", "released_cloud")?;
    events::one(scene, "waiting", "ReleaseRefused").map(drop)
}

/// A policy of the cluster forbids the toleration that a cloud needs. A pod that has waited for as long as it may is let go
/// without a placement, or it would keep its room for ever.
pub(crate) fn placement_is_refused(scene: &Scene<'_>) -> Result<()> {
    const WORDS: &str = "tolerations are not for you";
    let stage = Stage::new(scene)?;
    stage.edge_node("edge-0", "1")?;
    stage.cloud_node("cloud-0")?;
    stage.wan.close();
    let edgeward = scene.live_edgeward(&holding(&stage, &json!({"batch": "20s"})))?;
    let _registered = scene.register(&edgeward.url, &edgeward.ca)?;
    fill(scene, &stage)?;
    let _policy = Policy::forbid_fewer_or_more(scene, "tolerations", "<=", WORDS)?;
    let more = json!({"key": "any", "operator": "Exists"});
    let add = json!([{"op": "add", "path": "/spec/tolerations/-", "value": more}]).to_string();
    let args = ["patch", "pod", "filler", "--type=json", "--dry-run=server", "-p", &add];
    eventually("the policy is in force", BOUND, || {
        let said = scene.kubectl.attempt(&args, "")?;
        ensure!(said.stderr.contains(WORDS), "{said:?}");
        Ok(())
    })?;
    scene.kubectl.create(&pod(scene, "waiting", 500, 5))?;
    is_held(scene, "waiting", "held_no_capacity")?;
    stage.wan.reopen()?;
    eventually("it is let go", BOUND, || {
        let pod = scene.kubectl.get("pod", "waiting")?;
        ensure!(!is_gated(&pod), "{pod:#}");
        ensure!(pod["spec"].get("nodeSelector").is_none(), "{pod:#}");
        Ok(())
    })?;
    let refused = [("reason", "released_cloud"), ("result", "refused")];
    let count = edgeward.count("edgeward_held_pod_changes_total", &refused)?;
    ensure!(count >= 3, "{count}");
    let event = events::one(scene, "waiting", "ReleaseRefused")?;
    ensure!(event["note"].as_str().unwrap_or_default().contains(WORDS), "{event:#}");
    Ok(())
}

/// A policy that forbids to change a list of the trial's pods.
struct Policy<'s, 'run>(&'s Scene<'run>);

impl<'s, 'run> Policy<'s, 'run> {
    /// Gates may not be removed.
    fn forbid(scene: &'s Scene<'run>, words: &str) -> Result<Self> {
        Self::forbid_fewer_or_more(scene, "schedulingGates", ">=", words)
    }

    /// An update must leave the list at so many entries, compared with those before.
    fn forbid_fewer_or_more(scene: &'s Scene<'run>, list: &str, comparison: &str, words: &str) -> Result<Self> {
        let name = &scene.namespace;
        let entries = |object: &str| format!("{object}.spec.?{list}.orValue([]).size()");
        let rules =
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}]);
        scene.kubectl.create(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": rules},
                "validations": [{
                    "expression": format!("{} {comparison} {}", entries("object"), entries("oldObject")),
                    "message": words,
                }],
            },
        }))?;
        let policy = Self(scene);
        scene.kubectl.create(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}},
            },
        }))?;
        Ok(policy)
    }
}

impl Drop for Policy<'_, '_> {
    fn drop(&mut self) {
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            let deleted = self
                .0
                .kubectl
                .run(&["delete", kind, "--ignore-not-found", &self.0.namespace], "");
            if let Err(error) = deleted {
                eprintln!("{error:#}");
            }
        }
    }
}

/// The domain is changed while a pod is held: whoever has the new one names the fault in metrics and on the pod, and leaves it
/// alone. Changed back, the pod is released.
pub(crate) fn of_another_domain(scene: &Scene<'_>) -> Result<()> {
    let stage = Stage::new(scene)?;
    stage.edge_node("edge-0", "1")?;
    stage.cloud_node("cloud-0")?;
    stage.wan.close();
    let config = holding(&stage, &for_long());
    let mut edgeward = scene.live_edgeward(&config)?;
    {
        let _registered = scene.register(&edgeward.url, &edgeward.ca)?;
        fill(scene, &stage)?;
        scene.kubectl.create(&pod(scene, "waiting", 500, 5))?;
        is_held(scene, "waiting", "held_no_capacity")?;
    }
    let faults = [("path", "domain")];
    let count = edgeward.count("edgeward_config_faults", &faults)?;
    ensure!(count == 0, "{count}");

    edgeward.terminate()?;
    let mut changed: Value = config;
    changed["domain"] = json!("acme.dev");
    let renamed = scene.live_edgeward_as("renamed", &changed)?;
    eventually("the fault is counted", BOUND, || {
        let count = renamed.count("edgeward_config_faults", &faults)?;
        ensure!(count == 1, "{count}");
        Ok(())
    })?;
    let event = eventually("it is told", BOUND, || {
        events::one(scene, "waiting", "GateOfAnotherDomain")
    })?;
    let note = event["note"].as_str().unwrap_or_default();
    for part in ["scheduling.example.io/awaiting-capacity", "the domain acme.dev"] {
        ensure!(event["type"] == "Warning" && note.contains(part), "{event:#}");
    }
    const SAID: &str = "pods are behind the gate of another domain, and nobody releases them; was the domain changed?";
    let said = renamed
        .said(SAID)
        .into_iter()
        .next()
        .context("the log does not say so")?;
    ensure!(said["gate_domain"] == "example.io" && said["pods"] == 1, "{said}");
    ensure!(is_gated(&scene.kubectl.get("pod", "waiting")?), "it is free");

    edgeward.kill()?;
    renamed.terminate()?;
    edgeward.start_again()?;
    eventually("the first leads again", BOUND, || leads(&edgeward))?;
    stage.wan.reopen()?;
    goes(scene, &stage, "waiting", "cloud", "released_cloud")
}
