//! If edgeward is down or cannot know enough, pods are created as they were written.

use edgeward_harness::prelude::*;

use crate::placement::fleet;
use crate::placement::untouched::undecided;

e2e! { "failure::frozen_or_killed_edgeward_fails_open", Nodes, frozen_or_killed_edgeward_fails_open }
/// A stopped edgeward costs each pod the webhook's timeout, a killed one nothing. Every pod is created unmodified and bound.
fn frozen_or_killed_edgeward_fails_open(fixture: &Fixture<'_>) -> Result<()> {
    let mut edgeward = fixture.edgeward(&fleet::overloaded())?;
    let _registered = fixture.register_with_its_timeout(&edgeward.url, &edgeward.ca)?;

    edgeward.freeze()?;
    created_unmodified(fixture, "while-frozen")?;
    failed_open_by(fixture, &edgeward.url, "context deadline exceeded")?;
    edgeward.thaw()?;
    eventually("it decides again", BOUND, || {
        let pod = fixture
            .kubectl
            .dry_run(&workloads::pod("thawed", workloads::latency()))?;
        let decision = &pod["metadata"]["annotations"]["scheduling.example.io/decision"];
        ensure!(decision == "cloud", "{decision}");
        Ok(())
    })?;

    edgeward.kill()?;
    created_unmodified(fixture, "while-dead")?;
    failed_open_by(fixture, &edgeward.url, "connection refused")?;
    fixture
        .kubectl
        .apply(&workloads::deployment("replicas", 3, workloads::latency()))?;
    let timeout = format!("--timeout={}s", BOUND.as_secs());
    let wait = ["wait", "--for=condition=Available", "deployment/replicas", &timeout];
    fixture.kubectl.run(&wait, "")?;
    fixture
        .kubectl
        .list("pods", "app=replicas")?
        .iter()
        .try_for_each(undecided)
}

e2e! { "failure::missing_edge_label_leaves_pod_undecided", Nodes, missing_edge_label_leaves_pod_undecided }
/// If no node could satisfy a placement, it would leave the pod Pending forever. edgeward leaves such a pod to kube-scheduler.
fn missing_edge_label_leaves_pod_undecided(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward(&fleet::without_edge_labels())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;

    let said = fixture
        .kubectl
        .apply(&workloads::pod("unlabelled", workloads::latency()))?;
    let warned = said.warnings().iter().any(|warning| warning.contains("node.role/edge"));
    ensure!(warned, "no warning names the label: {said:?}");
    let creation = fixture.creation_of(&fixture.namespace, "unlabelled")?;
    ensure!(
        creation.annotation("reason") == Some("passthrough_edge_site_missing"),
        "{creation:?}"
    );
    bound_undecided(fixture, "unlabelled")
}

/// Creates a pod that edgeward would have decided. Fails if it was changed.
fn created_unmodified(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    fixture.kubectl.create(&workloads::pod(name, workloads::latency()))?;
    bound_undecided(fixture, name)?;
    let creation = fixture.creation_of(&fixture.namespace, name)?;
    ensure!(creation.failed_open() == 1, "it did not fail open: {creation:?}");
    Ok(())
}

/// Fails unless the API server logged these words about the last failed call.
fn failed_open_by(fixture: &Fixture<'_>, url: &str, words: &str) -> Result<()> {
    eventually(&format!("a call fails with {words:?}"), BOUND, || {
        let failed = fixture.failed_open(url)?;
        let is_said = failed.last().is_some_and(|line| line.contains(words));
        if !is_said {
            // A kept connection that ends gives another message.
            fixture
                .kubectl
                .dry_run(&workloads::pod("again", workloads::latency()))?;
        }
        ensure!(is_said, "{failed:?}");
        Ok(())
    })
}

fn bound_undecided(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    let pod = eventually(&format!("{name} is bound"), BOUND, || {
        let pod = fixture.kubectl.get("pod", name)?;
        ensure!(pod["spec"]["nodeName"].is_string(), "{}", pod["status"]);
        Ok(pod)
    })?;
    undecided(&pod).with_context(|| json!(pod).to_string())
}
