//! Gated pods of one namespace that are expensive for the release plan.

use std::thread;

use anyhow::anyhow;
use edgeward_harness::prelude::*;

use crate::gated::pod;

const NODES: usize = 150;

/// Hostile pods that are gated first. They take more comparisons with nodes than one plan makes.
const HOSTILE: usize = 1_000;

/// Tolerations of each pod. A pod with more is left out of the plan.
const TOLERATIONS: usize = 100;

/// Number of the neighbour's pods. This many hostile pods are created with each of them.
const NEIGHBOURS: usize = 20;
const WITH_EACH: usize = 10;

const CLIENTS: usize = 10;

e2e! { "hostile::neighbours_are_placed_at_once", Domain, 85, neighbours_are_placed_at_once }
/// A namespace creates many pods of the highest priority with different memory requests. They may only run at a site that does
/// not exist. The edge is empty, so each pod of another namespace is placed there at its creation.
fn neighbours_are_placed_at_once(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_nodes(NODES)?;
    let (evil, kubectl) = fixture.another_namespace("evil", json!({fixture.key(MANAGED): "true"}))?;
    let edgeward = fixture.live_edgeward(&nodes.gating(&for_long()))?;
    let namespaces: [&str; 2] = [&fixture.namespace, &evil];
    let _registered = fixture.register_as("zz-edgeward", &namespaces, &edgeward.url, &edgeward.ca)?;
    let gated = |count: usize| {
        eventually("edgeward knows of all that are gated", BOUND, || {
            let known = edgeward.count("edgeward_gated_pods", &[])?;
            ensure!(known == count as u64, "{known} of {count}");
            Ok(())
        })
    };

    let all: Vec<_> = (0..HOSTILE + NEIGHBOURS * WITH_EACH)
        .map(|i| hostile(fixture, i))
        .collect();
    let (before, later) = all.split_at(HOSTILE);
    create(&kubectl, before)?;
    gated(HOSTILE)?;
    for (i, more) in later.chunks(WITH_EACH).enumerate() {
        create(&kubectl, more)?;
        let created = fixture
            .kubectl
            .create(&pod(fixture, &format!("neighbour-{i}"), 100, 5))?;
        ensure!(
            !is_gated(&created) && annotation(&created, "site") == Some("edge"),
            "{created}"
        );
    }
    gated(all.len())
}

fn hostile(fixture: &Fixture<'_>, number: usize) -> Value {
    let mut pod = pod(fixture, &format!("hostile-{number}"), 0, 10);
    pod["metadata"]["annotations"][fixture.key("slo.example.io/sites")] = json!("atlantis");
    pod["spec"]["containers"][0]["resources"]["requests"] = json!({"memory": (1 + number).to_string()});
    let toleration = |i: usize| json!({"key": format!("k{i}"), "operator": "Exists"});
    pod["spec"]["tolerations"] = (0..TOLERATIONS).map(toleration).collect();
    pod
}

fn create(kubectl: &Kubectl, pods: &[Value]) -> Result<()> {
    thread::scope(|scope| {
        let shares = pods.chunks(pods.len().div_ceil(CLIENTS));
        let clients: Vec<_> = shares
            .map(|share| scope.spawn(move || share.iter().try_for_each(|pod| kubectl.create(pod).map(drop))))
            .collect();
        let mut created = clients.into_iter().map(|client| client.join());
        created.try_for_each(|result| result.map_err(|_| anyhow!("a client panicked"))?)
    })
}
