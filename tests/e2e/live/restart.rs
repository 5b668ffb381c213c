//! edgeward dies in the middle of its work, and is started again.

use std::thread;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{CLOUD, EDGE, pod, would_be};
use crate::patience::{BOUND, eventually};
use crate::scene::Scene;
use crate::stage::Stage;

const PODS: usize = 60;
const MILLICORES: u32 = 150;
/// Of each of two nodes: together they hold all pods.
const NODE_MILLICORES: u32 = 5_000;

/// Killed while pods are created: each carries a whole decision or none, and who comes after charges what is there.
pub(crate) fn restart(scene: &Scene<'_>) -> Result<()> {
    let stage = Stage::new(scene)?;
    let cpu = format!("{NODE_MILLICORES}m");
    let nodes = [stage.edge_node("edge-0", &cpu)?, stage.edge_node("edge-1", &cpu)?];
    stage.cloud_node("cloud-0")?;
    let mut edgeward = scene.live_edgeward(&stage.config())?;
    let _registered = scene.register(&edgeward.url, &edgeward.ca)?;

    let affinity = stage.affinity();
    let pods = (0..PODS).map(|number| {
        let mut pod = pod(&format!("pod-{number}"), MILLICORES);
        pod["spec"]["affinity"] = affinity.clone();
        pod["spec"]["tolerations"] = json!([stage.toleration()]);
        pod
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods.collect::<Vec<_>>()});
    let before = edgeward.reviews()?;
    thread::scope(|scope| {
        let creating = scope.spawn(|| scene.kubectl.run(&["create", "-f", "-"], &list.to_string()));
        eventually("a few were decided", BOUND, || {
            let reviews = edgeward.reviews()? - before;
            ensure!(reviews >= PODS as u64 / 6, "{reviews} reviews");
            Ok(())
        })?;
        edgeward.kill()?;
        match creating.join() {
            Ok(created) => created.map(drop),
            Err(_) => anyhow::bail!("the thread that creates pods has panicked"),
        }
    })?;

    let pods = eventually("every pod has a node", BOUND, || {
        let pods = scene.kubectl.list("pods", "")?;
        let bound = pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
        ensure!((pods.len(), bound) == (PODS, PODS), "{bound} of {}", pods.len());
        Ok(pods)
    })?;
    let decided = pods
        .iter()
        .try_fold(0, |decided, pod| Ok::<_, anyhow::Error>(decided + whole(pod)?))?;
    ensure!(
        (1..PODS).contains(&decided),
        "{decided} of {PODS} decided: not killed in the middle"
    );

    edgeward.start_again()?;
    let on = |node: &String| {
        pods.iter()
            .filter(|pod| pod["spec"]["nodeName"] == node.as_str())
            .count()
    };
    let charged = edgeward.metric("edgeward_site_charged_cpu_cores", &[("site", "edge")])?;
    let expected = f64::from(MILLICORES) * nodes.iter().map(on).sum::<usize>() as f64 / 1_000.0;
    ensure!(
        (charged - expected).abs() < 1e-6,
        "{charged} cores charged, not {expected}"
    );
    let reservations = edgeward.count("edgeward_reservations", &[])?;
    ensure!(reservations == 0, "{reservations} reservations");
    // And on each node what it should be: one core too many, and the larger gap is another.
    let largest = nodes
        .iter()
        .map(|node| NODE_MILLICORES - MILLICORES * on(node) as u32)
        .max();
    let largest = largest.unwrap_or_default();
    would_be(scene, largest, EDGE)?;
    would_be(scene, largest + 1, CLOUD)
}

/// 1 for a pod with a complete decision, 0 for one without any.
fn whole(pod: &Value) -> Result<usize> {
    const KEYS: [&str; 7] = [
        "decision",
        "site",
        "reason",
        "timestamp",
        "decision-id",
        "wanRttMs",
        "explain",
    ];
    let annotations = &pod["metadata"]["annotations"];
    let has = |key: &&str| annotations[format!("scheduling.example.io/{key}")].is_string();
    let written = KEYS.iter().filter(|key| has(key)).count();
    let is_selected = pod["spec"]["nodeSelector"].is_object();
    match (written, is_selected) {
        (0, false) => Ok(0),
        (7, true) => Ok(1),
        _ => anyhow::bail!("{written} of {} keys, placed: {is_selected}: {pod:#}", KEYS.len()),
    }
}
