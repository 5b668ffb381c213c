//! `edgeward completions`: what a shell completes.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, print};

pub(super) fn run(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "edgeward", &mut script);
    print(&String::from_utf8(script)?)
}
