//! A real Kubernetes control plane, built once from the Go module in `tests/controlplane`.
//!
//! The module holds no Go: its `tool` directives name the commands. A directory of the cache, keyed by the module's
//! files and by the recipe below, gets the binaries under the names that envtest ships, and kwok's stages.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sha2::{Digest as _, Sha256};

use crate::shell::{output, workspace};
use crate::{cache, go};

/// What it is called where several are at work.
pub(crate) const NAME: &str = "control plane";

/// Names a directory with ready-made binaries.
pub(crate) const VARIABLE: &str = "EDGEWARD_CONTROL_PLANE";

/// The module file of the newest Kubernetes; each folder in it has that of an older minor.
const MODULE: &str = "tests/controlplane";

const BINARIES: [&str; 6] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kwok",
];

/// The life of fake nodes and pods, out of kwok's own module.
const STAGES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

/// Part of the cache key: raise it when the build below changes what comes out.
const RECIPE: &str = "1: trimpath, stripped, version flag";

/// Those that the newest Kubernetes lends to an older one.
const LENT: [&str; 2] = ["kubectl", "kwok"];

/// The directory with all of [`BINARIES`] and `stages/`, of the newest Kubernetes, built if it is not there yet (a quarter
/// of an hour on two cores, 5 GB of Go caches). Says on stderr what it does.
pub(crate) fn obtain() -> Result<PathBuf> {
    if let Some(dir) = cache::ready_made(VARIABLE, missing)? {
        return Ok(dir);
    }
    let module = workspace().join(MODULE);
    once_built(&module, |partial| copy_stages(&module, &partial.join("stages")))
}

/// The same of an older Kubernetes, such as `1.33`, with kubectl and kwok of the newest.
pub(crate) fn obtain_older(minor: &str) -> Result<PathBuf> {
    let modules = workspace().join(MODULE);
    let older = older(&modules)?;
    ensure!(
        older.iter().any(|known| known == minor),
        "--kubernetes {minor}: {MODULE} has {}, and the newest without the option",
        older.join(", ")
    );
    let newest = obtain()?;
    once_built(&modules.join(minor), |partial| {
        for name in LENT {
            fs::copy(newest.join(name), partial.join(name)).context(name)?;
        }
        fs::create_dir(partial.join("stages"))?;
        for stage in STAGES.map(file_name) {
            let stage = Path::new("stages").join(stage);
            fs::copy(newest.join(&stage), partial.join(&stage)).context("stages")?;
        }
        Ok(())
    })
}

/// The minors that have a module file of their own.
fn older(modules: &Path) -> Result<Vec<String>> {
    let mut minors = Vec::new();
    for entry in fs::read_dir(modules).context(MODULE)? {
        let entry = entry?;
        if entry.path().join("go.mod").is_file() {
            minors.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    minors.sort();
    Ok(minors)
}

/// Builds a module's tools, which `complete` makes a control plane.
fn once_built(module: &Path, complete: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let read = |name| {
        let path = module.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
    let version = required_version(&go_mod, "k8s.io/kubernetes")
        .with_context(|| format!("{} requires no k8s.io/kubernetes", module.display()))?;

    let dir = cache::root()?
        .join("control-plane")
        .join(key(&[RECIPE, &STAGES.join(" "), &go_mod, &go_sum]));
    if !dir.is_dir() {
        go::ensure(module, &go_mod, VARIABLE)?;
    }
    cache::once(NAME, &dir, |partial| {
        eprintln!(
            "{NAME} | building Kubernetes {version} from its Go modules into {}",
            dir.display()
        );
        build(module, version, partial)?;
        complete(partial)?;
        let missing = missing(partial);
        ensure!(missing.is_empty(), "the build brought no {}", missing.join(", "));
        Ok(())
    })?;
    Ok(dir)
}

/// What `dir` would need to be a control plane.
fn missing(dir: &Path) -> Vec<String> {
    let stages = STAGES.iter().map(|stage| format!("stages/{}", file_name(stage)));
    BINARIES
        .iter()
        .map(ToString::to_string)
        .chain(stages)
        .filter(|name| !dir.join(name).is_file())
        .collect()
}

/// The version in a `require` line of a go.mod.
pub(crate) fn required_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
    go_mod.lines().find_map(|line| {
        let line = line.trim();
        let line = line.strip_prefix("require ").unwrap_or(line);
        line.strip_prefix(module)?
            .strip_prefix(' ')?
            .split_whitespace()
            .next()
            .filter(|word| word.starts_with('v'))
    })
}

/// A name that is the same for the same parts.
pub(crate) fn key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize()[..8].iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn build(module: &Path, version: &str, into: &Path) -> Result<()> {
    // Without the version the server reports "v0.0.0-master+$Format:%H$", which clients cannot parse.
    let ldflags = format!("-s -w -X k8s.io/component-base/version.gitVersion={version}");
    let mut go = Command::new("go");
    go.args(["build", "-v", "-trimpath", "-ldflags", &ldflags, "-o"])
        .arg(into)
        .arg("tool")
        .current_dir(module);
    go::with_progress(NAME, go)?;
    // The module go.etcd.io/etcd/server is named after its last element.
    fs::rename(into.join("server"), into.join("etcd")).context("go build brought no etcd")
}

fn copy_stages(module: &Path, into: &Path) -> Result<()> {
    let mut list = Command::new("go");
    list.args(["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"])
        .current_dir(module);
    let kwok = output(&mut list)?.context("go has gone")?;
    let folder = Path::new(&kwok).join("kustomize/stage");
    copy_out(&STAGES.map(|stage| folder.join(stage)), into)
}

/// Makes this directory, with these files of the module cache in it.
pub(crate) fn copy_out(files: &[PathBuf], into: &Path) -> Result<()> {
    fs::create_dir(into)?;
    for file in files {
        // Not fs::copy: it would keep the module cache's read-only mode.
        let text = fs::read(file).with_context(|| file.display().to_string())?;
        fs::write(into.join(file.file_name().context("a file has a name")?), text)?;
    }
    Ok(())
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_require_line_and_not_from_a_replacement() {
        let go_mod = "require (\n\tk8s.io/kubernetes-x v9 // indirect\n\tk8s.io/kubernetes v1.36.3\n)\n\
                      replace k8s.io/kubernetes => ../fork\n";
        assert_eq!(required_version(go_mod, "k8s.io/kubernetes"), Some("v1.36.3"));
        assert_eq!(
            required_version("require k8s.io/api v0.1.0", "k8s.io/api"),
            Some("v0.1.0")
        );
        assert_eq!(
            required_version("replace k8s.io/api => k8s.io/api v0.1.0", "k8s.io/api"),
            None
        );
    }

    #[test]
    fn every_missing_file_of_a_ready_made_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for name in BINARIES.iter().filter(|name| **name != "kwok") {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let missing = missing(dir.path());
        assert_eq!(missing.first().map(String::as_str), Some("kwok"));
        assert_eq!(missing.len(), 1 + STAGES.len());
    }

    #[test]
    fn the_key_depends_on_where_one_part_ends() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_eq!(key(&["ab", "c"]).len(), 16);
    }
}
