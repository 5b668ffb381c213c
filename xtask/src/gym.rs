//! `cargo xtask gym`: the Python package `edgeward-gym`, which maturin builds.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{self, key, ready_made};
use crate::cargo_tools;
use crate::debian;
use crate::shell::{output, run_beside, without_own_environment, workspace};
use crate::static_program::target_folder;
use crate::tools::NoTool;

/// The variable that names a Python with the package.
pub(crate) const GYM: &str = "EDGEWARD_GYM";

/// The manifest of the package, which has a workspace of its own.
pub(crate) const MANIFEST: &str = "python/Cargo.toml";

/// Returns a Python that has the package and what it needs.
pub(crate) fn obtain() -> Result<PathBuf> {
    if let Some(python) = ready_made(GYM)? {
        return Ok(python);
    }
    let version = match version() {
        Some(version) => version,
        None => {
            debian::pip(GYM)?;
            let words = format!("there is no Python 3.11 or later with pip: install it, or set {GYM}");
            version().ok_or(NoTool(words))?
        }
    };
    let requirements = workspace().join("python/requirements.txt");
    let listed = requirements.display().to_string();
    let needed = cache::root()?
        .join("gym")
        .join(key(&[&fs::read_to_string(&requirements)?, &version]));
    cache::once("gym", &needed, |partial| {
        cargo_tools::pip("gym", &["--requirement", &listed], partial)
    })?;

    let folder = target_folder().join("python");
    let wheels = folder.join("wheels");
    let package = folder.join("package");
    for old in [&wheels, &package] {
        if old.exists() {
            fs::remove_dir_all(old)?;
        }
    }
    let mut maturin = Command::new(needed.join("bin/maturin"));
    without_own_environment(&mut maturin);
    maturin
        .args(["build", "--manifest-path", MANIFEST, "--target-dir"])
        .arg(&folder);
    maturin.arg("--out").arg(&wheels).current_dir(workspace());
    run_beside("gym", maturin)?;
    let wheel = fs::read_dir(&wheels)?.next().context("maturin built no wheel")??.path();
    cargo_tools::pip("gym", &[&wheel.display().to_string()], &package)?;

    let python = folder.join("python");
    let path = format!("{}:{}", package.display(), needed.display());
    fs::write(&python, format!("#!/bin/sh\nPYTHONPATH='{path}' exec python3 \"$@\"\n"))?;
    fs::set_permissions(&python, fs::Permissions::from_mode(0o755))?;
    Ok(python)
}

/// Returns the version of Python. `None` if it is missing, has no pip, or is too old for the package.
fn version() -> Option<String> {
    let script = "import pip, sys; assert sys.version_info >= (3, 11); print(sys.version)";
    output(Command::new("python3").args(["-c", script])).ok()?
}
