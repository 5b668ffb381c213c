//! Gated pods that a steady flow of other pods could starve.

use edgeward_harness::prelude::*;

use crate::gated::{is_gated_for, pod};

e2e! { "starvation::large_pod_runs", Domain, 100, large_pod_runs }
/// The edge is full of small pods that end one after another, and other small pods always wait for their places. A large pod
/// needs several places. It claims the node after a minute, and runs.
fn large_pod_runs(fixture: &Fixture<'_>) -> Result<()> {
    const SMALL: u32 = 100;
    const LARGE: u32 = 500;
    const PLACES: usize = 10;
    const BETWEEN_ENDS: Duration = Duration::from_millis(500);
    let (nodes, _) = Nodes::without_wan(fixture)?;
    let (_edgeward, _registered) = fixture.registered_live(&nodes.gating(&for_long()))?;

    let mut created = 0;
    let mut create = || {
        let mut small = pod(fixture, &format!("small-{created}"), SMALL, 5);
        small["metadata"]["labels"] = json!({"app": "small"});
        created += 1;
        fixture.kubectl.create(&small).map(drop)
    };
    let is_running = |pod: &&Value| pod["status"]["phase"] == "Running";
    for _ in 0..PLACES {
        create()?;
    }
    eventually("the edge is full", BOUND, || {
        let small = fixture.kubectl.list("pods", "app=small")?;
        let running = small.iter().filter(is_running).count();
        ensure!(running == PLACES, "{running} run");
        Ok(())
    })?;
    fixture.kubectl.create(&pod(fixture, "large", LARGE, 5))?;
    is_gated_for(fixture, "large", "held_no_capacity")?;

    let mut last_end = Instant::now();
    eventually("the large pod runs at the edge", 5 * BOUND, || {
        let small = fixture.kubectl.list("pods", "app=small")?;
        let waiting = small.iter().filter(|pod| is_gated(pod)).count();
        for _ in waiting..PLACES {
            create()?;
        }
        if let Some(ended) = small.iter().find(is_running)
            && last_end.elapsed() >= BETWEEN_ENDS
        {
            let name = ended["metadata"]["name"].as_str().context("a name")?;
            let args = ["delete", "pod", name, "--grace-period=0", "--force", "--wait=false"];
            fixture.kubectl.run(&args, "")?;
            last_end = Instant::now();
        }
        let large = fixture.kubectl.get("pod", "large")?;
        ensure!(
            nodes.site_of(&large) == Some("edge") && large["status"]["phase"] == "Running",
            "{large}"
        );
        ensure!(annotation(&large, "reason") == Some("edge_feasible_slo_met"), "{large}");
        Ok(())
    })
}
