//! `edgeward profile`: checks and converts profiles in files before they are applied.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use edgeward_decision::model::slo;
use edgeward_profiles::Profile as Read;
use edgeward_profiles::import::{Imported, doubts, import};
use serde_json::Value;

use crate::platform::yaml;

const KIND: &str = "PerformanceProfile";

/// Check performance profiles in files, or convert them from CODECO's form.
#[derive(Debug, Args)]
pub(super) struct Profile {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check whether edgeward would accept the PerformanceProfiles of a file.
    ///
    /// Queries that may give no numbers by place are reported on standard error and are not faults. Other kinds are
    /// skipped. Nothing is checked against a cluster or a Prometheus server.
    #[command(after_help = "Exit code 3: a profile has faults.")]
    Check {
        /// YAML or JSON, any number of documents; `-` is standard input.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
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
        let is_faulty = match self.command {
            Command::Check { files } => check(&files)?,
            Command::Import { file, fix } => convert(&file, fix)?,
        };
        Ok(if is_faulty { 3.into() } else { ExitCode::SUCCESS })
    }
}

/// Checks the profiles of all files and returns whether one has faults.
fn check(files: &[PathBuf]) -> anyhow::Result<bool> {
    let (mut checked, mut is_faulty) = (0, false);
    for file in files {
        for document in items(file)? {
            if document["kind"] != KIND {
                continue;
            }
            checked += 1;
            let name = document["metadata"]["name"].as_str().unwrap_or_default();
            let mut faults: Vec<_> = match slo::is_profile_name(name) {
                true => vec![],
                false => vec![format!("metadata.name: {name:?} is not {}", slo::PROFILE_NAME)],
            };
            match Read::read(&document["spec"]) {
                Err(more) => faults.extend(more.0.iter().map(ToString::to_string)),
                Ok(profile) => doubts(&profile)
                    .iter()
                    .for_each(|doubt| super::note(&format!("{name}: {doubt}"))),
            }
            is_faulty |= !faults.is_empty();
            super::print(&match faults.is_empty() {
                true => format!("{name}: accepted\n"),
                false => faults.iter().map(|fault| format!("{name}: {fault}\n")).collect(),
            })?;
        }
    }
    let files: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    ensure!(checked > 0, "no {KIND} is in {}", files.join(", "));
    Ok(is_faulty)
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
