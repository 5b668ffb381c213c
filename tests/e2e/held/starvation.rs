//! Held pods that others could keep waiting for as long as they come.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use edgeward_harness::decision::{annotation, is_gated};
use edgeward_harness::fixture::Fixture;
use edgeward_harness::nodes::{Nodes, for_long};
use edgeward_harness::wait::{BOUND, eventually};
use serde_json::{Value, json};

use crate::held::{is_held, pod};

/// The edge is full of small pods, each of which ends after a while, and others come all the time. A large one waits first in line,
/// and small ones behind it are given what becomes free, which is never enough for it. After a minute it claims the node, and
/// runs.
pub(crate) fn large_pod_runs(fixture: &Fixture<'_>) -> Result<()> {
    const SMALL: u32 = 100;
    const LARGE: u32 = 500;
    const PLACES: usize = 10;
    const RUNS: Duration = Duration::from_secs(5);
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "1")?;
    nodes.cloud_node("cloud-0")?;
    nodes.wan.close();
    let edgeward = fixture.live_edgeward(&nodes.holding(&for_long()))?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;

    let mut created = 0;
    let mut create = || {
        let mut small = pod(fixture, &format!("small-{created}"), SMALL, 5);
        small["metadata"]["labels"] = json!({"app": "small"});
        created += 1;
        fixture.kubectl.create(&small).map(drop)
    };
    for _ in 0..PLACES {
        create()?;
    }
    let is_running = |pod: &&Value| pod["status"]["phase"] == "Running";
    eventually("the edge is full", BOUND, || {
        let running = fixture
            .kubectl
            .list("pods", "app=small")?
            .iter()
            .filter(is_running)
            .count();
        ensure!(running == PLACES, "{running} run");
        Ok(())
    })?;
    fixture.kubectl.create(&pod(fixture, "large", LARGE, 5))?;
    is_held(fixture, "large", "held_no_capacity")?;

    // They end one after the other.
    let mut ends: HashMap<String, Instant> = HashMap::new();
    let mut last = Instant::now();
    let mut ended = 0;
    eventually("the large pod is released", 2 * BOUND, || {
        let small = fixture.kubectl.list("pods", "app=small")?;
        let (waiting, running): (Vec<&Value>, Vec<&Value>) = small.iter().partition(|pod| is_gated(pod));
        for _ in waiting.len()..PLACES {
            create()?;
        }
        for pod in running.into_iter().filter(is_running) {
            let name = pod["metadata"]["name"].as_str().context("a name")?;
            let end = *ends.entry(name.to_owned()).or_insert_with(|| {
                last = last.max(Instant::now()) + RUNS / PLACES as u32;
                last
            });
            if end <= Instant::now() {
                let args = ["delete", "pod", name, "--grace-period=0", "--force", "--wait=false"];
                fixture.kubectl.run(&args, "")?;
                ended += 1;
                break;
            }
        }
        let large = fixture.kubectl.get("pod", "large")?;
        ensure!(!is_gated(&large), "{ended} small ones have ended, and it is held");
        Ok(())
    })?;
    let passed_by = ends.len().saturating_sub(PLACES);
    println!("starvation: {passed_by} small pods that came later ran before the large one was released");
    ensure!(
        passed_by >= (LARGE / SMALL) as usize,
        "less than what it asks for went to others: {passed_by}"
    );
    eventually("it runs at the edge", BOUND, || {
        let large = fixture.kubectl.get("pod", "large")?;
        ensure!(
            nodes.site_of(&large) == Some("edge") && large["status"]["phase"] == "Running",
            "{large}"
        );
        ensure!(annotation(&large, "reason") == Some("released_edge"), "{large}");
        Ok(())
    })
}
