//! The test programs that `cargo test` would run one after another, so that xtask can schedule them differently.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub(crate) struct Target {
    /// The target's name, such as `e2e`, or `edgeward (lib)` for unit tests.
    pub(crate) name: String,
    program: PathBuf,
    /// The folder of its package, which is its working directory.
    folder: PathBuf,
}

/// Builds with this cargo everything that `cargo test ARGS` would run, and returns it by name. Cargo locks the build directory only
/// while it builds, so the returned programs can run in parallel.
pub(crate) fn build(mut cargo: Command, args: &[&str]) -> Result<Vec<Target>> {
    eprintln!("$ cargo test --locked --no-run {}", args.join(" "));
    cargo.args(["test", "--locked", "--no-run"]).args(args);
    let messages = cargo.args(["--message-format", "json-render-diagnostics"]);
    let built = messages
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

/// Reads a test program from a message of cargo. `None` for programs that tests start, which are also built.
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
