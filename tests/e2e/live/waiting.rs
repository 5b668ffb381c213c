//! Pods that wait, and in whose way they are: of those that kube-scheduler would bind at once, nobody's.

use anyhow::{Context, Result, ensure};
use edgeward_harness::fixture::{Fixture, MANAGED};
use edgeward_harness::kubectl::Kubectl;
use edgeward_harness::live::{EDGE, is_now, outcome, pod};
use edgeward_harness::nodes::Nodes;
use edgeward_harness::wait::{BOUND, eventually};
use edgeward_harness::workloads;
use serde_json::{Value, json};

use super::{CLOUD, fill, would_be};

/// Pods of 5 cores that fit no node of the edge wait for ever, and one of 3 cores until there is room for it; who fits is bound
/// before them.
pub(crate) fn only_who_waits_is_late(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "4")?;
    nodes.cloud_node("cloud-0")?;
    let (_, kubectl) = fixture.another_namespace("large", json!({MANAGED: "true"}))?;
    let edgeward = fixture.live_edgeward(&nodes.config())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    let in_queue = |expected: u64| {
        eventually(&format!("{expected} pods wait for room"), BOUND, || {
            let labels = [("site", "edge"), ("class", "latency")];
            let found = edgeward.count("edgeward_queue_pods", &labels)?;
            ensure!(found == expected, "{found}");
            Ok(())
        })
    };
    let slo = json!({"slo.example.io/class": "latency", "slo.example.io/deadlineMs": "600"});
    let asking = workloads::pod("asking", slo);

    for i in 0..5 {
        kubectl.create(&at_the_edge(&nodes, &format!("large-{i}"), "5"))?;
    }
    refused(&kubectl, 5)?;
    eventually("a pod that fits goes to the edge", BOUND, || {
        is_now(fixture, &asking, EDGE)
    })?;
    in_queue(0)?;

    fill(fixture, "first", 3_000, EDGE)?;
    for i in 0..5 {
        kubectl.create(&at_the_edge(&nodes, &format!("waits-{i}"), "2"))?;
    }
    refused(&kubectl, 10)?;
    in_queue(5)?;
    is_now(fixture, &asking, EDGE).context("it fits beside the first")
}

/// Pods whose scheduler there is not take no room; from the moment in which it binds one they do, and when it says nothing for
/// 30 s while kube-scheduler goes on, they do not.
pub(crate) fn silent_scheduler(fixture: &Fixture<'_>) -> Result<()> {
    const PODS: u64 = 20;
    let nodes = Nodes::new(fixture)?;
    let edge = (0..5).map(|i| nodes.edge_node(&format!("edge-{i}"), "4"));
    let edge = edge.collect::<Result<Vec<_>>>()?;
    nodes.cloud_node("cloud-0")?;
    let (namespace, kubectl) = fixture.another_namespace("unanswered", json!({}))?;
    let edgeward = fixture.live_edgeward(&nodes.config())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;

    would_be(fixture, 900, EDGE)?;
    let names: Vec<_> = (0..PODS).map(|i| format!("unanswered-{i}")).collect();
    for name in &names {
        let mut unanswered = at_the_edge(&nodes, name, "1");
        unanswered["spec"]["schedulerName"] = json!("nobody");
        kubectl.create(&unanswered)?;
    }
    // The watch shows things in their order: who sees this one bound has seen all of them.
    fill(fixture, "probe", 100, EDGE)?;
    eventually("it is seen", BOUND, || {
        let free = edgeward.metric("edgeward_site_free_cpu_cores", &[("site", "edge")])?;
        ensure!(free < 20.0, "{free} cores are free");
        Ok(())
    })?;
    is_now(fixture, &pod(fixture, "asking", 3_900), EDGE)?;
    let said = fleet(fixture, &nodes.config())?;
    let line = "silent: scheduler nobody has bound or refused no pod that is here; 20 wait for it, and take no room";
    ensure!(said.contains(line), "{said}");

    let target = json!({"apiVersion": "v1", "kind": "Node", "name": edge[0]});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": names[0]}, "target": target});
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}/binding", names[0]);
    kubectl.run(&["create", "--raw", &path, "-f", "-"], &binding.to_string())?;
    would_be(fixture, 950, CLOUD).context("the others are on their way")?;

    let another = outcome(&fixture.kubectl.create(&pod(fixture, "another", 950))?)?;
    ensure!(another == CLOUD, "{another}");
    would_be(fixture, 950, EDGE)
}

/// A pod that asks for so much CPU of the edge, as if it had been decided.
fn at_the_edge(nodes: &Nodes<'_>, name: &str, cpu: &str) -> Value {
    let mut pod = workloads::pod(name, workloads::latency());
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
    for (field, value) in nodes.edge_placement().as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// Waits until kube-scheduler has refused so many pods.
fn refused(kubectl: &Kubectl, expected: usize) -> Result<()> {
    eventually(&format!("{expected} pods are Unschedulable"), BOUND, || {
        let pods = kubectl.list("pods", "")?;
        let refused = pods.iter().filter(|pod| pod.to_string().contains("\"Unschedulable\""));
        let refused = refused.count();
        ensure!(refused == expected, "{refused}");
        Ok(())
    })
}

fn fleet(fixture: &Fixture<'_>, config: &Value) -> Result<String> {
    let file = fixture.dir.join("command.yaml");
    std::fs::write(&file, config.to_string())?;
    let said = fixture.command(&["fleet", &format!("--config={}", file.display())])?;
    ensure!(said.succeeded, "{}", said.stderr);
    Ok(said.stdout)
}
