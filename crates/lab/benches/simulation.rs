//! Measures the pods per minute that one core simulates, with all their events. Run `cargo bench -p edgeward-lab`.

use std::error::Error;
use std::sync::atomic::AtomicBool;

use edgeward_lab::load::Load;
use edgeward_lab::policy::Policy;
use edgeward_lab::run::{paths, run};
use edgeward_lab::scenario;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// 100 nodes that are five sixths full, and 500 pods per second with 10 s of work.
fn scenario(replicas: u32) -> Value {
    json!({
        "name": "benchmark",
        "durationSeconds": 200,
        "drainSeconds": 30,
        "replicas": replicas,
        "sites": [
            {"name": "edge", "kind": "edge", "nodes": [{"count": 90, "allocatable": {"cpu": "7", "memory": "32Gi"}}]},
            {"name": "cloud", "kind": "cloud", "nodes": [{"count": 10, "allocatable": {"cpu": "64", "memory": "256Gi"}}],
             "wan": {"rttMs": 20, "lossPct": 0.1}},
        ],
        "workloads": [
            {"name": "inference", "class": "latency", "deadlineMs": 20_000, "requests": {"cpu": "100m", "memory": "128Mi"},
             "serviceMs": {"logNormal": {"medianMs": 10_000, "sigma": 0.3}}, "jobs": {"poisson": {"perSecond": 250}}},
            {"name": "reports", "class": "batch", "deadlineMs": 60_000, "requests": {"cpu": "100m", "memory": "256Mi"},
             "serviceMs": {"exponential": {"meanMs": 10_000}}, "jobs": {"poisson": {"perSecond": 250}}},
        ],
    })
}

/// CPU time of this process, in seconds. Other load on the machine does not count.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> Result<(), Box<dyn Error>> {
    // `cargo test` also runs benchmarks, for a short time, to check that they work.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    for replicas in [1, 3] {
        let mut document = scenario(replicas);
        if !is_bench {
            document["durationSeconds"] = 1.into();
        }
        let scenario = scenario::read(&document, &|_| Err("no files".into()))?;
        let (load, paths) = (Load::new(&scenario, 1), paths(&scenario, 1));
        let begin = processor_seconds();
        let outcome =
            run(&scenario, &load, &paths, 1, Policy::Edgeward, &AtomicBool::new(false)).ok_or("was stopped")?;
        let seconds = processor_seconds() - begin;
        println!(
            "replicas: {replicas}, decisions: {}, seconds: {seconds:.2}, decisions a minute: {:.0}, cloud: {:.1} %",
            outcome.decisions,
            outcome.decisions as f64 / seconds * 60.0,
            100.0 * outcome.cloud_fraction().unwrap_or(0.0),
        );
    }
    Ok(())
}
