//! What edgeward costs in a cluster: the release program on a real control plane, beside other webhooks and beside none. Run by
//! `cargo xtask bench` alone; docs/design/performance.md has the results.
//!
//! Client, control plane and webhooks share the machine, so that differences within one run are what counts.

#[macro_use]
extern crate edgeward_harness;

mod contenders;
mod create;
mod differences;
mod etcd;
mod fleet;
mod peers;
mod pods;
mod watching;

use std::process::ExitCode;

use edgeward_harness::clusters::{self, Suite};
use edgeward_harness::peering::Layout;

static SUITE: Suite = Suite {
    target: "cluster",
    edgeward: env!("CARGO_BIN_EXE_edgeward"),
    uses_every_right: false,
    peering: Layout::NONE,
    measures: true,
};

fn main() -> ExitCode {
    clusters::run(&SUITE)
}
