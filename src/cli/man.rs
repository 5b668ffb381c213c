//! `edgeward man`: the manual pages.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_mangen::Man as Page;

use super::{Cli, print};

/// Print the manual page, or write one for each command into a directory.
///
/// `edgeward man | man -l -` shows it; `edgeward man /usr/local/share/man/man1` installs all of them.
#[derive(Debug, Args)]
pub(super) struct Man {
    /// Directory to write `edgeward.1`, `edgeward-serve.1` and the others into; it must exist
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self) -> anyhow::Result<()> {
        // A page about `help` would repeat the others.
        let command = Cli::command().disable_help_subcommand(true);
        match self.directory {
            None => {
                let mut page = Vec::new();
                Page::new(command).render(&mut page)?;
                print(&String::from_utf8(page)?)
            }
            Some(directory) => clap_mangen::generate_to(command, &directory)
                .with_context(|| format!("the pages cannot be written to {}", directory.display())),
        }
    }
}
