//! How long each class is gated by default.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use edgeward_harness::decision::{annotation, is_gated};
use edgeward_harness::fixture::Fixture;
use edgeward_harness::nodes::Nodes;
use edgeward_harness::wait::{BOUND, eventually};
use serde_json::json;

use crate::gated::{fill, is_gated_for, pod};

const LIMITS: [(&str, Duration); 3] = [
    ("latency", Duration::from_secs(30)),
    ("throughput", Duration::from_secs(120)),
    ("batch", Duration::from_secs(300)),
];

e2e!("limits::of_each_class", Domain, 102, of_each_class);
/// The edge is full and no cloud answers: a pod of each class is gated for as long as its class may be, and not for less, and goes
/// to the edge then. This waits for minutes, for nothing but the time.
fn of_each_class(fixture: &Fixture<'_>) -> Result<()> {
    let (nodes, _) = Nodes::without_wan(fixture)?;
    let mut config = nodes.gating(&json!(null));
    config.as_object_mut().context("an object")?.remove("holdLimits");
    let edgeward = fixture.live_edgeward(&config)?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    fill(fixture, &nodes)?;

    let mut gated = vec![];
    for (class, limit) in LIMITS {
        let mut pod = pod(fixture, class, 500, 5);
        pod["metadata"]["annotations"][fixture.key("slo.example.io/class")] = json!(class);
        gated.push((class, limit, Instant::now()));
        fixture.kubectl.create(&pod)?;
        is_gated_for(fixture, class, "held_no_capacity")?;
    }
    for (class, limit, since) in gated {
        eventually(&format!("{class} is released"), limit + BOUND, || {
            let pod = fixture.kubectl.get("pod", class)?;
            ensure!(!is_gated(&pod), "{pod}");
            ensure!(annotation(&pod, "reason") == Some("released_timeout"), "{pod}");
            ensure!(annotation(&pod, "site") == Some("edge"), "{pod}");
            Ok(())
        })?;
        // Edgeward goes by the wall clock, which may be set by seconds meanwhile. The exact limit is tested in virtual time.
        let (gated, least) = (since.elapsed(), limit * 9 / 10);
        ensure!(gated >= least, "{class} was gated for {gated:?}, less than {limit:?}");
    }
    Ok(())
}
