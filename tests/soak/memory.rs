//! Resident memory while other clients create as many large objects as they may.

use edgeward_harness::hostile_pods::{Amounts, watched};
use edgeward_harness::prelude::*;
use edgeward_harness::tables::Table;

const AMOUNTS: Amounts = Amounts {
    largest: 210,
    gated: 2_000,
    managed: 10_000,
    gated_bytes: 24_000,
};

/// Most MiB that a replica may grow for one kind of pods.
const GROWTH: u64 = 64;

/// Most MiB that a replica may grow for all three kinds together. Each kind has the largest pod content that edgeward keeps.
const GROWTH_OF_ALL: u64 = 80;

e2e! { "memory::hostile_pods", Machine, hostile_pods }
/// Creates the largest pods that the API server accepts, many of them behind edgeward's gate.
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
