//! Compares the simulation with edgeward on a real control plane, and trains as the guide does. Each takes minutes, so only
//! `cargo xtask soak` runs them.

// Helpers of tests panic, like tests.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

#[macro_use]
extern crate edgeward_harness;

mod simulation;
mod training;

use std::env;
use std::process::ExitCode;

use edgeward_harness::clusters::{self, Suite};
use edgeward_harness::peering::Layout;
use edgeward_harness::tables;

fn main() -> ExitCode {
    // `cargo test --workspace` builds the webhook into the parent of this program's folder.
    let program = env::current_exe().expect("this program's path");
    let folder = program
        .parent()
        .and_then(|deps| deps.parent())
        .expect("a build directory");
    let suite = Suite {
        target: "soak",
        edgeward: folder.join("edgeward").display().to_string().leak(),
        uses_every_right: false,
        peering: Layout::NONE,
        measures: false,
    };
    let ended = clusters::run(Box::leak(Box::new(suite)));
    tables::print();
    ended
}
