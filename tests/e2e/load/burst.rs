//! Many clients create more pods at once than the edge can hold.

use edgeward_harness::burst::{Timing, capacity, decided, nodes};
use edgeward_harness::prelude::*;

e2e! { "burst::fills_the_edge", Domain, 87, fills_the_edge }
/// One replica fills the edge and sends few pods there in vain. The webhook timeout is the longest possible, and no reservation
/// ends before its pod is seen, so a busy machine does not matter.
fn fills_the_edge(fixture: &Fixture<'_>) -> Result<()> {
    const PODS: usize = 500;
    let nodes = nodes(fixture)?;
    let outcome = decided(fixture, &nodes, PODS, 1, Timing::LongTimeout, 0)?;
    let capacity = capacity();
    println!("burst: {PODS} pods, {capacity} millicores at the edge: {outcome:?}");
    ensure!(
        outcome.undecided == 0
            && outcome.edge_millicores * 100 >= capacity * 95
            && outcome.unschedulable <= PODS / 50
            && outcome.cloud_pods > PODS / 3,
        "{outcome:?}"
    );
    Ok(())
}
