//! The checkout whose tests these are, and what its developer commands bring.

use std::env;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use crate::prelude::*;

/// Root of the workspace.
///
/// Cargo and xtask say where it is when they run a test, all of which are of the package at the root. What was compiled does not
/// say it: several checkouts may share that.
pub fn workspace() -> &'static Path {
    static WORKSPACE: LazyLock<PathBuf> = LazyLock::new(|| {
        let root = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
        root.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/../..").into())
    });
    &WORKSPACE
}

/// Whether continuous integration runs the tests, all of which it demands.
pub fn is_ci() -> bool {
    env::var_os("CI").is_some_and(|ci| ci == "true")
}

/// Where `cargo xtask` has what this command builds or brings once: it says on stderr what it does. `None`: it has no tool
/// that could.
///
/// # Errors
/// The command fails.
pub fn xtask(command: &str) -> Result<Option<PathBuf>> {
    const NO_TOOL: i32 = 3;
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["xtask", command])
        .current_dir(workspace())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start `cargo xtask {command}`"))?;
    match output.status.code() {
        Some(0) => Ok(Some(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))),
        Some(NO_TOOL) => Ok(None),
        _ => bail!("`cargo xtask {command}`: {}", output.status),
    }
}
