//! Planned restarts of replicas under load.

use super::replicas::{REPLICAS, Replicas};
use super::{Pace, under_load};
use crate::prelude::*;

/// Replaces each of three replicas as a Deployment with `maxSurge: 1` and `maxUnavailable: 0` does. A new replica becomes
/// ready, then the old one is asked to stop, without waiting for its end.
pub fn rolled(fixture: &Fixture<'_>, nodes: &Nodes<'_>, pace: Pace) -> Result<()> {
    let mut replicas = Replicas::open(fixture, nodes, pace)?;
    let report = under_load(fixture, nodes, pace, |load| {
        let mut leaving = Vec::new();
        for i in 0..REPLICAS {
            replicas.add(&format!("new-{i}"))?;
            let old = replicas.members.remove(0);
            old.terminate()?;
            leaving.push(old);
            load.lasts(Duration::from_secs(1))?;
        }
        leaving.iter_mut().try_for_each(gone)?;
        load.lasts(Duration::from_secs(2))
    })?;
    println!("load: rolling restart: {report}");
    report.tabulate("each of three replaced, the next one ready before the last is asked to stop");
    report.is_clean()
}

pub fn gone(old: &mut Edgeward<'_>) -> Result<()> {
    eventually("the old one is gone", BOUND, || {
        let status = old.exit_status()?.context("it runs")?;
        ensure!(status.success(), "{status}");
        Ok(())
    })
}
