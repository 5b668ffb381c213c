//! Cargo tools, each pinned to one version.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::cache;
use crate::shell::{cargo, output, run_beside};

/// Returns the program of this version. Uses the installed one if it matches. Otherwise builds it once into the cache, with
/// these options of `cargo install`.
///
/// Builds without optimisation and debug information. The tool runs for seconds, and its own release profile would take minutes
/// longer to build. Each tool has its own target directory, because their lock files rarely share versions of dependencies.
pub(crate) fn obtain(name: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    let installed = output(Command::new(name).arg("--version")).ok().flatten();
    let said = installed.as_deref().and_then(|said| said.split_whitespace().last());
    if said.is_some_and(|said| said.trim_start_matches('v') == version) {
        return Ok(PathBuf::from(name));
    }
    let dir = cache::root()?.join(name).join(version);
    cache::once(name, &dir, |partial| {
        let target = partial.join("target");
        let mut install = cargo(["install", name, "--version", version, "--locked", "--debug", "--quiet"]);
        install
            .arg("--root")
            .arg(partial)
            .arg("--target-dir")
            .arg(&target)
            .args(options)
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        run_beside(name, install)?;
        Ok(fs::remove_dir_all(target)?)
    })?;
    Ok(dir.join("bin").join(name))
}
