//! Events on pods, as `kubectl get events` shows them.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::leader::leads;
use crate::patience::{BOUND, eventually};
use crate::scene::Scene;
use crate::stage::Stage;
use crate::workloads;

/// With two replicas, after a handover and after a restart, each decision is told once; what stays at the edge is told only on
/// demand.
pub(crate) fn told_once(scene: &Scene<'_>) -> Result<()> {
    let stage = Stage::new(scene)?;
    stage.edge_node("edge-0", "1")?;
    stage.cloud_node("cloud-0")?;
    let config = stage.config();
    let start = |name: &str| scene.live_edgeward_as(name, &config);
    let leader = start("leader")?;
    eventually("it leads", BOUND, || leads(&leader))?;
    let mut other = start("other")?;
    let _registered = scene.register(&other.url, &other.ca)?;

    create(scene, "near", 900, "edge_feasible_slo_met")?;
    create(scene, "far", 900, "cloud_edge_no_capacity")?;
    let event = eventually("the cloud is told", BOUND, || one(scene, "far", "PlacedCloud"))?;
    ensure!(event["type"] == "Normal" && event["action"] == "Place", "{event:#}");
    let note = event["note"].as_str().unwrap_or_default();
    for part in [
        "sent to site cloud",
        "cloud_edge_no_capacity",
        "deadline 60000 ms",
        "cpu 900m",
        "ETA",
        "RTT",
        "no_room",
    ] {
        ensure!(note.contains(part), "no {part}: {note}");
    }
    let described = scene.kubectl.run(&["describe", "pod", "far"], "")?.stdout;
    ensure!(described.contains("PlacedCloud"), "{described}");

    let slo = json!({"slo.example.io/class": "latency", "slo.example.io/priority": "11"});
    scene.kubectl.create(&workloads::pod("wrong", slo))?;
    let event = eventually("the faults are told", BOUND, || one(scene, "wrong", "InvalidSlo"))?;
    let note = event["note"].as_str().unwrap_or_default();
    ensure!(event["type"] == "Warning", "{event:#}");
    ensure!(note.contains("slo.example.io/priority: \"11\""), "{note}");

    // The next leader writes what the last one wrote, and finds that it is there.
    leader.terminate()?;
    let duplicates = [("reason", "PlacedCloud"), ("result", "duplicate")];
    eventually("the next leader finds it told", BOUND, || {
        let count = other.count("edgeward_events_total", &duplicates)?;
        ensure!(count == 1, "{count}");
        Ok(())
    })?;
    create(scene, "further", 900, "cloud_edge_no_capacity")?;
    eventually("the next leader tells", BOUND, || one(scene, "further", "PlacedCloud"))?;

    other.kill()?;
    other.start_again()?;
    create(scene, "furthest", 900, "cloud_edge_no_capacity")?;
    eventually("it tells after a restart", 2 * BOUND, || {
        one(scene, "furthest", "PlacedCloud")
    })?;
    for pod in ["far", "further", "furthest"] {
        one(scene, pod, "PlacedCloud")?;
    }
    one(scene, "wrong", "InvalidSlo")?;
    let all = ours(scene)?;
    ensure!(all.len() == 4, "{all:#?}");

    let mut config = config;
    config["placedEdgeEvents"] = json!(true);
    other.set_config(&config)?;
    eventually("it is read", BOUND, || {
        // The second since it was started again.
        let count = other.count("edgeward_config_reloads_total", &[("result", "loaded")])?;
        ensure!(count == 2, "{count}");
        Ok(())
    })?;
    create(scene, "nearer", 50, "edge_feasible_slo_met")?;
    eventually("the edge is told", BOUND, || one(scene, "nearer", "PlacedEdge"))?;
    let all = ours(scene)?;
    ensure!(all.len() == 5, "{all:#?}");
    Ok(())
}

/// Creates a pod, which is decided like this.
fn create(scene: &Scene<'_>, name: &str, millicores: u32, reason: &str) -> Result<()> {
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"});
    let mut pod = workloads::pod(name, slo);
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{millicores}m"));
    // The observer may be behind with the pod before.
    eventually(&format!("{name} would be {reason}"), BOUND, || {
        let asked = scene.kubectl.dry_run(&pod)?;
        let decided = &asked["metadata"]["annotations"]["scheduling.example.io/reason"];
        ensure!(decided == reason, "{decided}");
        Ok(())
    })?;
    let created = scene.kubectl.create(&pod)?;
    let decided = &created["metadata"]["annotations"]["scheduling.example.io/reason"];
    ensure!(decided == reason, "{decided}");
    Ok(())
}

/// The Event of this reason on this pod; fails unless there is one.
pub(crate) fn one(scene: &Scene<'_>, pod: &str, reason: &str) -> Result<Value> {
    let mut events = ours(scene)?;
    events.retain(|event| event["regarding"]["name"] == pod && event["reason"] == reason);
    ensure!(events.len() <= 1, "{events:#?}");
    events.pop().context("there is none")
}

/// Every Event that edgeward has written here.
pub(crate) fn ours(scene: &Scene<'_>) -> Result<Vec<Value>> {
    let mut events = scene.kubectl.list("events.events.k8s.io", "")?;
    events.retain(|event| event["reportingController"] == "edgeward.io/edgeward");
    Ok(events)
}
