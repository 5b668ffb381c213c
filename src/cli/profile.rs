//! `edgeward profile`: converts and tests profiles in files before they are applied.

mod backtest;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use edgeward_profiles::import::import;

use super::findings::Findings;
use crate::platform::yaml;

/// Convert performance profiles from CODECO's form, and test their forecasts.
#[derive(Debug, Args)]
pub(super) struct Profile {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print PerformanceProfiles made from CODECO's `profiles.yaml` and `custom_metrics.yaml`.
    ///
    /// Reads a file with both keys, or a ConfigMap with them in its data. Faults and their corrections go to standard
    /// error.
    #[command(after_help = "Exit code 3: a fault remains (see --fix).")]
    Import {
        /// YAML or JSON; `-` is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,

        /// Correct the faults. Without it, the printed profiles keep them.
        #[arg(long)]
        fix: bool,
    },
    Backtest(backtest::Backtest),
}

impl Profile {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Import { file, fix } => print_converted(&file, fix),
            Command::Backtest(backtest) => backtest.run(),
        }
    }
}

fn print_converted(file: &Path, fix: bool) -> anyhow::Result<ExitCode> {
    let source = file.display().to_string();
    let mut all = vec![];
    for document in yaml::parse_all(&super::read_text(file)?, &source)? {
        let imported = import(&document, fix).map_err(anyhow::Error::msg);
        all.extend(imported.with_context(|| source.clone())?);
    }
    ensure!(!all.is_empty(), "{source}: has no profiles");
    let mut findings = Findings::new(fix);
    for imported in &all {
        let name = imported.object["metadata"]["name"].as_str().unwrap_or_default();
        for fault in &imported.findings {
            findings.fixable(&format!("{name}: {fault}"));
        }
        super::print_document(&imported.object)?;
    }
    Ok(findings.report())
}
