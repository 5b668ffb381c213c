//! Resident memory while other clients create pods.

use edgeward_harness::hostile_pods::{Amounts, watched};
use edgeward_harness::prelude::*;

/// Few enough to take seconds, and enough to show growth.
const AMOUNTS: Amounts = Amounts {
    largest: 14,
    gated: 40,
    managed: 40,
    gated_bytes: 700_000,
};

/// Most MiB that a replica may grow. This covers pods in flight and does not depend on their number.
const GROWTH: u64 = 64;

e2e! { "live::hostile_pods", Cluster, hostile_pods }
/// The largest possible pods, and many pods behind the gate, take no lasting memory and change no verdict.
fn hostile_pods(fixture: &Fixture<'_>) -> Result<()> {
    let found = watched(fixture, AMOUNTS)?;
    println!("memory: KiB: {found:?}");
    ensure!(found.iter().all(|(_, growth)| growth.most < GROWTH * 1024), "{found:?}");
    Ok(())
}
