//! The command line. The only place where errors become exit codes.

mod check;
mod config_schema;
mod demo;
mod fleet;
mod installed;
mod profile;
mod release;
mod review;
mod undecided;
mod why;

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use comfy_table::{Table, presets};
use edgeward_core::config::Config;
use serde::Serialize;

use crate::api;
use crate::inspect::Connection;
use crate::serve::{Webhook, tokio_runtime};
use crate::sources::configuration;

/// Place Kubernetes pods on the edge or in the cloud, by their SLO, when they are created.
///
/// edgeward is a mutating admission webhook. `serve` runs it; `why` tells why a pod is where it is; `check` finds what is
/// wrong with an installation; `review` tells what it would do with a pod; `fleet` shows what it sees of a cluster;
/// `release` takes its gate off pods; `crds` and `config-schema` print the definitions of its custom resources and of its
/// configuration; `completions` prints what shells complete by; `demo` shows three situations on this
/// machine, without a cluster.
#[derive(Debug, Parser)]
#[command(name = "edgeward", version, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 success; 1 input that cannot be read, or a failure while running; 2 wrong usage; a \
                  command that has more names them in its own help.\n\nUnder the \
                  name kubectl-edgeward on the PATH, a link will do, it is also `kubectl edgeward`."
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<Webhook>),
    Why(why::Why),
    Check(check::Check),
    Review(review::Review),
    Fleet(fleet::Fleet),
    Profile(profile::Profile),
    Release(release::Release),
    /// Print the definitions of the custom resources Site, SloPolicy and PerformanceProfile, for `kubectl apply --server-side -f -`.
    ///
    /// They are optional: without them, sites come from the configuration and SLOs from annotations alone, and no site is preferred.
    Crds,
    /// Print a JSON schema of the configuration, for editors that complete and check while one types.
    ///
    /// It knows names, types, words and the bounds of numbers. What it accepts may still be refused, by `serve` and by `check
    /// --config`, which know the rest.
    ConfigSchema,
    /// Show three situations on this machine, without a cluster.
    ///
    /// The same three pods are decided while load and WAN change. It is `edgeward review` of examples/pods.yaml against three fleets.
    Demo,
    /// Print what a shell needs to complete commands and options.
    ///
    /// bash, for all users: `edgeward completions bash > /etc/bash_completion.d/edgeward`. zsh, into a directory of `$fpath`:
    /// `edgeward completions zsh > _edgeward`. fish: `edgeward completions fish > ~/.config/fish/completions/edgeward.fish`.
    Completions {
        /// For which shell
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
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
        Command::Serve(serve) => serve.run().map(|()| ExitCode::SUCCESS),
        Command::Why(why) => why.run().map(|()| ExitCode::SUCCESS),
        Command::Check(check) => check.run(),
        Command::Review(review) => review.run(),
        Command::Crds => crds().map(|()| ExitCode::SUCCESS),
        Command::ConfigSchema => config_schema::run().map(|()| ExitCode::SUCCESS),
        Command::Completions { shell } => completions(shell).map(|()| ExitCode::SUCCESS),
        Command::Fleet(fleet) => fleet.run().map(|()| ExitCode::SUCCESS),
        Command::Profile(profile) => profile.run(),
        Command::Release(release) => release.run(),
        Command::Demo => demo::run().map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        note(&format!("error: {}", sentence(&error)));
        ExitCode::FAILURE
    })
}

/// An error and its causes, those left out that are repeated by what they cause.
fn sentence(error: &anyhow::Error) -> String {
    error
        .chain()
        .fold(String::new(), |said, cause| match cause.to_string() {
            cause if said.is_empty() => cause,
            cause if said.contains(&cause) => said,
            cause => format!("{said}: {cause}"),
        })
}

/// Whether this is a name and no path: it is made of what Kubernetes allows in one.
fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    text.chars().any(char::is_alphanumeric) && text.chars().all(is_allowed)
}

/// The name of an object.
fn name(text: &str) -> Result<String, String> {
    let fault = "not a name in Kubernetes: lower-case letters, digits, `-` and `.`";
    is_name(text).then(|| text.to_owned()).ok_or_else(|| fault.to_owned())
}

/// `[NAMESPACE/]NAME` of an object, as it was written.
pub(crate) fn namespaced_name(text: &str) -> Result<String, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("any", text));
    let are_names = is_name(namespace) && is_name(name);
    let fault = "not the name of an object: expected NAME or NAMESPACE/NAME";
    are_names.then(|| text.to_owned()).ok_or_else(|| fault.to_owned())
}

/// A line on standard error. Not `eprintln!`, which panics where that is closed.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// A table without lines, and without blanks at the end of its rows. The names in its header have a comma between two.
fn table<const N: usize>(header: &str, rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.split(','));
    table.add_rows(rows);
    table.trim_fmt() + "\n"
}

/// Which cluster a command asks, and for how long.
#[derive(Debug, Args)]
struct Cluster {
    /// Context of the kubeconfig; without, its current one or, where there is no kubeconfig, the cluster of the pod that
    /// this runs in.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Seconds to wait for the cluster.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
}

impl Cluster {
    /// Asks the cluster of this context, or of the current one, within this time.
    fn ask<T>(&self, question: impl AsyncFnOnce(&Connection) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let (runtime, timeout) = (tokio_runtime()?, self.timeout);
        let answer = runtime.block_on(async {
            let connection = Connection::open(self.context.as_deref()).await?;
            let answer = tokio::time::timeout(Duration::from_secs(timeout), question(&connection)).await;
            answer.with_context(|| format!("{}: no answer within {timeout} s", connection.name))?
        });
        runtime.shutdown_background();
        answer
    }
}

/// The forms of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// One object.
    Json,
    /// One object.
    Yaml,
}

impl Output {
    fn print<T: Serialize>(self, report: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        print(&match self {
            Self::Text => text(report),
            Self::Json => serde_json::to_string_pretty(report)? + "\n",
            Self::Yaml => serde_saphyr::to_string(report)?,
        })
    }
}

/// The text of a file, or of standard input for `-`.
fn read_text(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// A configuration in a file or directory, or the defaults without one.
fn read_config(path: Option<&Path>) -> anyhow::Result<Config> {
    path.map_or_else(|| Ok(Config::default()), configuration::read)
}

/// Prints the definitions of our custom resources.
fn crds() -> anyhow::Result<()> {
    for definition in api::definitions() {
        let yaml = serde_saphyr::to_string(&definition).context("a definition cannot be written as YAML")?;
        print(&format!("---\n{yaml}"))?;
    }
    Ok(())
}

/// Prints what a shell completes.
fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "edgeward", &mut script);
    print(&String::from_utf8(script)?)
}
