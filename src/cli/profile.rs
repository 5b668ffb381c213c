//! `edgeward profile`: profiles in files, before they are applied.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use edgeward_core::model::slo;
use edgeward_profiles::Profile as Read;
use edgeward_profiles::import::{Imported, doubts, import};
use serde_json::Value;

use crate::platform::yaml;

const KIND: &str = "PerformanceProfile";

/// Check performance profiles in files, or make them of CODECO's form.
#[derive(Debug, Args)]
pub(super) struct Profile {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tell whether edgeward would accept the PerformanceProfiles of a file, and what is wrong with them.
    ///
    /// Queries that may give no numbers by place are told on standard error, and are no faults. Documents of other kinds are left out. What only the cluster knows, such as what a Prometheus server answers, is not looked at.
    #[command(after_help = "Exit code 3: a profile has faults.")]
    Check {
        /// YAML or JSON, any number of documents; `-` is standard input.
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
    },
    /// Print the PerformanceProfiles that CODECO's `profiles.yaml` and `custom_metrics.yaml` make.
    ///
    /// Reads a file with both keys, or a ConfigMap that has them in its data, as `kubectl get configmap -o yaml` prints it. What is wrong
    /// with them is told on standard error, with what to write.
    #[command(after_help = "Exit code 3: something is wrong, and is not corrected (--fix).")]
    Import {
        /// YAML or JSON; `-` is standard input.
        #[arg(value_name = "FILE")]
        file: PathBuf,

        /// Correct what is wrong; without, it stands in the profiles as it is.
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

/// Whether one has faults.
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

/// Whether something is wrong that was not corrected.
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

/// The documents of a file, and those of Lists in it.
fn items(file: &Path) -> anyhow::Result<Vec<Value>> {
    let source = file.display().to_string();
    let documents = yaml::parse_all(&super::read_text(file)?, &source)?;
    let of = |document: Value| document["items"].as_array().cloned().unwrap_or_else(|| vec![document]);
    Ok(documents.into_iter().flat_map(of).collect())
}
