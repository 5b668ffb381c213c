//! Controllers whose pods cannot be placed, or not even created, and what that means for the others.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use edgeward_harness::decision::is_unschedulable;
use edgeward_harness::fixture::{Fixture, MANAGED};
use edgeward_harness::live::{EDGE, is_now, outcome, pod};
use edgeward_harness::nodes::Nodes;
use edgeward_harness::wait::{BOUND, eventually};
use edgeward_harness::workloads;
use serde_json::{Value, json};

use super::{CLOUD, would_be};

/// A pod per node, and fewer nodes than pods: one waits for what we do not evaluate, and closes the edge to those of its
/// controller that come after it. Nobody else is affected, and when it is gone the edge is open again.
pub(crate) fn anti_affinity(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "4")?;
    nodes.edge_node("edge-1", "4")?;
    nodes.cloud_node("cloud-0")?;
    let edgeward = fixture.live_edgeward(&nodes.config())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    let closed = || edgeward.count("edgeward_closed_controllers", &[("site", "edge")]);

    let mut deployment = workloads::deployment("spread", 3, workloads::latency());
    let apart = json!([{"labelSelector": {"matchLabels": {"app": "spread"}}, "topologyKey": "kubernetes.io/hostname"}]);
    deployment["spec"]["template"]["spec"]["affinity"] =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": apart}});
    fixture.kubectl.apply(&deployment)?;
    let surplus = eventually("two pods run, and one is Unschedulable", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=spread")?;
        let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
        let mut unschedulable = pods.into_iter().filter(is_unschedulable);
        let surplus = unschedulable.next().with_context(|| format!("{running} run"))?;
        ensure!(running == 2 && unschedulable.next().is_none(), "{running} run");
        Ok(surplus)
    })?;
    ensure!(outcome(&surplus)? == EDGE, "{}", outcome(&surplus)?);

    let sibling = with_owner(&surplus);
    eventually("the edge is closed to its controller", BOUND, || {
        is_now(fixture, &sibling, CLOUD)
    })?;
    ensure!(closed()? == 1, "{} controllers", closed()?);
    would_be(fixture, 200, EDGE).context("another controller's")?;

    scale(fixture, 4)?;
    let offloaded = eventually("the next pod runs in the cloud", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=spread")?;
        let mut offloaded = pods
            .into_iter()
            .filter(|pod| outcome(pod).is_ok_and(|outcome| outcome == CLOUD));
        let offloaded = offloaded.next().context("no pod was offloaded")?;
        ensure!(offloaded["status"]["phase"] == "Running", "{}", offloaded["status"]);
        Ok(offloaded)
    })?;
    let explain = &offloaded["metadata"]["annotations"]["scheduling.example.io/explain"];
    let explained: Value = serde_json::from_str(explain.as_str().context("no explanation")?)?;
    ensure!(explained["edge"]["no"] == json!(["closed_by_scheduler"]), "{explained}");

    // Of its pods, a ReplicaSet deletes first the one that has no node.
    scale(fixture, 3)?;
    eventually("the edge is open again", BOUND, || is_now(fixture, &sibling, EDGE))?;
    ensure!(closed()? == 0, "{} controllers", closed()?);
    // Else its pods would be created again on other tests' nodes when ours are gone.
    fixture.kubectl.run(&["delete", "deployment", "spread"], "").map(drop)
}

/// A Deployment that cannot create a pod reserves room for pods that never come, but not for long: it changes no verdict
/// in another namespace, however often it tries again.
pub(crate) fn quota(fixture: &Fixture<'_>) -> Result<()> {
    // Longer than a reservation lasts.
    const RESERVED: Duration = Duration::from_secs(5);
    const WATCHED: Duration = Duration::from_secs(10);
    const PACE: Duration = Duration::from_millis(200);
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "1")?;
    nodes.cloud_node("cloud-0")?;
    let (blocked, kubectl) = fixture.another_namespace("blocked", json!({MANAGED: "true"}))?;
    let edgeward = fixture.live_edgeward(&nodes.config())?;
    let _registered = fixture.register_as(
        "zz-edgeward",
        &[&fixture.namespace, &blocked],
        &edgeward.url,
        &edgeward.ca,
    )?;
    would_be(fixture, 600, EDGE)?;

    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    kubectl.create(&quota)?;
    eventually("the quota is in force", BOUND, || {
        let used = &kubectl.get("resourcequota", "none")?["status"]["used"]["pods"];
        ensure!(used == "0", "{used}");
        Ok(())
    })?;
    let before = edgeward.reviews()?;
    let mut deployment = workloads::deployment("many", 500, workloads::latency());
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("600m");
    kubectl.create(&deployment)?;
    eventually("some of its reservations have expired", BOUND, || {
        let expired = edgeward.count("edgeward_reservations_expired_total", &[])?;
        ensure!(expired >= 3, "{expired}");
        Ok(())
    })?;
    // What it has reserved before ends by then.
    let begun = Instant::now();
    let mut asked = 0;
    while begun.elapsed() < RESERVED + WATCHED {
        if begun.elapsed() >= RESERVED {
            asked += 1;
            let since = begun.elapsed();
            is_now(fixture, &pod(fixture, "asking", 600), EDGE).with_context(|| format!("{since:?} later"))?;
        }
        thread::sleep(PACE);
    }
    ensure!(kubectl.list("pods", "")?.is_empty(), "the quota let pods through");
    let of_others = edgeward.reviews()? - before - asked;
    ensure!(of_others >= 4, "the deployment has tried {of_others} times only");
    Ok(())
}

fn scale(fixture: &Fixture<'_>, replicas: u32) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    fixture
        .kubectl
        .run(&["scale", "deployment", "spread", &replicas], "")
        .map(drop)
}

/// A pod that the controller of this one could create.
fn with_owner(pod: &Value) -> Value {
    let mut sibling = workloads::pod("sibling", workloads::latency());
    sibling["metadata"]["ownerReferences"] = pod["metadata"]["ownerReferences"].clone();
    sibling
}
