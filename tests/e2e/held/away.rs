//! Pods that only a cloud could hold, while it is away.

use anyhow::{Context, Result, ensure};
use edgeward_harness::decision::{annotation, is_gated};
use edgeward_harness::fixture::Fixture;
use edgeward_harness::nodes::Nodes;
use edgeward_harness::wait::{BOUND, eventually};
use serde_json::{Value, json};

use super::{fill, goes, is_held, pod};
use crate::leader::events;

/// What only the cloud's node has.
const GPU: &str = "example.com/gpu";

/// A pod that asks for one.
fn gpu(fixture: &Fixture<'_>, name: &str) -> Value {
    let mut pod = pod(fixture, name, 100, 5);
    let resources = &mut pod["spec"]["containers"][0]["resources"];
    resources["requests"][GPU] = json!("1");
    resources["limits"] = json!({GPU: "1"});
    pod
}

/// A pod of that kind, which says itself that it is for the cloud.
fn pinned(fixture: &Fixture<'_>, nodes: &Nodes<'_>, name: &str) -> Value {
    let mut pod = gpu(fixture, name);
    pod["spec"]["nodeSelector"] = nodes.selector("cloud");
    pod
}

/// Creates the cloud's node.
fn cloud_node(nodes: &Nodes<'_>) -> Result<String> {
    let node = nodes.cloud_node("cloud-0")?;
    nodes.provide(&node, GPU, "16")?;
    Ok(node)
}

/// Waits until a pod like this would be decided for this reason.
pub(crate) fn would_be(fixture: &Fixture<'_>, pod: &Value, reason: &str) -> Result<()> {
    eventually(&format!("it would be decided: {reason}"), BOUND, || {
        let created = fixture.kubectl.dry_run(pod)?;
        ensure!(annotation(&created, "reason") == Some(reason), "{created}");
        Ok(())
    })
}

/// Creates a pod while the cloud is away for this cause, and waits until it is held for that, and an Event says so.
fn waits(fixture: &Fixture<'_>, name: &str, cause: &str) -> Result<()> {
    would_be(fixture, &gpu(fixture, name), "held_site_away")?;
    fixture.kubectl.create(&gpu(fixture, name))?;
    is_held(fixture, name, "held_site_away")?;
    let event = eventually("that it is held is told", BOUND, || events::one(fixture, name, "Held"))?;
    let note = event["note"].as_str().unwrap_or_default();
    let expected = format!("held until a site is back: cloud ({cause})");
    ensure!(note.starts_with(&expected), "{note}");
    Ok(())
}

/// A pod that an edge node could hold is released at the limit of its class; after it, this other pod is still gated.
fn still_held_past_the_limit(fixture: &Fixture<'_>, limited: &str, held: &str) -> Result<()> {
    fixture.kubectl.create(&pod(fixture, limited, 500, 5))?;
    eventually("the limit of its class is over", BOUND, || {
        let pod = fixture.kubectl.get("pod", limited)?;
        ensure!(annotation(&pod, "reason") == Some("released_timeout"), "{pod}");
        Ok(())
    })?;
    let pod = fixture.kubectl.get("pod", held)?;
    ensure!(
        is_gated(&pod) && annotation(&pod, "reason") == Some("held_site_away"),
        "{pod}"
    );
    Ok(())
}

/// While a cloud that has nodes is away, a pod that only it could hold is gated past its limit and runs when the cloud is back;
/// while it has none, until its limit. A pod that names the cloud itself is placed there at once.
pub(crate) fn until_the_site_is_back(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "1")?;
    let node = cloud_node(&nodes)?;
    // A cloud that is away for longer than that is not waited for, so a pod must come before, however busy the machine is.
    let mut config = nodes.holding(&json!({"latency": "10s", "throughput": "10s", "batch": "10s"}));
    config["probing"] = json!({"period": "1s"});
    let mut edgeward = fixture.live_edgeward(&config)?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    fill(fixture, &nodes)?;
    fixture.kubectl.create(&gpu(fixture, "first"))?;
    goes(fixture, &nodes, "first", "cloud", "cloud_edge_no_capacity")?;

    nodes.wan.close();
    waits(fixture, "wan-down", "WAN unreachable")?;
    still_held_past_the_limit(fixture, "limited", "wan-down")?;
    nodes.wan.reopen()?;
    goes(fixture, &nodes, "wan-down", "cloud", "released_cloud")?;

    nodes.stop(&node)?;
    waits(fixture, "not-ready", "node NotReady")?;
    nodes.start_again(&node)?;
    goes(fixture, &nodes, "not-ready", "cloud", "released_cloud")?;

    nodes.remove(&node)?;
    waits(fixture, "gone", "no node")?;
    let said = fixture.kubectl.apply(&pinned(fixture, &nodes, "pinned"))?;
    let warned = said
        .warnings()
        .iter()
        .any(|warning| warning.contains("cloud (no node)"));
    ensure!(warned, "{said:?}");
    let placed = fixture.kubectl.get("pod", "pinned")?;
    let reason = annotation(&placed, "reason");
    ensure!(reason == Some("cloud_pinned_by_pod") && !is_gated(&placed), "{placed}");
    let tolerations = placed["spec"]["tolerations"].as_array().context("tolerations")?;
    ensure!(
        tolerations.iter().any(|toleration| toleration["key"] == "cloud"),
        "{placed}"
    );

    // Nothing is known of what a cloud without nodes could hold: that is waited for until the limit of the class, also across a
    // restart.
    edgeward.kill()?;
    edgeward.start_again()?;
    eventually("the limit of its class is over", BOUND, || {
        let pod = fixture.kubectl.get("pod", "gone")?;
        ensure!(annotation(&pod, "reason") == Some("released_timeout"), "{pod}");
        ensure!(annotation(&pod, "site") == Some("edge"), "{pod}");
        Ok(())
    })?;

    cloud_node(&nodes)?;
    goes(fixture, &nodes, "pinned", "cloud", "cloud_pinned_by_pod")
}

/// Where nothing may be held, a pod that only a cloud could hold is placed there at once, and runs when the cloud is back.
pub(crate) fn nothing_is_held(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "1")?;
    let node = cloud_node(&nodes)?;
    let edgeward = fixture.live_edgeward(&nodes.config())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    would_be(fixture, &gpu(fixture, "dry"), "cloud_edge_no_capacity")?;
    nodes.stop(&node)?;
    would_be(fixture, &gpu(fixture, "dry"), "cloud_best_effort")?;
    fixture.kubectl.create(&gpu(fixture, "pending"))?;
    nodes.start_again(&node)?;
    goes(fixture, &nodes, "pending", "cloud", "cloud_best_effort")
}
