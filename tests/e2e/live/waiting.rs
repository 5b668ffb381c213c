//! Waiting pods delay only pods that would wait behind them. Pods that kube-scheduler would bind at once are not late.

use edgeward_harness::live::EDGE;
use edgeward_harness::prelude::*;

use super::{CLOUD, fill, would_be};

e2e! { "live::oversized_pods_do_not_count_in_queue", Nodes, oversized_pods_do_not_count_in_queue }
/// Pods of 5 cores fit no edge node and wait forever. A pod of 3 cores waits for room. Pods that fit are bound before them.
fn oversized_pods_do_not_count_in_queue(fixture: &Fixture<'_>) -> Result<()> {
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
/// Pods of a scheduler that does not exist take room for only 30 s.
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

/// A pod with this CPU request and the edge's selector, as if it had been decided.
fn at_the_edge(nodes: &Nodes<'_>, name: &str, cpu: &str) -> Value {
    let mut pod = workloads::pod_of(name, workloads::latency(), cpu);
    for (field, value) in nodes.edge_placement().as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// Waits until kube-scheduler has refused this many pods.
fn refused(kubectl: &Kubectl, expected: usize) -> Result<()> {
    eventually(&format!("{expected} pods are Unschedulable"), BOUND, || {
        let pods = kubectl.list("pods", "")?;
        let refused = pods.iter().filter(|pod| pod.to_string().contains("\"Unschedulable\""));
        ensure!(refused.count() == expected);
        Ok(())
    })
}
