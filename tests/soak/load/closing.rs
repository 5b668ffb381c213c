//! A site closes to a controller while pods come and go.

use edgeward_harness::load::replicas::{REPLICAS, Replicas, nodes};
use edgeward_harness::load::{Pace, under_load};
use edgeward_harness::prelude::*;
use edgeward_harness::tables::Table;

/// Pods per second. Each causes at least two events, creation and deletion; most also cause one for their binding.
const RATE: u32 = 50;

e2e! { "load::closed_by_scheduler", Machine, closed_by_scheduler }
/// A Deployment of three replicas with spread over three hosts runs at an edge of two nodes. Every replica of edgeward learns
/// that kube-scheduler cannot place the third pod there, although it fits by size. They keep that knowledge while pods come and
/// go on both nodes.
fn closed_by_scheduler(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = nodes(fixture)?;
    nodes.edge_node("edge-1", "64")?;
    let pace = Pace::Steady(RATE);
    let replicas = Replicas::open(fixture, &nodes, pace)?;
    let mut deployment = workloads::deployment("spread", 3, workloads::latency());
    deployment["spec"]["template"]["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1, "minDomains": 3, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }]);

    let (mut refused, mut known) = (Duration::ZERO, Duration::ZERO);
    let report = under_load(fixture, &nodes, pace, |load| {
        let begun = Instant::now();
        fixture.kubectl.apply(&deployment)?;
        eventually("kube-scheduler refuses one", BOUND, || {
            let pods = fixture.kubectl.list("pods", "app=spread")?;
            ensure!(pods.iter().any(is_unschedulable), "{} pods", pods.len());
            Ok(())
        })?;
        refused = begun.elapsed();
        let closed = |replica: &Edgeward<'_>| replica.count("edgeward_closed_controllers", &[("site", "edge")]);
        let all_closed = || -> Result<()> {
            for replica in &replicas.members {
                ensure!(closed(replica)? == 1);
            }
            Ok(())
        };
        eventually("every replica knows", BOUND, all_closed)?;
        known = begun.elapsed();
        load.lasts(Duration::from_secs(10))?;
        all_closed()
    })?;
    println!(
        "load: {RATE} pods a second: refused after {refused:.1?}, closed by {REPLICAS} replicas after {known:.1?}: {report}"
    );
    Table::Closing.row(
        &format!("{RATE} pods a second, {REPLICAS} replicas"),
        &[&format!("{refused:.1?}"), &format!("{known:.1?}")],
    );
    report.has_no_failure()
}
