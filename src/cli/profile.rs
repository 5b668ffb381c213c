//! `edgeward profile`: converts profiles in files before they are applied.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use edgeward_profiles::import::{Imported, import};

use super::findings::Findings;
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
    /// Prints the converted profiles.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let Command::Import { file, fix } = self.command;
        let source = file.display().to_string();
        let mut all = vec![];
        for document in yaml::parse_all(&super::read_text(&file)?, &source)? {
            let imported = import(&document, fix).map_err(anyhow::Error::msg);
            all.extend(imported.with_context(|| source.clone())?);
        }
        ensure!(!all.is_empty(), "{source}: has no profiles");
        let mut findings = Findings::new(fix);
        for Imported {
            object,
            findings: faults,
        } in &all
        {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            for fault in faults {
                findings.fixable(&format!("{name}: {fault}"));
            }
            super::print_document(object)?;
        }
        Ok(findings.report())
    }
}
