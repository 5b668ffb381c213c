//! Programs from Debian packages, if they are not installed: Prometheus with promtool, a headless Chromium, buildah, skopeo, a
//! registry of images and network tools.

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
const BUILDAH: &str = "EDGEWARD_BUILDAH";
const SKOPEO: &str = "EDGEWARD_SKOPEO";
const REGISTRY: &str = "EDGEWARD_REGISTRY";
pub(crate) const IP: &str = "EDGEWARD_IP";

/// Returns the program `prometheus`, with `promtool` in the same directory (20 MB).
pub(crate) fn prometheus() -> Result<PathBuf> {
    let wanted = ["usr/bin/prometheus", "usr/bin/promtool"];
    ready_made_or_unpacked("prometheus", &wanted, PROMETHEUS)
}

/// Returns a registry of images (5 MB).
pub(crate) fn registry() -> Result<PathBuf> {
    ready_made_or_unpacked("docker-registry", &["usr/bin/docker-registry"], REGISTRY)
}

/// Returns the program that has the package's name. It is unpacked into the cache, because installing the package would start a
/// service.
fn ready_made_or_unpacked(package: &str, wanted: &[&str], variable: &str) -> Result<PathBuf> {
    if let Some(program) = ready_made(variable)? {
        return Ok(program);
    }
    if let Some(installed) = installed(&[package]) {
        return Ok(installed);
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let dir = cache::root()?.join(package).join(key(&[&wanted.join(" "), &release]));
    if !dir.is_dir() {
        ensure_apt(package, variable)?;
    }
    cache::once(package, &dir, |partial| unpack(package, partial, &[package], wanted))?;
    Ok(dir.join(package))
}

/// Unpacks these packages, and moves the wanted files and folders of them into `dir`.
pub(crate) fn unpack(name: &str, dir: &Path, packages: &[&str], wanted: &[&str]) -> Result<()> {
    let tree = dir.join("tree");
    for package in packages {
        let folder = dir.join(package);
        fs::create_dir(&folder)?;
        apt_get(name, &folder, &["download", package])?;
        let entry = fs::read_dir(&folder)?
            .next()
            .context("apt-get downloaded no package")??;
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("-x").arg(entry.path()).arg(&tree);
        run_beside(name, dpkg)?;
        fs::remove_dir_all(folder)?;
    }
    for path in wanted {
        let packed = tree.join(path);
        let moved = dir.join(packed.file_name().context("a path has a name")?);
        fs::rename(packed, moved).with_context(|| format!("no package has {path}"))?;
    }
    Ok(fs::remove_dir_all(tree)?)
}

/// Installs what kube-proxy and kube-router run, if it is missing.
pub(crate) fn packet_filters() -> Result<()> {
    [("nft", "nftables"), ("iptables", "iptables"), ("ipset", "ipset")]
        .into_iter()
        .try_for_each(|(program, package)| install(program, package, &[program], "PATH").map(drop))
}

/// Returns the emulator of this processor for single programs.
pub(crate) fn qemu(processor: &str) -> Result<PathBuf> {
    let program = format!("qemu-{processor}-static");
    install("qemu", "qemu-user-static", &[&program], "PATH")
}

/// Returns a headless Chromium. It needs about forty libraries, so it is installed, which takes root.
pub(crate) fn chromium() -> Result<PathBuf> {
    const NAMES: [&str; 4] = [
        "chromium-headless-shell",
        "chrome-headless-shell",
        "chromium",
        "google-chrome",
    ];
    ready_made_or_installed("Chromium", NAMES[0], &NAMES, CHROMIUM)
}

/// Returns buildah, which builds the Dockerfile's image without a daemon.
pub(crate) fn buildah() -> Result<PathBuf> {
    ready_made_or_installed("buildah", "buildah", &["buildah"], BUILDAH)
}

/// Returns skopeo, which copies images.
pub(crate) fn skopeo() -> Result<PathBuf> {
    ready_made_or_installed("skopeo", "skopeo", &["skopeo"], SKOPEO)
}

/// Returns pip of Debian's Python.
pub(crate) fn pip(variable: &str) -> Result<PathBuf> {
    install("Python with pip", "python3-pip", &["pip3"], variable)
}

/// Returns `ip`, which makes the network namespaces of the WAN tests.
pub(crate) fn ip() -> Result<PathBuf> {
    ready_made_or_installed("ip", "iproute2", &["ip"], IP)
}

fn ready_made_or_installed(name: &str, package: &str, programs: &[&str], variable: &str) -> Result<PathBuf> {
    match ready_made(variable)? {
        Some(program) => Ok(program),
        None => install(name, package, programs, variable),
    }
}

/// Returns the installed program of one of these names. If there is none, installs the package, which takes root.
fn install(name: &str, package: &str, programs: &[&str], variable: &str) -> Result<PathBuf> {
    if let Some(installed) = installed(programs) {
        return Ok(installed);
    }
    let user = output(Command::new("id").arg("-u"))?;
    if user.as_deref() != Some("0") {
        let words = format!("there is no {name}, and only root may install one: install it, or set {variable}");
        return Err(NoTool(words).into());
    }
    ensure_apt(name, variable)?;
    let install = ["install", "--yes", "--quiet", "--no-install-recommends", package];
    apt_get(name, Path::new("/"), &install)?;
    installed(programs).with_context(|| format!("apt-get installed no {name}"))
}

fn installed(names: &[&str]) -> Option<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut programs = env::split_paths(&folders).flat_map(|folder| names.iter().map(move |name| folder.join(name)));
    programs.find(|program| program.is_file())
}

fn ensure_apt(name: &str, variable: &str) -> Result<()> {
    let found = output(Command::new("apt-get").arg("--version"))?;
    let words = format!("{name} is not installed and there is no apt-get: install it, or set {variable}");
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
