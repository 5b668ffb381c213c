//! The command line. The only place where errors become exit codes.

mod check;
mod config_schema;
mod cost_map;
mod demo;
mod findings;
mod fleet;
mod import;
mod installed;
mod moves;
mod oam;
mod peers;
mod profile;
mod release;
mod review;
mod scorer;
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
use edgeward_decision::config::Config;
use serde::Serialize;

use crate::inspect::Connection;
use crate::instruments::logs::{self, LogFormat};
use crate::instruments::metrics::Metrics;
use crate::serve::{Webhook, tokio_runtime};
use crate::{api, config};

/// Place Kubernetes pods on the edge or in the cloud, by their SLO, when they are created.
///
/// edgeward is a mutating admission webhook: `edgeward serve` runs it.
#[derive(Debug, Parser)]
#[command(name = "edgeward", version, max_term_width = 110)]
#[command(
    after_help = "Exit codes: 0 success; 1 unreadable input, or a failure while running; 2 wrong usage. Some commands \
                  have more, in their own help.\n\nLinked as kubectl-edgeward on the PATH, it is also `kubectl edgeward`."
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
    CostMap(cost_map::CostMap),
    Profile(profile::Profile),
    Scorer(scorer::Scorer),
    Import(import::Import),
    Oam(oam::Oam),
    Peers(peers::Peers),
    Release(release::Release),
    Moves(moves::Moves),
    /// Print the definitions of the custom resources Site, SloPolicy, PerformanceProfile, ClusterReport and Peer.
    ///
    /// For `kubectl apply --server-side -f -`. They are optional: without them, sites come from the configuration, SLOs
    /// from annotations, and no site is preferred.
    Crds,
    /// Print a JSON schema of the configuration, for completion and checks in editors.
    ///
    /// It covers names, types, allowed words and numeric bounds. `serve` and `check --config` check the rest.
    ConfigSchema,
    /// Show three situations on this machine, without a cluster.
    ///
    /// Decides the same three pods while load and WAN change, as `edgeward review` does with examples/pods.yaml.
    Demo,
    /// Print a shell completion script.
    ///
    /// bash, for all users: `edgeward completions bash > /etc/bash_completion.d/edgeward`. zsh, into a directory of `$fpath`:
    /// `edgeward completions zsh > _edgeward`. fish: `edgeward completions fish > ~/.config/fish/completions/edgeward.fish`.
    Completions {
        /// Shell that reads the script.
        #[arg(value_name = "SHELL")]
        shell: Shell,
    },
}

/// Writes to standard output. A closed pipe, as `head` leaves it, is not an error.
fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

/// Prints one of several YAML documents.
fn print_document(document: &impl Serialize) -> anyhow::Result<()> {
    let yaml = serde_saphyr::to_string(document).context("a document cannot be written as YAML")?;
    print(&format!("---\n{yaml}"))
}

/// Parses the arguments of this process and runs the command.
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
        Command::CostMap(map) => map.run().map(|()| ExitCode::SUCCESS),
        Command::Profile(profile) => profile.run(),
        Command::Scorer(scorer) => scorer.run().map(|()| ExitCode::SUCCESS),
        Command::Import(import) => import.run(),
        Command::Oam(oam) => oam.run(),
        Command::Peers(peers) => peers.run().map(|()| ExitCode::SUCCESS),
        Command::Release(release) => release.run(),
        Command::Moves(moves) => moves.run().map(|()| ExitCode::SUCCESS),
        Command::Demo => demo::run().map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        note(&format!("error: {}", sentence(&error)));
        ExitCode::FAILURE
    })
}

/// Joins an error and its causes into one line. Leaves out a cause that the line already contains.
fn sentence(error: &anyhow::Error) -> String {
    error
        .chain()
        .fold(String::new(), |said, cause| match cause.to_string() {
            cause if said.is_empty() => cause,
            cause if said.contains(&cause) => said,
            cause => format!("{said}: {cause}"),
        })
}

/// Whether `text` has only characters that Kubernetes allows in a name. A path does not.
fn is_name(text: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    text.chars().any(char::is_alphanumeric) && text.chars().all(is_allowed)
}

/// Parses the name of an object.
fn name(text: &str) -> Result<String, String> {
    let fault = "not a name in Kubernetes: lower-case letters, digits, `-` and `.`";
    is_name(text).then(|| text.to_owned()).ok_or_else(|| fault.to_owned())
}

/// Checks that `text` has the form `[NAMESPACE/]NAME` and returns it unchanged.
pub(crate) fn namespaced_name(text: &str) -> Result<String, String> {
    let (namespace, name) = text.split_once('/').unwrap_or(("any", text));
    let are_names = is_name(namespace) && is_name(name);
    let fault = "not the name of an object: expected NAME or NAMESPACE/NAME";
    are_names.then(|| text.to_owned()).ok_or_else(|| fault.to_owned())
}

/// Writes a line to standard error. `eprintln!` would panic if standard error is closed.
fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Formats a table without borders and trailing blanks. `header` holds the column names, separated by commas.
fn table<const N: usize>(header: &str, rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.split(','));
    table.add_rows(rows);
    table.trim_fmt() + "\n"
}

/// Options for the cluster that a command reads.
#[derive(Debug, Args)]
struct Cluster {
    /// Kubeconfig context. Default: the current one, or the pod's own cluster if there is no kubeconfig.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Seconds to wait for the cluster.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u64,
}

impl Cluster {
    /// Connects to the cluster and runs `question` within the timeout.
    fn ask<T>(&self, question: impl AsyncFnOnce(&Connection) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let _logs = logs::init_logging(LogFormat::Pretty, "warn", &Metrics::new())?;
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

/// Format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
    Yaml,
}

impl Output {
    fn render<T: Serialize>(self, report: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<String> {
        Ok(match self {
            Self::Text => text(report),
            Self::Json => serde_json::to_string_pretty(report)? + "\n",
            Self::Yaml => serde_saphyr::to_string(report)?,
        })
    }

    fn print<T: Serialize>(self, report: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        print(&self.render(report, text)?)
    }
}

/// Reads a file, or standard input for `-`.
fn read_text(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Reads the configuration in a file or directory. Returns the defaults without a path.
fn read_config(path: Option<&Path>) -> anyhow::Result<Config> {
    path.map_or_else(|| Ok(Config::default()), config::read)
}

/// Prints the definitions of the custom resources.
fn crds() -> anyhow::Result<()> {
    for definition in api::definitions() {
        print_document(&definition)?;
    }
    Ok(())
}

/// Prints the completion script.
fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "edgeward", &mut script);
    print(&String::from_utf8(script)?)
}
