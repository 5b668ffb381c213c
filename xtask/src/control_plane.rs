//! A real Kubernetes control plane, built once from the Go module in `tests/controlplane`.
//!
//! The module holds no Go: its `tool` directives name the commands. A directory of the cache, keyed by the module's
//! files and by the recipe below, gets the binaries under the names that envtest ships, and kwok's stages.

use std::fmt::{self, Write as _};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::cache;
use crate::shell::{output, workspace};

/// Names a directory with ready-made binaries.
pub(crate) const VARIABLE: &str = "EDGEWARD_CONTROL_PLANE";

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

/// There is nothing ready-made and no `go` to build it with.
#[derive(Debug)]
pub(crate) enum NoGo {
    Missing,
    /// Older than go.mod asks for, and not allowed to fetch a newer one (`GOTOOLCHAIN`).
    Old {
        found: String,
        needed: String,
    },
}

impl fmt::Display for NoGo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the control plane has to be built and ")?;
        match self {
            NoGo::Missing => f.write_str("Go is not installed: install it from https://go.dev/dl")?,
            NoGo::Old { found, needed } => write!(
                f,
                "Go is {found} where {needed} is needed: install that from https://go.dev/dl, set GOTOOLCHAIN=auto"
            )?,
        }
        write!(f, ", or set {VARIABLE}")
    }
}

impl std::error::Error for NoGo {}

/// The directory with all of [`BINARIES`] and `stages/`, built if it is not there yet (a quarter of an hour on two
/// cores, 5 GB of Go caches). Says on stderr what it does.
pub(crate) fn obtain() -> Result<PathBuf> {
    if let Some(dir) = env::var_os(VARIABLE).filter(|dir| !dir.is_empty()).map(PathBuf::from) {
        let missing = missing(&dir);
        ensure!(
            missing.is_empty(),
            "{VARIABLE}={} lacks {}",
            dir.display(),
            missing.join(", ")
        );
        return Ok(fs::canonicalize(dir)?);
    }
    let module = workspace().join("tests/controlplane");
    let read = |name| fs::read_to_string(module.join(name)).with_context(|| format!("tests/controlplane/{name}"));
    let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
    let version = required_version(&go_mod, "k8s.io/kubernetes")
        .context("tests/controlplane/go.mod requires no k8s.io/kubernetes")?;

    let dir = cache::root()?
        .join("control-plane")
        .join(key(&[RECIPE, &STAGES.join(" "), &go_mod, &go_sum]));
    if !dir.is_dir() {
        ensure_go(&module, &go_mod)?;
    }
    cache::once(&dir, |partial| {
        eprintln!(
            "building Kubernetes {version} from its Go modules into {}",
            dir.display()
        );
        build(&module, version, partial)?;
        copy_stages(&module, &partial.join("stages"))?;
        let missing = missing(partial);
        ensure!(missing.is_empty(), "the build brought no {}", missing.join(", "));
        Ok(())
    })?;
    Ok(dir)
}

/// Fails with [`NoGo`] unless there is a Go that is as new as go.mod wants it.
fn ensure_go(module: &Path, go_mod: &str) -> Result<()> {
    // In the module's directory it is the Go that would build it: where it may, an older one has fetched a newer one.
    let version = output(Command::new("go").arg("version").current_dir(module))?.ok_or(NoGo::Missing)?;
    let found = version.split_whitespace().find_map(|word| {
        word.strip_prefix("go")
            .filter(|number| number.starts_with(|c: char| c.is_ascii_digit()))
    });
    let needed = go_mod.lines().find_map(|line| line.strip_prefix("go "));
    let (found, needed) = found.zip(needed).with_context(|| format!("`go version`: {version}"))?;
    if numbers(found) < numbers(needed) {
        let (found, needed) = (found.to_owned(), needed.trim().to_owned());
        return Err(NoGo::Old { found, needed }.into());
    }
    Ok(())
}

/// `1.26rc1` is [1, 26, 0]: a release candidate is good enough.
fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().unwrap_or(0)
    });
    std::array::from_fn(|_| parts.next().unwrap_or(0))
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
fn required_version<'a>(go_mod: &'a str, module: &str) -> Option<&'a str> {
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
    with_progress(&mut go)?;
    // The module go.etcd.io/etcd/server is named after its last element.
    fs::rename(into.join("server"), into.join("etcd")).context("go build brought no etcd")
}

/// Runs `go build -v`, which prints every module and package it works on, and says every quarter of a minute how far it
/// is. Whatever else go prints is passed on.
fn with_progress(go: &mut Command) -> Result<()> {
    const REPORT_EVERY: Duration = Duration::from_secs(15);

    let mut child = go
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start `go build`")?;
    let stderr = child.stderr.take().context("go's stderr is a pipe")?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(stderr)
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });

    let started = Instant::now();
    let (mut modules, mut packages, mut reported) = (0_u32, 0_u32, started);
    loop {
        match lines.recv_timeout(REPORT_EVERY.saturating_sub(reported.elapsed())) {
            Ok(line) if line.starts_with("go: downloading ") => modules += 1,
            Ok(line) if !line.contains(char::is_whitespace) => packages += 1,
            Ok(line) => eprintln!("{line}"),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            let seconds = started.elapsed().as_secs();
            eprintln!(
                "  {:2}:{:02}  {modules} modules downloaded, {packages} packages compiled",
                seconds / 60,
                seconds % 60
            );
        }
    }
    let status = child.wait().context("go build")?;
    if !status.success() {
        bail!("`go build` of tests/controlplane: {status}");
    }
    Ok(())
}

fn copy_stages(module: &Path, into: &Path) -> Result<()> {
    let mut list = Command::new("go");
    list.args(["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"])
        .current_dir(module);
    let kwok = output(&mut list)?.context("go has gone")?;
    fs::create_dir(into)?;
    for stage in STAGES {
        // Not fs::copy: it would keep the module cache's read-only mode.
        let text = fs::read(Path::new(&kwok).join("kustomize/stage").join(stage)).context(stage)?;
        fs::write(into.join(file_name(stage)), text)?;
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
    fn versions_of_go_are_compared_by_their_numbers() {
        assert!(numbers("1.9.7") < numbers("1.26.0"));
        assert!(numbers("1.25.9") < numbers("1.26"));
        assert!(numbers("1.26.0-x") >= numbers("1.26.0"));
        assert!(numbers("1.26rc1") >= numbers("1.26"));
        assert!(numbers("2") > numbers("1.26.8"));
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
