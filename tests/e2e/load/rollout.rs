//! Rolling updates at a nearly full edge, with a cloud that would take every pod.

use edgeward_harness::prelude::*;
use edgeward_harness::rollout::{roll_out, strategies};
use edgeward_harness::timing::TooBusy;

e2e! { "rollout::stays_at_the_edge", Domain, 93, stays_at_the_edge }
/// A rollout of nine replicas that take nine tenths of the edge, and 6 s to terminate, though they may take a minute: with more pods
/// for a while, and with two fewer. With `waitForTerminating` it leaves no more in the cloud than one step of it; without, it
/// leaves more than that, and no pod waits. What is in the cloud is the first to go when the Deployment shrinks. [`TooBusy`] where
/// pods are created so late, or seen to end so late, that there is no such difference, though there is one.
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
