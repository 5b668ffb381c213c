//! Replicas stop, die and freeze under load.

use edgeward_harness::load::replicas::{Replicas, nodes};
use edgeward_harness::load::restarts::{gone, rolled};
use edgeward_harness::load::{Report, highest_steady, under_load};
use edgeward_harness::prelude::*;

e2e! { "load::steady_rolling_restart_decides_every_pod", Machine, steady_rolling_restart_decides_every_pod }
fn steady_rolling_restart_decides_every_pod(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = nodes(fixture)?;
    rolled(fixture, &nodes, highest_steady(fixture, &nodes)?)
}

e2e! { "load::next_leader_reports_undecided_pods", Machine, next_leader_reports_undecided_pods }
/// Stops the leader gracefully, which only its successor notices. Then kills that successor. The next leader reports the pods
/// that were created meanwhile without a decision.
fn next_leader_reports_undecided_pods(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = nodes(fixture)?;
    let pace = highest_steady(fixture, &nodes)?;
    let mut replicas = Replicas::open(fixture, &nodes, pace)?;
    decided_before(fixture)?;

    let report = under_load(fixture, &nodes, pace, |load| {
        let mut old = replicas.take_leader()?;
        old.terminate()?;
        let next = replicas.take_leader()?;
        replicas.members.push(next);
        gone(&mut old)?;
        load.lasts(Duration::from_secs(2))
    })?;
    println!("load: SIGTERM of the leader: {report}");
    report.tabulate("SIGTERM of the leader");
    report.is_clean()?;

    replicas.add("third")?;
    let (mut killed, mut dropped) = (Duration::ZERO, Duration::ZERO);
    let report = under_load(fixture, &nodes, pace, |load| {
        let mut leader = replicas.take_leader()?;
        killed = load.time();
        leader.kill()?;
        replicas.balancer.drops(&leader)?;
        dropped = load.time();
        load.lasts(Duration::from_secs(3))
    })?;
    println!("load: SIGKILL of the leader: {report}");
    let lost = (dropped - killed).as_secs_f64();
    report.tabulate(&format!("SIGKILL of the leader, dropped after {lost:.1} s"));
    only_between(&report, killed, dropped)?;
    replicas.report(report.undecided.len())
}

e2e! { "load::frozen_replica_fails_only_until_dropped", Machine, frozen_replica_fails_only_until_dropped }
/// Freezes one of three replicas. The API server notices only by timeouts: one second for each connection.
fn frozen_replica_fails_only_until_dropped(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = nodes(fixture)?;
    let pace = highest_steady(fixture, &nodes)?;
    let mut replicas = Replicas::open(fixture, &nodes, pace)?;
    decided_before(fixture)?;
    let leader = replicas.take_leader()?;
    replicas.members.push(leader);

    let (mut frozen, mut dropped) = (Duration::ZERO, Duration::ZERO);
    let report = under_load(fixture, &nodes, pace, |load| {
        frozen = load.time();
        replicas.members[0].freeze()?;
        replicas.balancer.drops(&replicas.members[0])?;
        dropped = load.time();
        load.lasts(Duration::from_secs(5))
    })?;
    println!("load: SIGSTOP of one: {report}");
    let lost = (dropped - frozen).as_secs_f64();
    report.tabulate(&format!("SIGSTOP of one, dropped after {lost:.1} s"));
    only_between(&report, frozen, dropped)?;
    replicas.report(report.undecided.len())
}

/// Creates a pod that gets a decision and stays. In each namespace, the backstop considers only pods created after the first
/// decided one.
fn decided_before(fixture: &Fixture<'_>) -> Result<()> {
    let pod = workloads::pod("decided-before", workloads::latency());
    fixture.kubectl.create(&pod).map(drop)
}

/// Fails in three cases: a pod was not created; a pod without a decision was created before the replica was lost or after it
/// was dropped; the API server counts fewer failures than there are undecided pods.
fn only_between(report: &Report, lost: Duration, dropped: Duration) -> Result<()> {
    // Requests in flight at that moment began up to one webhook timeout (1 s) earlier.
    let from = lost.saturating_sub(Duration::from_secs(1));
    let is_outside = |begun: &&Duration| **begun < from || **begun > dropped;
    let outside: Vec<_> = report.undecided.iter().filter(is_outside).collect();
    println!(
        "load: {} undecided in {:.1} s, until it got no more connections, and {} otherwise",
        report.undecided.len() - outside.len(),
        (dropped - lost).as_secs_f64(),
        outside.len()
    );
    report.has_no_failure()?;
    // The metric appears only after the first failure, so a wrong name fails here. The API server may count more failures than
    // undecided pods: it refuses a request that takes too long afterwards, and the client retries.
    ensure!(report.failed_open >= report.undecided.len() as u64, "{report}");
    match outside.is_empty() {
        true => Ok(()),
        false => report.blame(format!(
            "lost at {lost:?}, dropped at {dropped:?}: {outside:?}; {report}"
        )),
    }
}
