//! `edgeward profile`: converts profiles in files before they are applied.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use edgeward_profiles::import::{Imported, import};
use serde_json::Value;

use crate::platform::yaml;

/// Convert performance profiles from CODECO's form.
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
}

impl Profile {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Command::Import { file, fix } = self.command;
        let is_faulty = convert(&file, fix)?;
        Ok(if is_faulty { 3.into() } else { ExitCode::SUCCESS })
    }
}

/// Prints the converted profiles and returns whether a fault remains.
fn convert(file: &Path, fix: bool) -> anyhow::Result<bool> {
    let source = file.display().to_string();
    let mut all = vec![];
    for document in items(file)? {
        let imported = import(&document, fix).map_err(anyhow::Error::msg);
        all.extend(imported.with_context(|| source.clone())?);
    }
    ensure!(!all.is_empty(), "{source}: has no profiles");
    let corrected = if fix { " (corrected)" } else { "" };
    let mut has_findings = false;
    for Imported { object, findings } in &all {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        for finding in findings {
            has_findings = true;
            super::note(&format!("{name}: {finding}{corrected}"));
        }
        super::print(&format!("---\n{}", serde_saphyr::to_string(object)?))?;
    }
    Ok(has_findings && !fix)
}

/// Returns the documents of a file, with the items of each List in its place.
fn items(file: &Path) -> anyhow::Result<Vec<Value>> {
    let source = file.display().to_string();
    let documents = yaml::parse_all(&super::read_text(file)?, &source)?;
    let of = |document: Value| document["items"].as_array().cloned().unwrap_or_else(|| vec![document]);
    Ok(documents.into_iter().flat_map(of).collect())
}
