//! A Lease that is lost during releases.

use edgeward_harness::prelude::*;

use super::LEASE;
use crate::gated::{fill, goes, is_gated_for, pod};

e2e! { "lost_lease::lost_lease_frees_reservations", Domain, 78, lost_lease_frees_reservations }
/// A release whose patch does not get through keeps its room reserved. When another holder takes the Lease, the room is free,
/// because that holder may release the pod elsewhere. Here it does not. When the replica has the Lease again, it releases the
/// pod.
fn lost_lease_frees_reservations(fixture: &Fixture<'_>) -> Result<()> {
    let (nodes, node) = Nodes::without_wan(fixture)?;
    let proxy = fixture.proxy()?;
    // With this configuration no reservation expires during the test.
    let edgeward = fixture.live_edgeward_behind(&proxy, &nodes.gating(&for_long()))?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    fill(fixture, &nodes)?;
    fixture.kubectl.create(&pod(fixture, "gated", 1000, 5))?;
    is_gated_for(fixture, "gated", "held_no_capacity")?;

    let reserved = |expected: u64| {
        eventually(&format!("{expected} reservations"), BOUND, || {
            let reserved = edgeward.count("edgeward_reservations", &[])?;
            ensure!(reserved == expected, "{reserved}");
            Ok(())
        })
    };
    let mut ahead = pod(fixture, "ahead", 1000, 8);
    ahead["metadata"]["labels"] = json!({});
    reserved(0)?;
    proxy.gate_patches();
    nodes.resize(&node, "2")?;
    reserved(1)?;
    let dry_run = fixture.kubectl.dry_run(&ahead)?;
    ensure!(
        edgeward_harness::decision::is_gated(&dry_run),
        "the room of the release is not taken: {dry_run}"
    );

    let hand_to = |holder: Value, seconds: u32| {
        let spec = json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": seconds}});
        fixture.kubectl_in(&fixture.home()?).patch("lease", LEASE, &spec, &[])
    };
    hand_to(json!("another"), 3_600)?;
    reserved(0)?;
    is_now(fixture, &ahead, "edge: edge_feasible_slo_met")?;
    is_gated_for(fixture, "gated", "held_no_capacity")?;

    proxy.heal()?;
    hand_to(Value::Null, 1)?;
    goes(fixture, &nodes, "gated", "edge", "edge_feasible_slo_met")
}
