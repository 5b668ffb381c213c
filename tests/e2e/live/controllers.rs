//! Controllers whose pods cannot be placed or created, and the effect on other pods.

use std::thread;

use edgeward_harness::live::{EDGE, pod};
use edgeward_harness::prelude::*;

use super::{CLOUD, would_be};

e2e! { "live::spread_replicas_use_edge_and_cloud", Nodes, spread_replicas_use_edge_and_cloud }
/// A common manifest of a highly available application: two replicas that share no node. With one edge node and a cloud, each
/// gets one, and a third replica goes to neither.
fn spread_replicas_use_edge_and_cloud(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "4")?;
    nodes.cloud_node("cloud-1")?;
    let (_edgeward, _registered) = fixture.registered_live(&nodes.config())?;

    fixture.kubectl.apply(&spread(2, None))?;
    let run_at = |expected: &[&str]| {
        eventually(&format!("replicas run at {expected:?}"), BOUND, || {
            let pods = fixture.kubectl.list("pods", "app=spread")?;
            let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
            let mut sites: Vec<_> = running.filter_map(|pod| nodes.site_of(pod)).collect();
            sites.sort_unstable();
            ensure!(
                sites == expected && pods.len() == expected.len(),
                "{sites:?} of {}",
                pods.len()
            );
            Ok(())
        })
    };
    run_at(&["cloud", "edge"])?;
    scale(fixture, 3)?;
    run_at(&["cloud", "cloud", "edge"])?;
    would_be(fixture, 200, EDGE).context("another application's")?;
    // Otherwise its pods would be created again on other tests' nodes after this test's nodes are gone.
    fixture.kubectl.run(&["delete", "deployment", "spread"], "").map(drop)
}

/// A Deployment whose pods share no node with pods like them, in their own namespace or in selected namespaces.
fn spread(replicas: u32, namespaces: Option<Value>) -> Value {
    let mut deployment = workloads::deployment("spread", replicas, workloads::latency());
    let mut apart =
        json!({"labelSelector": {"matchLabels": {"app": "spread"}}, "topologyKey": "kubernetes.io/hostname"});
    if let Some(namespaces) = namespaces {
        apart["namespaceSelector"] = namespaces;
    }
    deployment["spec"]["template"]["spec"]["affinity"] =
        json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}});
    deployment
}

e2e! { "live::waiting_pod_closes_edge_to_siblings", Nodes, waiting_pod_closes_edge_to_siblings }
/// One pod per node, by a term that edgeward does not evaluate, with fewer nodes than pods. One pod waits, and closes the edge
/// to later pods of its controller only. When it is gone, the edge is open again.
fn waiting_pod_closes_edge_to_siblings(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "4")?;
    nodes.edge_node("edge-1", "4")?;
    nodes.cloud_node("cloud-0")?;
    let (edgeward, _registered) = fixture.registered_live(&nodes.config())?;
    let closed = || edgeward.count("edgeward_closed_controllers", &[("site", "edge")]);

    let own = json!({"matchLabels": {"kubernetes.io/metadata.name": fixture.namespace}});
    fixture.kubectl.apply(&spread(3, Some(own)))?;
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

    // A ReplicaSet first deletes its pod without a node.
    scale(fixture, 3)?;
    eventually("no pod of it waits", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=spread")?;
        ensure!(!pods.iter().any(is_unschedulable), "{} pods", pods.len());
        Ok(())
    })?;
    is_now(fixture, &sibling, CLOUD).context("the edge is open to it")?;
    ensure!(closed()? == 1, "{} controllers", closed()?);
    // Otherwise its pods would be created again on other tests' nodes after this test's nodes are gone.
    fixture.kubectl.run(&["delete", "deployment", "spread"], "").map(drop)
}

e2e! { "live::quota", Nodes, 81, quota }
/// A Deployment cannot create its pods, so its reservations are for pods that never come. Each is larger than its namespace's
/// share. However often it retries, verdicts in other namespaces stay the same.
pub(crate) fn quota(fixture: &Fixture<'_>) -> Result<()> {
    // The controller doubles its delay after each try.
    const TRIES: u64 = 11;
    const PACE: Duration = Duration::from_millis(200);
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let (blocked, kubectl) = fixture.another_namespace("blocked", json!({MANAGED: "true"}))?;
    let edgeward = fixture.live_edgeward(&nodes.config())?;
    let _registered = fixture.register_as(
        "zz-edgeward",
        &[&fixture.namespace, &blocked],
        &edgeward.url,
        &edgeward.ca,
    )?;
    would_be(fixture, 600, EDGE)?;
    no_pods(&kubectl)?;

    let before = edgeward.reviews()?;
    let mut asked = 0;
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
    let mut deployment = workloads::deployment("many", 500, slo);
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("600m");
    kubectl.create(&deployment)?;
    let begun = Instant::now();
    let mut tried = 0;
    while tried < TRIES {
        ensure!(begun.elapsed() < BOUND, "it has tried {tried} times only");
        is_now(fixture, &pod(fixture, "asking", 600), EDGE).with_context(|| format!("after {tried} tries"))?;
        asked += 1;
        tried = edgeward.reviews()? - before - asked;
        thread::sleep(PACE);
    }
    ensure!(kubectl.list("pods", "")?.is_empty(), "the quota let pods through");
    let expired = edgeward.count("edgeward_reservations_expired_total", &[])?;
    ensure!(expired >= 3, "{expired} reservations expired");
    Ok(())
}

/// Creates a quota that refuses every pod, after the webhooks are called.
fn no_pods(kubectl: &Kubectl) -> Result<()> {
    let spec = json!({"hard": {"pods": "0"}});
    kubectl
        .create(&json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": spec}))?;
    eventually("the quota is in force", BOUND, || {
        let used = &kubectl.get("resourcequota", "none")?["status"]["used"]["pods"];
        ensure!(used == "0", "{used}");
        Ok(())
    })
}

fn scale(fixture: &Fixture<'_>, replicas: u32) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    fixture
        .kubectl
        .run(&["scale", "deployment", "spread", &replicas], "")
        .map(drop)
}

/// The pod with an owner, as its controller could create it.
fn with_owner(pod: &Value) -> Value {
    let mut sibling = workloads::pod("sibling", workloads::latency());
    sibling["metadata"]["ownerReferences"] = pod["metadata"]["ownerReferences"].clone();
    sibling
}
