//! `cargo xtask check`: everything that can be said about the code without running it.

use std::process::Command;

use anyhow::Result;

use crate::cargo_tools;
use crate::report::{Report, timed};
use crate::shell::{cargo, run, run_beside, side_by_side, workspace};
use crate::suite::{CLUSTER, SOAK};

const CARGO_DENY: &str = "0.20.2";

/// The manifest of the fuzz targets, a workspace of their own.
const FUZZ: &str = "fuzz/Cargo.toml";

/// In stages that say how long they took; the first that fails is the last.
pub(crate) fn check() -> Result<()> {
    Report::of(|report| {
        report.stage("fmt", || {
            run(&mut cargo(["fmt", "--all", "--check"]))?;
            run(&mut cargo(["fmt", "--manifest-path", FUZZ, "--check"]))
        })?;
        // It compiles nothing of ours, and the first time is itself compiled.
        let ((stage, dependencies), code) = side_by_side(|| timed("deny", dependencies), || code(report));
        report.add([stage]);
        code.and(dependencies)
    })
}

fn code(report: &mut Report) -> Result<()> {
    const STRICT: [&str; 3] = ["--", "-D", "warnings"];
    report.stage("clippy", || {
        run(cargo(["clippy", "--workspace", "--all-targets", "--locked"]).args(STRICT))?;
        // `--all-targets` leaves out targets with `test = false` or `bench = false`.
        run(cargo(["clippy", "--workspace", "--test", SOAK, "--bench", CLUSTER, "--locked"]).args(STRICT))
    })?;
    report.stage("doc", || {
        run(cargo(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"))
    })
}

/// Also those of the fuzz targets, whose lock file must be as complete.
fn dependencies() -> Result<()> {
    let program = cargo_tools::obtain("cargo-deny", CARGO_DENY)?;
    ["Cargo.toml", FUZZ].into_iter().try_for_each(|manifest| {
        let mut deny = Command::new(&program);
        deny.args(["--locked", "--workspace", "--manifest-path", manifest])
            .args(["check", "bans", "licenses", "sources"])
            .current_dir(workspace());
        run_beside("deny", deny)
    })
}
