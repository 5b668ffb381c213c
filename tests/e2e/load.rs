//! Many pods, while something happens to edgeward or to them.

pub(crate) mod burst;
pub(crate) mod rollout;

use anyhow::Result;
use edgeward_harness::fixture::Fixture;
use edgeward_harness::load::Pace;
use edgeward_harness::load::replicas::nodes;
use edgeward_harness::load::restarts::rolled;
use edgeward_harness::rotation::files_rotated;

e2e! { "load::rolling_restart", Domain, 89, rolling_restart }
/// Each of three replicas is replaced, and every pod is decided.
fn rolling_restart(fixture: &Fixture<'_>) -> Result<()> {
    rolled(fixture, &nodes(fixture)?, Pace::Adaptive(20))
}

e2e! { "load::rotation_files", Cluster, rotation_files }
/// In the mounted Secret the certificate is replaced, then its CA. Every pod is decided.
fn rotation_files(fixture: &Fixture<'_>) -> Result<()> {
    files_rotated(fixture, &nodes(fixture)?, Pace::Adaptive(20))
}
