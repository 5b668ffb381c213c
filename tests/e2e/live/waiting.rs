//! Pods that wait, and in whose way they are: of those that kube-scheduler would bind at once, nobody's.

use edgeward_harness::live::EDGE;
use edgeward_harness::prelude::*;

use super::{CLOUD, fill, would_be};

e2e! { "live::only_who_waits_is_late", Nodes, only_who_waits_is_late }
/// Pods of 5 cores that fit no node of the edge wait for ever, and one of 3 cores until there is room for it; who fits is bound
/// before them.
fn only_who_waits_is_late(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "4")?;
    let (_, kubectl) = fixture.another_namespace("large", json!({MANAGED: "true"}))?;
    let (edgeward, _registered) = fixture.registered_live(&nodes.config())?;
    let in_queue = |expected: u64| {
        eventually(&format!("{expected} pods wait for room"), BOUND, || {
            let labels = [("site", "edge"), ("class", "latency")];
            ensure!(edgeward.count("edgeward_queue_pods", &labels)? == expected);
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

e2e! { "live::unknown_scheduler", Nodes, 84, unknown_scheduler }
/// Pods whose scheduler there is not take room for 30 s, and no longer.
fn unknown_scheduler(fixture: &Fixture<'_>) -> Result<()> {
    const PODS: u64 = 20;
    let nodes = Nodes::new(fixture)?;
    let edge = (0..5).map(|i| nodes.edge_node(&format!("edge-{i}"), "4"));
    edge.collect::<Result<Vec<_>>>()?;
    nodes.cloud_node("cloud-0")?;
    let (_, kubectl) = fixture.another_namespace("unanswered", json!({}))?;
    let (_edgeward, _registered) = fixture.registered_live(&nodes.config())?;

    would_be(fixture, 900, EDGE)?;
    for i in 0..PODS {
        let mut unanswered = at_the_edge(&nodes, &format!("unanswered-{i}"), "1");
        unanswered["spec"]["schedulerName"] = json!("nobody");
        kubectl.create(&unanswered)?;
    }
    would_be(fixture, 900, CLOUD).context("each charges a guess")?;
    would_be(fixture, 900, EDGE).context("30 s are over")
}

/// A pod that asks for so much CPU of the edge, as if it had been decided.
fn at_the_edge(nodes: &Nodes<'_>, name: &str, cpu: &str) -> Value {
    let mut pod = workloads::pod_of(name, workloads::latency(), cpu);
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
        ensure!(refused.count() == expected);
        Ok(())
    })
}
