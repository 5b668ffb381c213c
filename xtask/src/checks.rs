//! `cargo xtask test`, `cargo xtask wan` and `cargo xtask check`: what has to pass before a change is merged.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::cache;
use crate::cert_manager;
use crate::control_plane;
use crate::go::NoGo;
use crate::helm;
use crate::prometheus::{self, NoPrometheus};
use crate::shell::{cargo, output, run, workspace};

const CARGO_DENY: &str = "0.20.2";

/// Every test of the workspace. The control plane, cert-manager, Helm and Prometheus are obtained first, where progress can be
/// seen; where they cannot be had the tests themselves say what that means (skipped, or under `CI=true` a failure).
pub(crate) fn test(extra: &[String]) -> Result<()> {
    let mut tests = cargo(["test", "--workspace", "--locked"]);
    tests.args(extra);
    match control_plane::obtain() {
        Ok(dir) => drop(tests.env(control_plane::VARIABLE, dir)),
        Err(error) if error.is::<NoGo>() => {}
        Err(error) => return Err(error),
    }
    match cert_manager::obtain() {
        Ok(dir) => drop(tests.env(cert_manager::VARIABLE, dir)),
        Err(error) if error.is::<NoGo>() => {}
        Err(error) => return Err(error),
    }
    match helm::obtain() {
        Ok(program) => drop(tests.env(helm::VARIABLE, program)),
        Err(error) if error.is::<NoGo>() => {}
        Err(error) => return Err(error),
    }
    match prometheus::obtain() {
        Ok(program) => drop(tests.env(prometheus::VARIABLE, program)),
        Err(error) if error.is::<NoPrometheus>() => {}
        Err(error) => return Err(error),
    }
    run(&mut tests)
}

/// The tests over an emulated WAN, a part of [`test()`]. Where the system has no place for one, they say what is missing
/// and are skipped, or under `CI=true` fail.
pub(crate) fn wan(trials: &[String]) -> Result<()> {
    run(cargo(["test", "--locked", "--test", "wan", "--"]).args(trials))
}

/// Everything that can be said about the code without running the whole of it.
pub(crate) fn check() -> Result<()> {
    run(&mut cargo(["fmt", "--all", "--check"]))?;
    run(&mut cargo([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    // The inner ring compiles and passes its tests without any crate that does I/O, and calls nothing of std that does.
    run(&mut cargo(["check", "--locked", "--no-default-features", "--lib"]))?;
    run(&mut cargo([
        "clippy",
        "--locked",
        "--no-default-features",
        "--lib",
        "--",
        "-D",
        "warnings",
    ]))?;
    run(&mut cargo(["test", "--locked", "--no-default-features", "--lib"]))?;
    run(cargo(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    let mut deny = Command::new(cargo_deny()?);
    run(deny
        .args(["--locked", "check", "bans", "licenses", "sources"])
        .current_dir(workspace()))
}

/// The pinned cargo-deny: the installed one if it is that version, else one of our own in the cache.
fn cargo_deny() -> Result<PathBuf> {
    let installed = output(Command::new("cargo-deny").arg("--version"))?;
    if installed.is_some_and(|version| version.ends_with(CARGO_DENY)) {
        return Ok(PathBuf::from("cargo-deny"));
    }
    let dir = cache::root()?.join(format!("cargo-deny/{CARGO_DENY}"));
    cache::once(&dir, |partial| {
        let target = partial.join("target");
        run(cargo(["install", "cargo-deny", "--locked", "--version", CARGO_DENY])
            .args([
                "--root".as_ref(),
                partial.as_os_str(),
                "--target-dir".as_ref(),
                target.as_os_str(),
            ])
            .env_remove("CARGO_TARGET_DIR"))?;
        Ok(fs::remove_dir_all(target)?)
    })?;
    Ok(dir.join("bin/cargo-deny"))
}
