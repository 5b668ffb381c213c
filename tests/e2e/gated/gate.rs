//! Gates that stay, because the API server refuses their removal or because they belong to another domain.

use edgeward_harness::prelude::*;

use crate::gated::{fill, goes, is_gated_for, pod};
use crate::leader::events;

e2e! { "gate::may_not_be_removed", Domain, 79, may_not_be_removed }
/// A cluster policy forbids the removal of gates. The refusal is counted, and an Event on the pod shows the API server's
/// message. Without the policy, the pod is released.
fn may_not_be_removed(fixture: &Fixture<'_>) -> Result<()> {
    const WORDS: &str = "gates are not removed on Fridays";
    let (nodes, _) = Nodes::without_wan(fixture)?;
    let (edgeward, _registered) = fixture.registered_live(&nodes.gating(&for_long()))?;
    fill(fixture, &nodes)?;
    fixture.kubectl.create(&pod(fixture, "waiting", 500, 5))?;
    is_gated_for(fixture, "waiting", "held_no_capacity")?;

    let policy = Policy::forbid(fixture, WORDS)?;
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
        let said = fixture.kubectl.attempt(&args, "")?;
        ensure!(said.stderr.contains(WORDS), "{said:?}");
        Ok(())
    })?;
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

e2e! { "gate::placement_is_refused", Domain, 94, placement_is_refused }
/// A cluster policy forbids the toleration that a cloud needs. A pod that has reached its limit loses its gate without a
/// placement. Otherwise it would keep its room forever.
fn placement_is_refused(fixture: &Fixture<'_>) -> Result<()> {
    const WORDS: &str = "tolerations are not for you";
    let (nodes, _) = Nodes::without_wan(fixture)?;
    let (edgeward, _registered) = fixture.registered_live(&nodes.gating(&json!({"batch": "20s"})))?;
    fill(fixture, &nodes)?;
    let _policy = Policy::forbid_fewer_or_more(fixture, "tolerations", "<=", WORDS)?;
    let more = json!({"key": "any", "operator": "Exists"});
    let add = json!([{"op": "add", "path": "/spec/tolerations/-", "value": more}]).to_string();
    let args = ["patch", "pod", "filler", "--type=json", "--dry-run=server", "-p", &add];
    eventually("the policy is in force", BOUND, || {
        let said = fixture.kubectl.attempt(&args, "")?;
        ensure!(said.stderr.contains(WORDS), "{said:?}");
        Ok(())
    })?;
    fixture.kubectl.create(&pod(fixture, "waiting", 500, 5))?;
    is_gated_for(fixture, "waiting", "held_no_capacity")?;
    nodes.wan.reopen()?;
    eventually("its gate is removed", BOUND, || {
        let pod = fixture.kubectl.get("pod", "waiting")?;
        ensure!(!is_gated(&pod), "{pod:#}");
        ensure!(pod["spec"].get("nodeSelector").is_none(), "{pod:#}");
        Ok(())
    })?;
    let refused = [("reason", "cloud_edge_no_capacity"), ("result", "refused")];
    ensure!(edgeward.count("edgeward_gated_pod_changes_total", &refused)? >= 3);
    let event = events::one(fixture, "waiting", "ReleaseRefused")?;
    ensure!(event["note"].as_str().unwrap_or_default().contains(WORDS), "{event:#}");
    Ok(())
}

/// A policy that forbids changes of a list in the test's pods.
struct Policy<'s, 'run>(&'s Fixture<'run>);

impl<'s, 'run> Policy<'s, 'run> {
    /// Forbids the removal of gates.
    fn forbid(fixture: &'s Fixture<'run>, words: &str) -> Result<Self> {
        Self::forbid_fewer_or_more(fixture, "schedulingGates", ">=", words)
    }

    /// Requires that an update keeps the length of the list in this comparison with the old one.
    fn forbid_fewer_or_more(fixture: &'s Fixture<'run>, list: &str, comparison: &str, words: &str) -> Result<Self> {
        let name = &fixture.namespace;
        let entries = |object: &str| format!("{object}.spec.?{list}.orValue([]).size()");
        let rules =
            json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}]);
        fixture.kubectl.create(&json!({
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
        let policy = Self(fixture);
        fixture.kubectl.create(&json!({
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

e2e! { "gate::of_another_domain", Cluster, of_another_domain }
/// The domain changes while a pod is gated. The replica with the new domain logs the pod and leaves it gated. When the domain
/// is changed back, the pod is released.
fn of_another_domain(fixture: &Fixture<'_>) -> Result<()> {
    let (nodes, _) = Nodes::without_wan(fixture)?;
    let config = nodes.gating(&for_long());
    let mut edgeward = fixture.live_edgeward(&config)?;
    {
        let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
        fill(fixture, &nodes)?;
        fixture.kubectl.create(&pod(fixture, "waiting", 500, 5))?;
        is_gated_for(fixture, "waiting", "held_no_capacity")?;
    }

    edgeward.terminate()?;
    let mut changed: Value = config;
    changed["domain"] = json!("acme.dev");
    let renamed = fixture.live_edgeward_as("renamed", &changed)?;
    const SAID: &str =
        "pods are behind the gate of another domain, and edgeward does not release them; was the domain changed?";
    eventually("the log says so", BOUND, || {
        let said = renamed.said(SAID);
        ensure!(said.iter().any(|line| line["gate_domain"] == "example.io"), "{said:?}");
        Ok(())
    })?;
    ensure!(is_gated(&fixture.kubectl.get("pod", "waiting")?), "it is free");

    edgeward.kill()?;
    renamed.terminate()?;
    edgeward.start_again()?;
    eventually("the first leads again", BOUND, || edgeward.leads())?;
    nodes.wan.reopen()?;
    goes(fixture, &nodes, "waiting", "cloud", "cloud_edge_no_capacity")
}
