//! Rolling updates at a nearly full edge, with a cloud that would take every pod.

use edgeward_harness::prelude::*;
use edgeward_harness::rollout::{roll_out, strategies};
use edgeward_harness::scripts::TooBusy;

e2e! { "rollout::stays_at_the_edge", Domain, 93, stays_at_the_edge }
/// Rolls out nine replicas that use nine tenths of the edge. They terminate within 6 s, although their grace period is a
/// minute. One strategy adds pods for a while, the other removes two.
///
/// With `waitForTerminating`, a rollout leaves at most one step's pods in the cloud. Without it, the rollout leaves more there,
/// and no pod waits. When the Deployment shrinks, its pods in the cloud go first. Returns [`TooBusy`] if pods are created or
/// seen to end so late that this difference disappears.
fn stays_at_the_edge(fixture: &Fixture<'_>) -> Result<()> {
    let mut too_busy = Ok(());
    let [more, _, fewer] = strategies();
    for rolled in roll_out(fixture, &[more, fewer], 1)? {
        let (waiting, without, step) = (rolled.waiting[0], rolled.without[0], rolled.step);
        ensure!(
            without <= step || waiting < without,
            "{rolled}; waiting makes no difference"
        );
        if waiting > step || without <= step {
            too_busy = Err(TooBusy(rolled.to_string()).into());
        }
    }
    too_busy
}
