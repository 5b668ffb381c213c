//! `edgeward completions`: what a shell completes.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::{Cli, print};

/// Print what a shell needs to complete commands and options.
///
/// bash, for all users: `edgeward completions bash > /etc/bash_completion.d/edgeward`. zsh, into a directory of `$fpath`:
/// `edgeward completions zsh > _edgeward`. fish: `edgeward completions fish > ~/.config/fish/completions/edgeward.fish`.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// For which shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "edgeward", &mut script);
        print(&String::from_utf8(script)?)
    }
}
