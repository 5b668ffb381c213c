//! Tests' programs that are built from Go modules.

use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell::{follow, output};

/// There is nothing ready-made and no `go` to build it with.
#[derive(Debug)]
pub(crate) struct NoGo {
    /// Names what is ready-made.
    variable: &'static str,
    lack: Lack,
}

#[derive(Debug)]
enum Lack {
    Missing,
    /// Older than go.mod asks for, and not allowed to fetch a newer one (`GOTOOLCHAIN`).
    Old {
        found: String,
        needed: String,
    },
}

impl fmt::Display for NoGo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.lack {
            Lack::Missing => f.write_str("Go is not installed: install it from https://go.dev/dl")?,
            Lack::Old { found, needed } => write!(
                f,
                "Go is {found} where {needed} is needed: install that from https://go.dev/dl, set GOTOOLCHAIN=auto"
            )?,
        }
        write!(f, ", or set {}", self.variable)
    }
}

impl std::error::Error for NoGo {}

/// Fails with [`NoGo`] unless there is a Go that is as new as go.mod wants it. `variable` would name what is ready-made.
pub(crate) fn ensure(module: &Path, go_mod: &str, variable: &'static str) -> Result<()> {
    // In the module's directory it is the Go that would build it: where it may, an older one has fetched a newer one.
    let version = output(Command::new("go").arg("version").current_dir(module))?.ok_or(NoGo {
        variable,
        lack: Lack::Missing,
    })?;
    let found = version.split_whitespace().find_map(|word| {
        word.strip_prefix("go")
            .filter(|number| number.starts_with(|c: char| c.is_ascii_digit()))
    });
    let needed = go_mod.lines().find_map(|line| line.strip_prefix("go "));
    let (found, needed) = found.zip(needed).with_context(|| format!("`go version`: {version}"))?;
    if numbers(found) < numbers(needed) {
        let (found, needed) = (found.to_owned(), needed.trim().to_owned());
        let lack = Lack::Old { found, needed };
        return Err(NoGo { variable, lack }.into());
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

/// Runs `go build -v`, which prints every module and package it works on, and says every quarter of a minute how far it
/// is, under this name. Whatever else go prints is passed on.
pub(crate) fn with_progress(name: &str, go: Command) -> Result<()> {
    const REPORT_EVERY: Duration = Duration::from_secs(15);

    let started = Instant::now();
    let (mut modules, mut packages, mut reported) = (0_u32, 0_u32, started);
    let status = follow(go, |line| {
        match line {
            Some(line) if line.starts_with("go: downloading ") => modules += 1,
            Some(line) if !line.contains(char::is_whitespace) => packages += 1,
            Some(line) => eprintln!("{name} | {line}"),
            None => {}
        }
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            let seconds = started.elapsed().as_secs();
            eprintln!(
                "{name} | {:2}:{:02}  {modules} modules downloaded, {packages} packages compiled",
                seconds / 60,
                seconds % 60
            );
        }
    })?;
    if !status.success() {
        bail!("`go build`: {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go_are_compared_by_their_numbers() {
        assert!(numbers("1.9.7") < numbers("1.26.0"));
        assert!(numbers("1.25.9") < numbers("1.26"));
        assert!(numbers("1.26.0-x") >= numbers("1.26.0"));
        assert!(numbers("1.26rc1") >= numbers("1.26"));
        assert!(numbers("2") > numbers("1.26.8"));
    }
}
