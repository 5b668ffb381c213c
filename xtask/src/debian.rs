//! Programs from Debian packages, if they are not installed: Prometheus with promtool, and a headless Chromium.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::{self, key, ready_made};
use crate::shell::{output, run_beside};
use crate::tools::NoTool;

pub(crate) const PROMETHEUS: &str = "EDGEWARD_PROMETHEUS";
pub(crate) const CHROMIUM: &str = "EDGEWARD_CHROMIUM";

/// Returns the program `prometheus`, with `promtool` in the same directory (20 MB). It is unpacked into the cache, because
/// installing the package would start a service.
pub(crate) fn prometheus() -> Result<PathBuf> {
    // Part of the cache key. Raise the number when what is unpacked changes.
    const RECIPE: &str = "2: usr/bin/{prometheus,promtool} of the running release";
    if let Some(program) = ready_made(PROMETHEUS)? {
        return Ok(program);
    }
    if let Some(installed) = installed(&["prometheus"]) {
        return Ok(installed);
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let dir = cache::root()?.join("prometheus").join(key(&[RECIPE, &release]));
    if !dir.is_dir() {
        ensure_apt("Prometheus", "https://prometheus.io/download", PROMETHEUS)?;
    }
    cache::once("Prometheus", &dir, |partial| {
        apt_get("Prometheus", partial, &["download", "prometheus"])?;
        let entries = fs::read_dir(partial)?.flatten().map(|entry| entry.path());
        let package = entries
            .into_iter()
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"));
        let package = package.context("apt-get downloaded no package")?;
        let tree = partial.join("tree");
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("-x").arg(&package).arg(&tree);
        run_beside("Prometheus", dpkg)?;
        for program in ["prometheus", "promtool"] {
            let packed = tree.join("usr/bin").join(program);
            fs::rename(packed, partial.join(program)).with_context(|| format!("the package has no {program}"))?;
        }
        fs::remove_dir_all(tree)?;
        Ok(fs::remove_file(package)?)
    })?;
    Ok(dir.join("prometheus"))
}

/// Returns a headless Chromium. It needs about forty libraries, so it is installed, which takes root.
pub(crate) fn chromium() -> Result<PathBuf> {
    const NAMES: [&str; 4] = [
        "chromium-headless-shell",
        "chrome-headless-shell",
        "chromium",
        "google-chrome",
    ];
    if let Some(program) = ready_made(CHROMIUM)? {
        return Ok(program);
    }
    if let Some(installed) = installed(&NAMES) {
        return Ok(installed);
    }
    let lacks = |why: &str| {
        NoTool(format!(
            "there is no Chromium, {why}: install one, or set {CHROMIUM} to the program"
        ))
    };
    let user = output(Command::new("id").arg("-u"))?;
    if user.as_deref() != Some("0") {
        return Err(lacks("and only root may install one").into());
    }
    ensure_apt("Chromium", "your distribution", CHROMIUM)?;
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", NAMES[0]];
    apt_get("Chromium", Path::new("/"), &install)?;
    installed(&NAMES).context("apt-get installed no Chromium")
}

fn installed(names: &[&str]) -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut programs = env::split_paths(&folders).flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    programs.find(|program| program.is_file())
}

fn ensure_apt(name: &str, from: &str, variable: &str) -> Result<()> {
    let found = output(Command::new("apt-get").arg("--version"))?;
    let words = format!("{name} is not installed and there is no apt-get: install it from {from}, or set {variable}");
    found.map(drop).ok_or_else(|| NoTool(words).into())
}

/// Runs apt-get in `here`. If it fails, fetches the package lists, which a fresh machine lacks, and tries again.
fn apt_get(name: &str, here: &Path, args: &[&str]) -> Result<()> {
    let apt_get = |args: &[&str]| {
        let mut apt_get = Command::new("apt-get");
        apt_get
            .args(args)
            .current_dir(here)
            .env("DEBIAN_FRONTEND", "noninteractive");
        run_beside(name, apt_get)
    };
    apt_get(args).or_else(|_| apt_get(&["update"]).and_then(|()| apt_get(args)))
}
