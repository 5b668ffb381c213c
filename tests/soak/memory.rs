//! Resident memory, while others create as much as they may.

use edgeward_harness::hostile_pods::{Amounts, watched};
use edgeward_harness::prelude::*;
use edgeward_harness::tables::Table;

const AMOUNTS: Amounts = Amounts {
    largest: 210,
    gated: 2_000,
    managed: 10_000,
    gated_bytes: 24_000,
};

/// By how many MiB a replica may grow for one kind of pods.
const GROWTH: u64 = 64;

/// The same for all three kinds together, each with the most that is kept of a pod.
const GROWTH_OF_ALL: u64 = 80;

e2e! { "memory::hostile_pods", Machine, hostile_pods }
/// The largest pods that there can be, and many behind our gate.
fn hostile_pods(fixture: &Fixture<'_>) -> Result<()> {
    let found = watched(fixture, AMOUNTS)?;
    for (what, growth) in &found {
        Table::HostilePods.row(what, &[&(growth.most / 1024), &(growth.kept / 1024)]);
    }
    println!("memory: KiB: {found:?}");
    let bound = |what: &str| {
        if what.starts_with("listed ") {
            GROWTH_OF_ALL
        } else {
            GROWTH
        }
    };
    ensure!(
        found.iter().all(|(what, growth)| growth.most < bound(what) * 1024),
        "{found:?}"
    );
    Ok(())
}
