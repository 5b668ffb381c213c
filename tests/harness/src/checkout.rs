//! The checkout under test, and tools that its developer commands build.

use std::env;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::prelude::*;

/// Root of the workspace.
///
/// Read at run time: cargo and xtask set it, and all tests belong to the package at the root. It is not compiled in, because
/// several checkouts may share one build.
pub fn workspace() -> &'static Path {
    static WORKSPACE: LazyLock<PathBuf> = LazyLock::new(|| {
        let root = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        root.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../..").into())
    });
    &WORKSPACE
}

/// Whether the tests run in continuous integration, which requires all of them.
pub fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|ci| ci == "true")
}

/// The path of what this `cargo xtask` command builds or fetches. xtask reports progress on stderr. Returns `None` if the means
/// to obtain the tool are missing.
///
/// # Errors
/// The command fails.
pub fn xtask(command: &str) -> Result<Option<PathBuf>> {
    const NO_TOOL: i32 = 3;
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .arg("xtask")
        .args(command.split(' '))
        .current_dir(workspace())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `cargo xtask {command}`"))?;
    match output.status.code() {
        Some(0) => {
            let printed = String::from_utf8(output.stdout)?;
            let path = printed.lines().last().context("it printed no path")?;
            Ok(Some(PathBuf::from(path)))
        }
        Some(NO_TOOL) => Ok(None),
        _ => bail!("`cargo xtask {command}`: {}", output.status),
    }
}
