//! Runs commands as a person would type them.

use std::env;
use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Root of the workspace: the parent of this crate.
///
/// Cargo passes the path at run time. It is not compiled in, because several checkouts may share one build of xtask.
pub(crate) fn workspace() -> &'static Path {
    static WORKSPACE: LazyLock<PathBuf> = LazyLock::new(|| {
        let xtask = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
        xtask.parent().map_or_else(|| xtask.clone(), Path::to_owned)
    });
    &WORKSPACE
}

/// The cargo that runs xtask, in the root of the workspace.
pub(crate) fn cargo<const N: usize>(args: [&str; N]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(args).current_dir(workspace());
    without_own_environment(&mut command);
    command
}

/// The same command, which leaves the processor to others.
pub(crate) fn nice(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    nice
}

/// Removes what `cargo run` sets for xtask. Build scripts such as ring's would run again in each checkout.
pub(crate) fn without_own_environment(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
}

/// Prints the command and runs it. Fails if the command fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}`: {status}");
    }
    Ok(())
}

/// Runs a command while others run. Prefixes each line of its output with `name` and prints it on stderr.
pub(crate) fn run_beside(name: &str, command: Command) -> Result<()> {
    let shown = shown(&command);
    eprintln!("{name} | $ {shown}");
    let status = follow(command, |line| {
        if let Some(line) = line {
            eprintln!("{name} | {line}");
        }
    })?;
    if !status.success() {
        bail!("`{shown}`: {status}");
    }
    Ok(())
}

/// Runs the command and passes on each line that it prints on stdout or stderr. Passes `None` for every second without output.
///
/// A background process may hold the output open after the command has ended. Output is therefore read until the first silent
/// second after the end.
pub(crate) fn follow(mut command: Command, mut on_line: impl FnMut(Option<&str>)) -> Result<ExitStatus> {
    const SILENCE: Duration = Duration::from_secs(1);

    let shown = shown(&command);
    let (reader, writer) = io::pipe()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("cannot start `{shown}`"))?;
    // The command holds the write end of the pipe. Until it is dropped, reading never ends.
    drop(command);

    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(reader)
            .split(b'\n')
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    loop {
        match lines.recv_timeout(SILENCE) {
            Ok(line) => on_line(Some(String::from_utf8_lossy(&line).trim_end_matches('\r'))),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => break,
            Err(RecvTimeoutError::Timeout) => on_line(None),
        }
    }
    child.wait().with_context(|| format!("`{shown}`"))
}

/// Runs both closures at once, `there` in a thread of its own.
pub(crate) fn side_by_side<T: Send, H>(there: impl FnOnce() -> T + Send, here: impl FnOnce() -> H) -> (T, H) {
    thread::scope(|scope| {
        let there = scope.spawn(there);
        let here = here();
        (joined(there), here)
    })
}

pub(crate) fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The command's stdout; `None` if the program does not exist.
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn followed(script: &str) -> (Vec<String>, ExitStatus) {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let status = follow(command, |line| lines.extend(line.map(ToOwned::to_owned))).unwrap();
        (lines, status)
    }

    #[test]
    fn command_output_keeps_its_order_and_returns_status() {
        let (lines, status) = followed("echo one; echo two >&2; printf three; exit 7");
        assert_eq!(lines, ["one", "two", "three"]);
        assert_eq!(status.code(), Some(7));
    }

    #[test]
    fn background_process_with_open_output_is_not_awaited() {
        let started = Instant::now();
        let (lines, status) = followed("sleep 15 & echo over");
        assert_eq!(lines, ["over"]);
        assert!(status.success());
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
