//! Rolling updates at a nearly full edge, with a cloud that would take every pod.

use edgeward_harness::prelude::*;
use edgeward_harness::rollout::{roll_out, strategies};

e2e! { "rollout::repeated_rollouts_stay_at_edge", Machine, repeated_rollouts_stay_at_edge }
/// Three rollouts of each kind in a row, on an otherwise idle machine.
fn repeated_rollouts_stay_at_edge(fixture: &Fixture<'_>) -> Result<()> {
    for rolled in roll_out(fixture, &strategies(), 3)? {
        let step = rolled.step;
        ensure!(rolled.waiting.iter().all(|share| *share <= step), "{rolled}");
        ensure!(rolled.without[0] > step, "{rolled}; waiting makes no difference");
    }
    Ok(())
}
