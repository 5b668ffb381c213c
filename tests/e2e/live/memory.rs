//! Resident memory, while others create pods.

use edgeward_harness::hostile_pods::{Amounts, watched};
use edgeward_harness::prelude::*;

/// So few that they take seconds, and so many that their growth would show.
const AMOUNTS: Amounts = Amounts {
    largest: 14,
    gated: 40,
    managed: 40,
    gated_bytes: 700_000,
};

/// By how many MiB a replica may grow: what is in memory of one pod on its way, whatever their number.
const GROWTH: u64 = 64;

e2e! { "live::hostile_pods", Cluster, hostile_pods }
/// The largest pods that there can be and many behind our gate take no memory, and change no verdict.
fn hostile_pods(fixture: &Fixture<'_>) -> Result<()> {
    let found = watched(fixture, AMOUNTS)?;
    println!("memory: KiB: {found:?}");
    ensure!(found.iter().all(|(_, growth)| growth.most < GROWTH * 1024), "{found:?}");
    Ok(())
}
