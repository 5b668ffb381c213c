//! Pods of a burst come home from the clouds.

use edgeward_harness::peering::{Strategy, running};
use edgeward_harness::prelude::*;

use super::{config, near_and_far, slo};

/// Room for so many pods at the edge.
const EDGE_ROOM: usize = 40;
const FILLERS: u32 = 10;

e2e! { "liqo::burst_comes_home", Peering, burst_comes_home }
/// A burst of 60 pods goes over an edge that is partly filled. Then the burst and the filler end, and the pods that are left in
/// the clouds come home.
fn burst_comes_home(fixture: &Fixture<'_>) -> Result<()> {
    let providers = near_and_far(fixture)?;
    fixture.offload(&fixture.namespace, Strategy::Local)?;
    let mut config = config(fixture);
    config["moves"] = json!({"enabled": true, "dwell": "5s", "keepFree": "0%", "perMinute": 60});
    let (edgeward, _registered) = fixture.registered_live(&config)?;
    eventually("it leads", BOUND, || edgeward.leads())?;
    fixture
        .kubectl
        .create(&workloads::deployment("filler", FILLERS, slo()))?;
    running(&fixture.kubectl, "app=filler", FILLERS as usize)?;
    fixture.kubectl.create(&workloads::deployment("burst", 60, slo()))?;
    running(&fixture.kubectl, "app=burst", 60)?;
    let scale = |name: &str, replicas: usize| {
        let args = ["scale", "deployment", name, &format!("--replicas={replicas}")];
        fixture.kubectl.run(&args, "").map(drop)
    };
    // A ReplicaSet deletes its pods in clouds first.
    scale("burst", EDGE_ROOM)?;
    let away = |pods: &[Value]| {
        pods.iter()
            .filter(|pod| annotation(pod, "site") != Some("edge"))
            .count()
    };
    let left = away(&running(&fixture.kubectl, "app=burst", EDGE_ROOM)?);
    ensure!(left > 0, "none was left in a cloud");
    scale("filler", 0)?;
    let begun = Instant::now();
    eventually("all are at the edge", 3 * BOUND, || {
        let pods = running(&fixture.kubectl, "app=burst", EDGE_ROOM)?;
        let away = away(&pods);
        ensure!(away == 0, "{away} of {left} in clouds");
        Ok(())
    })?;
    println!(
        "moves: {left} pods came home in {:.1} s, dwell 5 s",
        begun.elapsed().as_secs_f64()
    );
    for provider in providers {
        eventually("the clouds are empty", BOUND, || {
            let left = provider.kubectl_in(&fixture.namespace).list("pods", "")?.len();
            ensure!(left == 0, "{left} in {}", provider.id);
            Ok(())
        })?;
    }
    fixture.kubectl.run(&["delete", "deployment", "--all"], "").map(drop)
}
