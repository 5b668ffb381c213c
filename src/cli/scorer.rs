//! `edgeward scorer`: checks files of the learned scorer.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::scorer::read_file;

/// Check a learned scorer before it is used.
#[derive(Debug, Args)]
pub(super) struct Scorer {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read a file as `edgeward serve` does, and print what it holds or every fault.
    #[command(after_help = "Exit codes: 0 it can be used; 1 it has faults, or cannot be read.")]
    Check {
        /// JSON, as training writes it.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

impl Scorer {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let Command::Check { file } = self.command;
        let scorer = read_file(&file)?;
        let made = &scorer.provenance;
        super::print(&format!(
            "{}: can be used\nsha256  {}\nmargin  {}\nmade by {} (edgeward {}), scenarios {}, seeds {:?}\n",
            file.display(),
            scorer.sha256,
            scorer.shown_margin(),
            made.command,
            made.version,
            made.scenarios.len(),
            made.seeds,
        ))
    }
}
