//! Helm, built once from the Go module in `tests/helm`, as the control plane is from its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::control_plane::{key, required_version};
use crate::shell::workspace;
use crate::{cache, go};

/// What it is called where several are at work.
pub(crate) const NAME: &str = "Helm";

/// Names a ready-made program.
pub(crate) const VARIABLE: &str = "EDGEWARD_HELM";

/// Part of the cache key: raise it when the build below changes what comes out.
const RECIPE: &str = "1: trimpath, stripped, version flags";

/// The program `helm`, built if it is not there yet (two minutes on two cores). Says on stderr what it does.
pub(crate) fn obtain() -> Result<PathBuf> {
    if let Some(program) = cache::ready_made_program(VARIABLE)? {
        return Ok(program);
    }
    let module = workspace().join("tests/helm");
    let read = |name| fs::read_to_string(module.join(name)).with_context(|| format!("tests/helm/{name}"));
    let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
    let dir = cache::root()?.join("helm").join(key(&[RECIPE, &go_mod, &go_sum]));
    if !dir.is_dir() {
        go::ensure(&module, &go_mod, VARIABLE)?;
    }
    cache::once(NAME, &dir, |partial| {
        eprintln!("{NAME} | building from its Go module into {}", dir.display());
        build(&module, &go_mod, partial)
    })?;
    Ok(dir.join("helm"))
}

fn build(module: &Path, go_mod: &str, into: &Path) -> Result<()> {
    let version = |of| required_version(go_mod, of).with_context(|| format!("tests/helm/go.mod requires no {of}"));
    // What a chart is told of Kubernetes where there is no cluster, as Helm's own build takes it from the client; without,
    // it would be 1.20.
    let (_, kubernetes) = version("k8s.io/client-go")?
        .split_once('.')
        .context("a version has dots")?;
    let minor = kubernetes.split('.').next().unwrap_or_default();
    let mut flags = format!(
        "-s -w -X helm.sh/helm/v3/internal/version.version={}",
        version("helm.sh/helm/v3")?
    );
    for package in ["lint/rules", "chartutil"] {
        let variable = format!("helm.sh/helm/v3/pkg/{package}.k8sVersion");
        flags += &format!(" -X {variable}Major=1 -X {variable}Minor={minor}");
    }
    let mut build = Command::new("go");
    build
        .args(["build", "-v", "-trimpath", "-ldflags", &flags, "-o"])
        .arg(into.join("helm"))
        .arg("helm.sh/helm/v3/cmd/helm")
        .current_dir(module);
    go::with_progress(NAME, build)
}
