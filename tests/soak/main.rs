//! Long tests of edgeward on a real control plane, with minutes of load or of idle time. Only `cargo xtask soak` runs them.

#[macro_use]
extern crate edgeward_harness;

mod burst;
mod groups;
mod liqo;
mod load;
mod memory;
mod moves;
mod profiles;
mod rollout;

use std::process::ExitCode;

use edgeward_harness::clusters::{self, Suite};
use edgeward_harness::tables;

static SUITE: Suite = Suite {
    target: "soak",
    edgeward: env!("CARGO_BIN_EXE_edgeward"),
    uses_every_right: false,
    peering: liqo::NEAR_AND_FAR,
    measures: false,
};

fn main() -> ExitCode {
    let ended = clusters::run(&SUITE);
    tables::print();
    ended
}
