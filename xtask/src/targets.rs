//! The programs that `cargo test` would run one after the other, so that they can be run otherwise.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::shell::cargo;

pub(crate) struct Target {
    /// `e2e`, or of unit tests `edgeward (lib)`.
    pub(crate) name: String,
    program: PathBuf,
    /// The folder of its package, where it is to run.
    folder: PathBuf,
}

/// Builds what `cargo test ARGS` would run, by name. Nothing is built when they run: cargo locks the build directory only while
/// it builds.
pub(crate) fn build(args: &[&str]) -> Result<Vec<Target>> {
    eprintln!("$ cargo test --locked --no-run {}", args.join(" "));
    let built = cargo([
        "test",
        "--locked",
        "--no-run",
        "--message-format",
        "json-render-diagnostics",
    ])
    .args(args)
    .stderr(Stdio::inherit())
    .output()
    .context("cannot start cargo")?;
    ensure!(built.status.success(), "`cargo test --no-run`: {}", built.status);
    let messages = String::from_utf8(built.stdout).context("cargo's messages")?;
    let mut targets: Vec<_> = messages.lines().filter_map(read).collect();
    ensure!(!targets.is_empty(), "cargo named no tests");
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(targets)
}

/// A test program out of a message of cargo. A program that tests start is built as well; it is no test.
fn read(message: &str) -> Option<Target> {
    let message: Value = serde_json::from_str(message).ok()?;
    message["profile"]["test"].as_bool().filter(|is_test| *is_test)?;
    let name = message["target"]["name"].as_str()?;
    Some(Target {
        name: match message["target"]["kind"][0].as_str()? {
            "test" => name.to_owned(),
            kind => format!("{name} ({kind})"),
        },
        program: message["executable"].as_str()?.into(),
        folder: Path::new(message["manifest_path"].as_str()?).parent()?.to_owned(),
    })
}

impl Target {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}
