//! The webhook beside which edgeward is measured, built once from the Go module in `benches/constant`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::control_plane::key;
use crate::shell::workspace;
use crate::{cache, go};

/// What it is called where several are at work.
const NAME: &str = "constant webhook";

/// Names a ready-made program.
const VARIABLE: &str = "EDGEWARD_CONSTANT_WEBHOOK";

/// Part of the cache key: raise it when the build below changes what comes out.
const RECIPE: &str = "1: trimpath, stripped";

/// The program, built if it is not there yet (seconds). Says on stderr what it does.
pub(crate) fn obtain() -> Result<PathBuf> {
    if let Some(program) = cache::ready_made_program(VARIABLE)? {
        return Ok(program);
    }
    let module = workspace().join("benches/constant");
    let read = |name| fs::read_to_string(module.join(name)).with_context(|| format!("benches/constant/{name}"));
    let (main, go_mod) = (read("main.go")?, read("go.mod")?);
    let dir = cache::root()?
        .join("constant-webhook")
        .join(key(&[RECIPE, &main, &go_mod]));
    if !dir.is_dir() {
        go::ensure(&module, &go_mod, VARIABLE)?;
    }
    cache::once(NAME, &dir, |partial| {
        let mut build = Command::new("go");
        build
            .args(["build", "-v", "-trimpath", "-ldflags", "-s -w", "-o"])
            .arg(partial.join("constant"))
            .current_dir(&module);
        go::with_progress(NAME, build)
    })?;
    Ok(dir.join("constant"))
}
