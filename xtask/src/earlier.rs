//! The version of edgeward that the upgrade tests start from. Its program, manifests and chart are built once from this
//! checkout's history. They go into a cache directory, keyed by the commit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{self, key, ready_made};
use crate::shell::{cargo, output, run, run_beside, workspace};
use crate::tools::NoTool;

const NAME: &str = "earlier edgeward";

pub(crate) const VARIABLE: &str = "EDGEWARD_EARLIER";

/// This version has no policies that confine edgeward, and keeps its configuration in a ConfigMap with a fixed name.
const COMMIT: &str = "f8ee3c5584a8a7d411b851d83bdd6a8acca26569";

const PROGRAM: &str = "edgeward";

const FOLDERS: [&str; 3] = ["certs", "deploy", "webhook"];

/// Part of the cache key. Raise the number when the build below changes its result.
const RECIPE: &str = "1: unoptimised, stripped";

/// Returns the directory with the program and these folders, and builds it if needed (three minutes on two cores). Reports
/// progress on stderr.
///
/// # Errors
/// [`NoTool`] if the checkout does not have the commit, for example a shallow clone. Other errors if it does not build.
pub(crate) fn obtain() -> Result<PathBuf> {
    if let Some(dir) = ready_made(VARIABLE)? {
        return Ok(dir);
    }
    let dir = cache::root()?.join("earlier").join(key(&[RECIPE, COMMIT]));
    if !dir.is_dir() && !matches!(output(git().args(["cat-file", "-e", COMMIT])), Ok(Some(_))) {
        let words = format!("this checkout does not have commit {COMMIT}: git fetch --unshallow, or set {VARIABLE}");
        return Err(NoTool(words).into());
    }
    cache::once(NAME, &dir, |partial| {
        eprintln!("{NAME} | building {COMMIT} into {}", dir.display());
        build(partial)
    })?;
    Ok(dir)
}

fn git() -> Command {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*"]).current_dir(workspace());
    git
}

fn build(into: &Path) -> Result<()> {
    let (source, target) = (into.join("source"), into.join("target"));
    fs::create_dir(&source)?;
    let archive = into.join("source.tar");
    run(git().args(["archive", "--output"]).arg(&archive).arg(COMMIT))?;
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
