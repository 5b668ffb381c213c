//! What edgeward costs in a cluster: the release program on a real control plane, beside other webhooks and beside none. Run by
//! `cargo xtask bench` alone; docs/performance.md has the results.
//!
//! Client, control plane and webhooks share the machine, so that differences within one run are what counts.

mod contenders;
mod create;
mod differences;
mod etcd;
mod fleet;
mod peers;
mod pods;
mod watching;

use std::process::ExitCode;

use edgeward_harness::clusters::{self, Suite, Test};
use edgeward_harness::control_plane::FailureDetection;
use edgeward_harness::peering::Layout;
use edgeward_harness::side_by_side::Needs::Machine;

/// Each prints a table.
const BENCHES: &[Test] = &[
    ("create::beside_others", Machine, create::beside_others),
    ("pods::of_jobs", Machine, pods::of_jobs),
    ("watching::by_a_replica", Machine, watching::by_a_replica),
];

/// Nobody peers.
const NONE: Layout = Layout {
    clouds: &[],
    detection: FailureDetection::AsDefault,
};

static SUITE: Suite = Suite {
    target: "cluster",
    edgeward: env!("CARGO_BIN_EXE_edgeward"),
    tests: BENCHES,
    uses_every_right: false,
    peering: NONE,
    measures: true,
};

fn main() -> ExitCode {
    clusters::run(&SUITE)
}
