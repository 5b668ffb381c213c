//! Measures the cost of edgeward in a cluster. The release program runs on a real control plane, and is compared with other
//! webhooks and with no webhook. Only `cargo xtask bench` runs these benchmarks; docs/design/performance.md has the results.
//!
//! Client, control plane and webhooks share the machine, so only the differences within one run are meaningful.

#[macro_use]
extern crate edgeward_harness;

mod contenders;
mod create;
mod differences;
mod etcd;
mod fleet;
mod groups;
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
