//! Many pods, while something happens to edgeward or to them.

pub(crate) mod burst;
pub(crate) mod rollout;

use anyhow::Result;
use edgeward_harness::fixture::Fixture;
use edgeward_harness::load::Pace;
use edgeward_harness::load::replicas::nodes;
use edgeward_harness::load::restarts::rolled;
use edgeward_harness::rotation::files_rotated;

e2e! { "load::rolling_restart_decides_every_pod", Domain, 89, rolling_restart_decides_every_pod }
/// Each of three replicas is replaced, and every pod is decided.
fn rolling_restart_decides_every_pod(fixture: &Fixture<'_>) -> Result<()> {
    rolled(fixture, &nodes(fixture)?, Pace::Adaptive(20))
}

e2e! { "load::file_rotation_decides_every_pod", Cluster, file_rotation_decides_every_pod }
/// In the mounted Secret the certificate is replaced, then its CA. Every pod is decided.
fn file_rotation_decides_every_pod(fixture: &Fixture<'_>) -> Result<()> {
    files_rotated(fixture, &nodes(fixture)?, Pace::Adaptive(20))
}
