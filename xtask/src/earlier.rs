//! The version of edgeward that the tests upgrade from, built once from the history of this checkout: its program, its manifests and
//! its chart. A directory of the cache, keyed by its commit, gets them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cache;
use crate::control_plane::key;
use crate::shell::{cargo, run, run_beside, workspace};

/// What it is called where several are at work.
pub(crate) const NAME: &str = "earlier edgeward";

/// Names a directory with a ready-made one.
pub(crate) const VARIABLE: &str = "EDGEWARD_EARLIER";

/// Without policies that confine edgeward, and with its configuration in a ConfigMap of one name.
const COMMIT: &str = "f8ee3c5584a8a7d411b851d83bdd6a8acca26569";

const PROGRAM: &str = "edgeward";

/// What is installed of it.
const FOLDERS: [&str; 3] = ["certs", "deploy", "webhook"];

/// Part of the cache key: raise it when the build below changes what comes out.
const RECIPE: &str = "1: unoptimised, stripped";

/// The directory with the program and these folders, built if it is not there yet (three minutes on two cores). Says on stderr what
/// it does.
///
/// # Errors
/// The checkout has not the commit, or it does not build.
pub(crate) fn obtain() -> Result<PathBuf> {
    if let Some(dir) = cache::ready_made(VARIABLE, missing)? {
        return Ok(dir);
    }
    let dir = cache::root()?.join("earlier").join(key(&[RECIPE, COMMIT]));
    cache::once(NAME, &dir, |partial| {
        eprintln!("{NAME} | building {COMMIT} into {}", dir.display());
        build(partial)
    })?;
    Ok(dir)
}

/// What `dir` would need to be a whole one.
fn missing(dir: &Path) -> Vec<&'static str> {
    let mut parts: Vec<_> = [PROGRAM].into_iter().chain(FOLDERS).collect();
    parts.retain(|part| !dir.join(part).exists());
    parts
}

fn build(into: &Path) -> Result<()> {
    let (source, target) = (into.join("source"), into.join("target"));
    fs::create_dir(&source)?;
    let archive = into.join("source.tar");
    // Whoever owns the checkout.
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*", "archive", "--output"])
        .arg(&archive)
        .arg(COMMIT)
        .current_dir(workspace());
    if let Err(error) = run(&mut git) {
        bail!(
            "{error:#}; a checkout without its history has not this commit: git fetch --unshallow, or set {VARIABLE}"
        );
    }
    run(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source))?;
    let mut build = cargo(["build", "--locked", "--bin", PROGRAM]);
    build
        .args([
            "--config",
            "profile.dev.debug=false",
            "--config",
            "profile.dev.strip=true",
        ])
        .args(["--config", "profile.dev.package.'*'.opt-level=0"])
        .current_dir(&source)
        .env("CARGO_TARGET_DIR", &target);
    run_beside(NAME, build)?;
    fs::rename(target.join("debug").join(PROGRAM), into.join(PROGRAM))?;
    for folder in FOLDERS {
        fs::rename(source.join(folder), into.join(folder)).with_context(|| folder.to_owned())?;
    }
    fs::remove_file(&archive)?;
    fs::remove_dir_all(&source)?;
    Ok(fs::remove_dir_all(&target)?)
}
