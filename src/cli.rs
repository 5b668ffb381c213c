//! The command line. The only place where errors become exit codes.

mod demo;
mod documents;
mod live;
mod review;
mod serve;

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Place Kubernetes pods on the edge or in the cloud, by their SLO, when they are created.
///
/// edgeward is a mutating admission webhook. `serve` runs it; `review` tells what it would do with a pod; `demo` shows
/// three situations on this machine, without a cluster.
#[derive(Debug, Parser)]
#[command(name = "edgeward", version, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 success; 1 input that cannot be read, or a failure while running; 2 wrong usage."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Review(review::Review),
    Demo(demo::Demo),
}

/// Writes to standard output. A reader that has seen enough, such as `head`, is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Runs the command of this process's arguments.
pub fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(serve) => serve.run(),
        Command::Review(review) => review.run(),
        Command::Demo(demo) => demo.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not `eprintln!`, which panics where standard error is closed.
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
