//! Many clients create pods at once, far more than the edge has room for: how much of it is used, and how many pods are
//! sent to an edge that is full already.

use std::fmt;

use anyhow::{Result, bail, ensure};
use edgeward_harness::burst::{Outcome, Timing, burst, decided, nodes};
use edgeward_harness::clients::PODS;
use edgeward_harness::fixture::Fixture;
use edgeward_harness::load::Processors;
use edgeward_harness::tables::Table;
use serde_json::json;

/// One replica fills the edge as well as kube-scheduler alone does, and sends few pods there in vain; three behind one
/// address somewhat more; without reservations it is far more than either. With the timeout and reservations of the manifest.
pub(crate) fn fills_the_edge_again_and_again(fixture: &Fixture<'_>) -> Result<()> {
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

    for (replicas, least, most) in [(1, 0.95, PODS / 100), (3, 0.90, PODS / 50)] {
        let meets = |outcome: &Outcome| {
            share(outcome) >= least
                && outcome.unschedulable <= most
                && outcome.undecided == 0
                && outcome.cloud_pods > PODS / 2
        };
        // Of three the median counts, as of the baselines: it is settled when two agree.
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
