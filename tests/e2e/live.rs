//! The live view: decisions follow changes of the cluster.

pub(crate) mod connection;
pub(crate) mod controllers;
pub(crate) mod headroom;
pub(crate) mod memory;
pub(crate) mod moves;
pub(crate) mod nodes;
pub(crate) mod restart;
pub(crate) mod tenants;

use edgeward_harness::live::{EDGE, pod, runs};
use edgeward_harness::prelude::*;

/// Outcome if the edge has no room and a cloud has.
const CLOUD: &str = "cloud: cloud_edge_no_capacity";

/// Waits until a pod of this size would be placed as expected.
fn would_be(fixture: &Fixture<'_>, millicores: u32, expected: &str) -> Result<()> {
    would_be_within(fixture, millicores, expected, BOUND)
}

fn would_be_within(fixture: &Fixture<'_>, millicores: u32, expected: &str, bound: Duration) -> Result<()> {
    eventually(&format!("a pod of {millicores} m: {expected}"), bound, || {
        is_now(fixture, &pod(fixture, "asking", millicores), expected)
    })
}

/// Creates a pod of this size and waits until it runs.
fn fill(fixture: &Fixture<'_>, name: &str, millicores: u32, expected: &str) -> Result<()> {
    let created = outcome(&fixture.kubectl.create(&pod(fixture, name, millicores))?)?;
    ensure!(created == expected, "{name}: {created}");
    runs(fixture, name)
}

e2e! { "live::full_edge_uses_cloud_until_pod_ends", Nodes, full_edge_uses_cloud_until_pod_ends }
/// Pods fill the edge, and the next one goes to the cloud. After they are deleted, the edge has room again.
fn full_edge_uses_cloud_until_pod_ends(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "1")?;
    nodes.edge_node("edge-1", "1")?;
    nodes.cloud_node("cloud-0")?;
    let (_edgeward, _registered) = fixture.registered_live(&nodes.config())?;

    would_be(fixture, 900, EDGE)?;
    fill(fixture, "first", 900, EDGE)?;
    fill(fixture, "second", 900, EDGE)?;
    // 100 m are left on each node. The sum over nodes is not a fit.
    would_be(fixture, 150, CLOUD)?;
    would_be(fixture, 100, EDGE)?;
    fixture.kubectl.run(&["delete", "pod", "first", "--wait=false"], "")?;
    would_be(fixture, 900, EDGE)
}
