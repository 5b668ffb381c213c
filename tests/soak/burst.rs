//! Many clients create more pods at once than the edge can hold. Measures how much of the edge is used, and how many pods are
//! sent to an edge that is already full.

use std::fmt;

use edgeward_harness::burst::{Outcome, Timing, burst, capacity, decided, nodes, settled};
use edgeward_harness::clients::PODS;
use edgeward_harness::load::Processors;
use edgeward_harness::prelude::*;
use edgeward_harness::tables::Table;

e2e! { "burst::repeated_bursts_fill_edge", Machine, repeated_bursts_fill_edge }
/// Fills the edge with the manifest's timeout and reservations. One replica fills it as well as kube-scheduler alone does, and
/// sends few pods there in vain. The two replicas of the manifests, behind one address, send somewhat more pods in vain, and
/// three more again. Without reservations the number is far higher.
fn repeated_bursts_fill_edge(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = nodes(fixture)?;
    let processors = Processors::now()?;
    let mut baselines = Vec::new();
    for _ in 0..3 {
        let at_the_edge = burst(fixture, &nodes, PODS, &json!({}), &nodes.edge_placement())?;
        baselines.push(at_the_edge.edge_millicores);
    }
    baselines.sort_unstable();
    let median = baselines[1];
    let share = |outcome: &Outcome| outcome.edge_millicores as f64 / median as f64;
    println!("burst: baselines {baselines:?} millicores at the edge");
    Table::Burst.row(
        "baseline: all pods select the edge, without edgeward (median of three)",
        &[&cores(median), &"–", &"–"],
    );

    for (replicas, least, most) in [(1, 0.95, PODS / 100), (2, 0.90, PODS / 50), (3, 0.90, PODS / 25)] {
        let meets = |outcome: &Outcome| {
            share(outcome) >= least
                && outcome.unschedulable <= most
                && outcome.undecided == 0
                && outcome.cloud_pods > PODS / 2
        };
        // The median of three runs counts, as for the baselines. It is settled once two runs agree.
        let (mut met, mut missed) = (0, 0);
        while met < 2 && missed < 2 {
            let outcome = decided(fixture, &nodes, PODS, replicas, Timing::Manifest("3s"), met + missed)?;
            println!(
                "burst: {replicas} deciding, {:.3} of the median: {outcome:?}",
                share(&outcome)
            );
            tabulate(&format!("{replicas} deciding"), &outcome);
            if meets(&outcome) {
                met += 1;
            } else {
                missed += 1;
            }
        }
        if missed == 2 {
            let words = format!(
                "{replicas} deciding: twice less than {least} of {median} millicores, more than {most} unschedulable or some undecided"
            );
            processors.excuse(&words)?;
            bail!(words);
        }
    }
    let without = decided(fixture, &nodes, PODS, 1, Timing::Manifest("0s"), 0)?;
    println!(
        "burst: without reservations {:.3} of the median: {without:?}",
        share(&without)
    );
    tabulate("one replica, `reservationTTL: 0s`", &without);
    ensure!(
        without.unschedulable > PODS / 50,
        "{without:?}: reservations make no difference"
    );
    Ok(())
}

e2e! { "burst::slow_webhook_leaves_no_pod_unschedulable", Machine, slow_webhook_leaves_no_pod_unschedulable }
/// Scales a Deployment from 0 to 200 as an autoscaler does. A validating webhook takes 2 s for each pod, so each reservation
/// (at most 3 s) lasts that long. The edge fills up, and no pod is sent there in vain.
fn slow_webhook_leaves_no_pod_unschedulable(fixture: &Fixture<'_>) -> Result<()> {
    const REPLICAS: usize = 200;
    const TAKES: Duration = Duration::from_secs(2);
    let nodes = nodes(fixture)?;
    let processors = Processors::now()?;
    let edgeward = fixture.live_edgeward(&nodes.config())?;
    let _registered = fixture.register_with_its_timeout(&edgeward.url, &edgeward.ca)?;
    let slow = fixture.slow_test_webhook(TAKES)?;
    let _validating = fixture.register_validating(&slow)?;
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
    fixture
        .kubectl
        .create(&fixture.in_its_domain(workloads::deployment("scaled", 0, slo)))?;

    let begun = Instant::now();
    let args = ["scale", "deployment", "scaled", &format!("--replicas={REPLICAS}")];
    fixture.kubectl.run(&args, "")?;
    let pods = eventually("every pod is bound or unschedulable", 4 * BOUND, || {
        settled(fixture, "app=scaled", REPLICAS)
    })?;
    let seconds = begun.elapsed().as_secs();
    let outcome = Outcome::of(&nodes, &pods);
    let expired = edgeward.count("edgeward_reservations_expired_total", &[])?;
    println!("burst: {REPLICAS} of one Deployment in {seconds} s, {expired} reservations expired: {outcome:?}");
    tabulate("one Deployment to 200, beside a validating webhook of 2 s", &outcome);
    let is_as_wanted =
        outcome.unschedulable == 0 && outcome.undecided == 0 && outcome.edge_millicores * 100 >= capacity() * 95;
    if !is_as_wanted {
        let words = format!("{expired} reservations expired, {outcome:?}");
        processors.excuse(&words)?;
        bail!(words);
    }
    Ok(())
}

fn tabulate(of: &str, outcome: &Outcome) {
    let found: [&dyn fmt::Display; 3] = [
        &cores(outcome.edge_millicores),
        &outcome.unschedulable,
        &outcome.cloud_pods,
    ];
    Table::Burst.row(of, &found);
}

fn cores(millicores: u64) -> String {
    format!("{:.1} cores", millicores as f64 / 1_000.0)
}
