//! A real Prometheus server, and promtool beside it: the installed ones, or those of Debian's package unpacked into the
//! cache. Unpacked and not installed, for an installed one would start as a service.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache;
use crate::control_plane::key;
use crate::shell::{output, run_beside};

/// What it is called where several are at work.
pub(crate) const NAME: &str = "Prometheus";

/// Names a ready-made program.
pub(crate) const VARIABLE: &str = "EDGEWARD_PROMETHEUS";

/// Part of the cache key: raise it when what is unpacked changes.
const RECIPE: &str = "2: usr/bin/{prometheus,promtool} of the running release";

/// There is no Prometheus and no `apt-get` to bring it.
#[derive(Debug)]
pub(crate) struct NoPrometheus;

impl fmt::Display for NoPrometheus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Prometheus is not installed and there is no apt-get to bring it: install it from \
             https://prometheus.io/download, or set {VARIABLE} to the program"
        )
    }
}

impl std::error::Error for NoPrometheus {}

/// The program `prometheus`, which has `promtool` beside it, brought if it is not there yet (20 MB).
pub(crate) fn obtain() -> Result<PathBuf> {
    if let Some(program) = cache::ready_made_program(VARIABLE)? {
        return Ok(program);
    }
    if let Some(installed) = installed()? {
        return Ok(installed);
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let dir = cache::root()?.join("prometheus").join(key(&[RECIPE, &release]));
    if !dir.is_dir() {
        output(Command::new("apt-get").arg("--version"))?.ok_or(NoPrometheus)?;
    }
    cache::once(NAME, &dir, unpack)?;
    Ok(dir.join("prometheus"))
}

fn installed() -> Result<Option<PathBuf>> {
    let directories = env::var_os("PATH").unwrap_or_default();
    let programs = env::split_paths(&directories).map(|directory| directory.join("prometheus"));
    for program in programs.filter(|program| program.is_file()) {
        if output(Command::new(&program).arg("--version"))?.is_some() {
            return Ok(Some(program));
        }
    }
    Ok(None)
}

fn unpack(into: &Path) -> Result<()> {
    let apt_get = |args: &[&str]| {
        let mut apt_get = Command::new("apt-get");
        apt_get.args(args).current_dir(into);
        run_beside(NAME, apt_get)
    };
    let download = || apt_get(&["download", "prometheus"]);
    if download().is_err() {
        // A fresh machine has no lists of packages; only root may fetch them.
        apt_get(&["update"])?;
        download()?;
    }
    let package = fs::read_dir(into)?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .context("apt-get brought no package")?;
    let tree = into.join("tree");
    let mut dpkg = Command::new("dpkg");
    dpkg.arg("-x").arg(&package).arg(&tree);
    run_beside(NAME, dpkg)?;
    for program in ["prometheus", "promtool"] {
        let packed = tree.join("usr/bin").join(program);
        fs::rename(packed, into.join(program)).with_context(|| format!("the package has no {program}"))?;
    }
    fs::remove_dir_all(tree)?;
    Ok(fs::remove_file(package)?)
}
