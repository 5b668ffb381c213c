//! The real cert-manager, built once from the Go module in `tests/certmanager`: its controllers and cainjector as one program,
//! and its custom resource definitions. A directory of the cache, keyed by the module's files, gets both.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::control_plane::{copy_out, key};
use crate::shell::{output, workspace};
use crate::{cache, go};

/// What it is called where several are at work.
pub(crate) const NAME: &str = "cert-manager";

/// Names a directory with a ready-made one.
pub(crate) const VARIABLE: &str = "EDGEWARD_CERT_MANAGER";

const PROGRAM: &str = "cert-manager";

/// Those that its controllers for a webhook's certificates need, out of its own module.
const DEFINITIONS: [&str; 4] = ["certificaterequests", "certificates", "clusterissuers", "issuers"];

/// Part of the cache key: raise it when the build below changes what comes out.
const RECIPE: &str = "1: trimpath, stripped";

/// The directory with the program and `crds/`, built if it is not there yet (four minutes on two cores). Says on stderr what it
/// does.
pub(crate) fn obtain() -> Result<PathBuf> {
    if let Some(dir) = cache::ready_made(VARIABLE, missing)? {
        return Ok(dir);
    }
    let module = workspace().join("tests/certmanager");
    let read = |name| fs::read_to_string(module.join(name)).with_context(|| format!("tests/certmanager/{name}"));
    let (main, go_mod, go_sum) = (read("main.go")?, read("go.mod")?, read("go.sum")?);
    let dir = cache::root()?
        .join("cert-manager")
        .join(key(&[RECIPE, &DEFINITIONS.join(" "), &main, &go_mod, &go_sum]));
    if !dir.is_dir() {
        go::ensure(&module, &go_mod, VARIABLE)?;
    }
    cache::once(NAME, &dir, |partial| {
        eprintln!("{NAME} | building from its Go module into {}", dir.display());
        build(&module, partial)
    })?;
    Ok(dir)
}

/// What `dir` would need to be a whole one.
fn missing(dir: &Path) -> Vec<&'static str> {
    let is_there = |name: &str| {
        let path = dir.join(name);
        if name == PROGRAM { path.is_file() } else { path.is_dir() }
    };
    [PROGRAM, "crds"].into_iter().filter(|name| !is_there(name)).collect()
}

fn build(module: &Path, into: &Path) -> Result<()> {
    let mut build = Command::new("go");
    build
        .args(["build", "-v", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(into.join(PROGRAM))
        .current_dir(module);
    go::with_progress(NAME, build)?;
    let mut list = Command::new("go");
    list.args(["list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager"])
        .current_dir(module);
    let sources = PathBuf::from(output(&mut list)?.context("go has gone")?);
    let definition = |name| sources.join(format!("deploy/crds/cert-manager.io_{name}.yaml"));
    copy_out(&DEFINITIONS.map(definition), &into.join("crds"))
}
