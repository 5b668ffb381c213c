//! Commands as a person would type them.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Root of the workspace: the parent of this crate.
pub(crate) fn workspace() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}

/// The cargo that runs us, in the root of the workspace.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(args).current_dir(workspace());
    command
}

/// Shows the command, runs it, fails when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}`: {status}");
    }
    Ok(())
}

/// What the command printed on stdout; `None` when there is no such program.
pub(crate) fn output(command: &mut Command) -> Result<Option<String>> {
    let shown = shown(command);
    match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot start `{shown}`")),
        Ok(output) if !output.status.success() => {
            bail!(
                "`{shown}`: {}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim_end()
            )
        }
        Ok(output) => Ok(Some(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())),
    }
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={:?} ", name.to_string_lossy(), value?.to_string_lossy())));
    let args = command.get_args().map(|arg| format!(" {}", arg.to_string_lossy()));
    variables.chain([program.into_owned()]).chain(args).collect()
}
