//! Placeholders: low-priority pods that keep nodes warm, and that kube-scheduler evicts for others.

use edgeward_harness::live::{EDGE, pod};
use edgeward_harness::prelude::*;

use super::{CLOUD, runs, would_be};

e2e! { "live::placeholders_give_way", Nodes, placeholders_give_way }
/// A placeholder fills the edge. A pod goes there anyway, and kube-scheduler evicts the placeholder. The rest of the
/// placeholder's room goes to one more pod. Low-priority work, and placeholders that take long to leave, keep their places.
fn placeholders_give_way(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let low = format!("{}-low", fixture.namespace);
    let class =
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": low}, "value": -10});
    fixture.kubectl.create(&class)?;
    let (_edgeward, _registered) = fixture.registered_live(&nodes.config())?;
    would_be(fixture, 1000, EDGE)?;
    // The API server may not know the PriorityClass yet.
    let create = |pod: &Value| eventually("the pod is created", BOUND, || fixture.kubectl.create(pod));
    let placeholder = |name: &str, millicores: u32, grace: u32| {
        let mut pod = workloads::pod(name, json!({}));
        pod["spec"]["priorityClassName"] = json!(low);
        pod["spec"]["terminationGracePeriodSeconds"] = json!(grace);
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{millicores}m"));
        for (field, value) in nodes.edge_placement().as_object().into_iter().flatten() {
            pod["spec"][field] = value.clone();
        }
        pod
    };

    create(&placeholder("warm", 1000, 0))?;
    runs(fixture, "warm")?;
    eventually("it is seen", BOUND, || is_needed(fixture, 600))?;
    let first = fixture.kubectl.create(&pod(fixture, "first", 600))?;
    ensure!(outcome(&first)? == EDGE, "{}", outcome(&first)?);
    // From now on only the rest is free, before the pod is seen and after it is bound.
    is_now(fixture, &pod(fixture, "asking", 600), CLOUD)?;
    is_now(fixture, &pod(fixture, "asking", 400), EDGE)?;
    runs_at_the_edge(fixture, &nodes, "first")?;
    eventually("kube-scheduler tells of the placeholder", BOUND, || {
        let events = fixture.kubectl.list("events", "")?;
        let is_told = |event: &Value| event["reason"] == "Preempted" && event["involvedObject"]["name"] == "warm";
        ensure!(events.iter().any(is_told), "{} others", events.len());
        Ok(())
    })?;
    would_be(fixture, 600, CLOUD)?;
    would_be(fixture, 400, EDGE)?;

    // This pod states a class, so it is work.
    let mut work = pod(fixture, "work", 400);
    work["spec"]["priorityClassName"] = json!(low);
    let created = create(&work)?;
    ensure!(outcome(&created)? == EDGE, "{}", outcome(&created)?);
    runs(fixture, "work")?;
    would_be(fixture, 400, CLOUD)?;
    fixture.kubectl.run(&["delete", "pod", "work", "--wait=false"], "")?;
    would_be(fixture, 400, EDGE)?;
    // This placeholder may take a minute to leave.
    create(&placeholder("lasting", 400, 60))?;
    runs(fixture, "lasting")?;
    would_be(fixture, 400, CLOUD)?;
    fixture.kubectl.run(&["delete", "priorityclass", &low], "").map(drop)
}

/// Fails if a pod of this size would not go to the edge because a placeholder makes room there.
fn is_needed(fixture: &Fixture<'_>, millicores: u32) -> Result<()> {
    let decided = fixture.kubectl.dry_run(&pod(fixture, "asking", millicores))?;
    ensure!(outcome(&decided)? == EDGE, "{}", outcome(&decided)?);
    let explain = annotation(&decided, "explain").context("no explanation")?;
    let explained: Value = serde_json::from_str(explain)?;
    ensure!(explained["edge"]["headroom"] == 1, "{explained}");
    Ok(())
}

fn runs_at_the_edge(fixture: &Fixture<'_>, nodes: &Nodes<'_>, name: &str) -> Result<()> {
    runs(fixture, name)?;
    let pod = fixture.kubectl.get("pod", name)?;
    ensure!(nodes.site_of(&pod) == Some("edge"), "{pod}");
    Ok(())
}
