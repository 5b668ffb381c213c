//! Rolling updates at a nearly full edge, with a cloud that would take every pod.

use edgeward_harness::prelude::*;
use edgeward_harness::rollout::{roll_out, strategies};

e2e! { "rollout::three_in_a_row", Machine, three_in_a_row }
/// Three rollouts of each kind in a row, on an otherwise idle machine.
fn three_in_a_row(fixture: &Fixture<'_>) -> Result<()> {
    for rolled in roll_out(fixture, &strategies(), 3)? {
        let step = rolled.step;
        ensure!(rolled.waiting.iter().all(|share| *share <= step), "{rolled}");
        ensure!(rolled.without[0] > step, "{rolled}; waiting makes no difference");
    }
    Ok(())
}
