//! The real Liqo, built once from the Go module in `tests/liqo`: the four programs of it that need no network between the clusters,
//! its custom resource definitions and the roles that its chart gives. A directory of the cache, keyed by the module's files, gets all
//! of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::control_plane::{copy_out, key, required_version};
use crate::shell::{output, workspace};
use crate::{cache, go};

/// What it is called where several are at work.
pub(crate) const NAME: &str = "Liqo";

/// Names a directory with a ready-made one.
pub(crate) const VARIABLE: &str = "EDGEWARD_LIQO";

const MODULE: &str = "github.com/liqotech/liqo";

const PROGRAMS: [&str; 4] = [
    "crd-replicator",
    "liqo-controller-manager",
    "virtual-kubelet",
    "webhook",
];

/// Folders of Liqo's module, and what they are called here.
const MANIFESTS: [(&str, &str); 2] = [
    ("deployments/liqo/charts/liqo-crds/crds", "crds"),
    ("deployments/liqo/files", "roles"),
];

/// Part of the cache key: raise it when the build below changes what comes out.
const RECIPE: &str = "1: trimpath, stripped";

/// The directory with the programs, `crds/` and `roles/`, built if it is not there yet (five minutes on two cores). Says on stderr
/// what it does.
pub(crate) fn obtain() -> Result<PathBuf> {
    if let Some(dir) = cache::ready_made(VARIABLE, missing)? {
        return Ok(dir);
    }
    let module = workspace().join("tests/liqo");
    let read = |name| fs::read_to_string(module.join(name)).with_context(|| format!("tests/liqo/{name}"));
    let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
    let version = required_version(&go_mod, MODULE).with_context(|| format!("tests/liqo requires no {MODULE}"))?;
    let dir = cache::root()?.join("liqo").join(key(&[RECIPE, &go_mod, &go_sum]));
    if !dir.is_dir() {
        go::ensure(&module, &go_mod, VARIABLE)?;
    }
    cache::once(NAME, &dir, |partial| {
        eprintln!("{NAME} | building {version} from its Go module into {}", dir.display());
        build(&module, partial)?;
        let missing = missing(partial);
        ensure!(missing.is_empty(), "the build brought no {}", missing.join(", "));
        Ok(())
    })?;
    Ok(dir)
}

/// What `dir` would need to be a whole one.
fn missing(dir: &Path) -> Vec<&'static str> {
    let programs = PROGRAMS.into_iter().filter(|name| !dir.join(name).is_file());
    let folders = MANIFESTS.into_iter().map(|(_, name)| name);
    programs
        .chain(folders.filter(|name| !dir.join(name).is_dir()))
        .collect()
}

fn build(module: &Path, into: &Path) -> Result<()> {
    let mut build = Command::new("go");
    build
        .args(["build", "-v", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(into)
        .arg("tool")
        .current_dir(module);
    go::with_progress(NAME, build)?;
    let mut list = Command::new("go");
    list.args(["list", "-m", "-f", "{{.Dir}}", MODULE]).current_dir(module);
    let sources = PathBuf::from(output(&mut list)?.context("go has gone")?);
    for (folder, name) in MANIFESTS {
        let entries = fs::read_dir(sources.join(folder)).context(folder)?;
        let files: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        copy_out(&files, &into.join(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ready_made_directory_lacks_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for name in PROGRAMS.iter().filter(|name| **name != "webhook") {
            fs::write(dir.path().join(name), "").unwrap();
        }
        fs::create_dir(dir.path().join("crds")).unwrap();
        assert_eq!(missing(dir.path()), ["webhook", "roles"]);
    }
}
