//! The command line of `edgeward-lab`.

mod evaluate;
mod peers;
mod scenarios;
mod train;

use std::io::{IsTerminal as _, Write as _};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use edgeward_decision::document::Faults;
use edgeward_decision::model::scorer::Scorer;
use edgeward_lab::experiment::{Plan, at_loads};
use edgeward_lab::policy::Policy;
use edgeward_lab::scenario::SimulatedProfile;
use edgeward_lab::{report, scenario};
use edgeward_profiles::Profile;
use serde_json::Value;

/// Simulates edgeward (the production engine in virtual time), and trains and evaluates learned placement policies
#[derive(Debug, Parser)]
#[command(name = "edgeward-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a scenario under several policies and compares their results
    Simulate(Simulate),
    Evaluate(evaluate::Evaluate),
    Train(train::Train),
    Peers(peers::Peers),
    Scenarios(scenarios::Scenarios),
}

#[derive(Debug, clap::Args)]
struct Simulate {
    /// The scenario file, in YAML
    scenario: PathBuf,
    /// Number of seeds to run, starting at 1; the default is in the scenario
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    seeds: Option<u64>,
    /// Run this seed only
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run these policies only, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = Policy::parse)]
    policies: Vec<Policy>,
    /// Take the cluster from this fleet file (the output of `edgeward fleet -o yaml`) instead of the scenario
    #[arg(long, value_name = "FLEET")]
    from_cluster: Option<PathBuf>,
    /// Take the pods from the log of a running `edgeward serve` instead of the scenario's Jobs
    #[arg(long, value_name = "LOG")]
    trace: Option<PathBuf>,
    /// Take the performance profile from this PerformanceProfile instead of the scenario
    #[arg(long, value_name = "PROFILE")]
    profile: Option<PathBuf>,
    /// Also run `edgeward-learned`, which ranks clouds by this scorer
    #[arg(long, value_name = "SCORER")]
    scorer: Option<PathBuf>,
    /// Show the differences of each policy from this one, seed by seed
    #[arg(long, value_name = "POLICY", value_parser = Policy::parse, conflicts_with = "html")]
    against: Option<Policy>,
    /// Multiply the scenario's load by each of these factors in turn, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "FACTORS", value_parser = load_factor)]
    load_factor: Vec<f64>,
    /// Number of runs at once; the default is the number of cores
    #[arg(long)]
    threads: Option<usize>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Also write a page with plots to this file
    #[arg(long)]
    html: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// Parses the arguments of this process and runs the command.
pub(crate) fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Simulate(simulate) => simulate.run(),
        Command::Evaluate(evaluate) => evaluate.run(),
        Command::Train(train) => train.run(),
        Command::Peers(peers) => peers.run(),
        Command::Scenarios(scenarios) => scenarios.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("error: {error:#}\n"));
            ExitCode::FAILURE
        }
    }
}

fn note(text: &str) {
    // Without a standard error, the message is lost.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A flag that the first SIGINT sets. The second one ends the process in the default way.
fn set_by_sigint() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, Arc::clone(&stop))?;
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))?;
    Ok(stop)
}

/// Prints to standard output. A closed pipe is not an error: the reader has seen enough.
fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

impl Simulate {
    fn run(self) -> Result<()> {
        let scenario = read(&self.scenario, self.from_cluster.as_deref())?;
        let mut scenario = match &self.trace {
            None => scenario,
            Some(path) => {
                let shown = path.display();
                let log = std::fs::read_to_string(path).with_context(|| shown.to_string())?;
                scenario
                    .replaying(&log)
                    .map_err(|error| anyhow::anyhow!("{shown}: {error}"))?
            }
        };
        if let Some(path) = &self.profile {
            let spec = &document(path)?["spec"];
            let profile = Profile::read(spec).map_err(|faults| anyhow::anyhow!("{}: {faults}", path.display()))?;
            scenario.profile = Some(SimulatedProfile::new(profile));
        }
        if let Some(path) = &self.scorer {
            scenario.scorer = Some(Arc::new(scorer(path)?));
        }
        let mut factors = self.load_factor;
        if factors.is_empty() {
            factors.push(1.0);
        }
        factors.sort_by(f64::total_cmp);
        factors.dedup();
        let seeds = match self.seed {
            Some(seed) => vec![seed],
            None => (1..=self.seeds.unwrap_or(scenario.seeds)).collect(),
        };
        let mut plan = Plan {
            policies: match self.policies.is_empty() {
                true => Policy::of(&scenario).collect(),
                false => self.policies,
            },
            seeds,
            threads: self
                .threads
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        };
        if let Some(against) = self.against.filter(|against| !plan.policies.contains(against)) {
            plan.policies.push(against);
        }
        for policy in &plan.policies {
            if let Some(missing) = policy.missing(&scenario) {
                bail!("--policies {policy}: the scenario has no {missing}");
            }
        }
        let stop = set_by_sigint()?;
        let is_terminal = std::io::stderr().is_terminal();
        let progress = |done: usize, all: usize| {
            if is_terminal {
                let filled = 30 * done / all;
                let end = if done == all { "\n" } else { "" };
                note(&format!("\r[{:<30}] {done} of {all} runs{end}", "#".repeat(filled)));
            }
        };
        progress(0, factors.len() * plan.seeds.len() * plan.policies.len());
        let mut experiment = match at_loads(&scenario, &factors, &plan, &stop, progress) {
            Ok(experiment) => experiment,
            Err(error) => bail!("the simulation is wrong: {error}"),
        };
        for load in &mut experiment.loads {
            load.results.against = self.against;
        }
        if experiment.loads.is_empty() {
            bail!("no run finished");
        }
        if experiment.is_incomplete {
            note("\nended early: the results below are from the finished runs\n");
        }
        let text = match self.output {
            Output::Table => report::table(&experiment),
            Output::Json => format!("{:#}\n", report::json(&experiment)),
        };
        if let Some(path) = &self.html {
            let page = report::page(&experiment);
            std::fs::write(path, page).with_context(|| path.display().to_string())?;
        }
        print(&text)
    }
}

/// Returns a parser of whole numbers within `range`.
fn whole(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("is not a whole number from {} to {}", range.start(), range.end()))
    }
}

fn load_factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.01..=100.0).contains(factor));
    factor.ok_or_else(|| "is not a number from 0.01 to 100".to_owned())
}

/// Reads the scenario, on the cluster of `fleet` if it is given. Paths of traces are relative to the scenario file.
fn read(path: &Path, fleet: Option<&Path>) -> Result<scenario::Scenario> {
    let scenario = document(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let load = |name: &str| std::fs::read_to_string(folder.join(name)).map_err(|error| error.to_string());
    let read = match fleet {
        None => scenario::read(&scenario, &load),
        Some(path) => {
            let (name, document) = (path.display().to_string(), document(path)?);
            let fleet = scenario::Fleet {
                name: &name,
                document: &document,
            };
            scenario::read_on(fleet, &scenario, &load)
        }
    };
    read.map_err(|Faults(faults)| {
        let list = faults.iter().map(|fault| format!("\n  {fault}")).collect::<String>();
        anyhow::anyhow!("{}:{list}", path.display())
    })
}

fn scorer(path: &Path) -> Result<Scorer> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| shown.to_string())?;
    Scorer::read(&text).map_err(|faults| anyhow::anyhow!("{shown}: {faults}"))
}

fn document(path: &Path) -> Result<Value> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| shown.to_string())?;
    // The parser's budget defends against hostile input. The user who runs the command chose this file.
    let options = serde_saphyr::options! { budget: None };
    serde_saphyr::from_str_with_options(&text, options).map_err(|error| anyhow::anyhow!("{shown}: {error}"))
}
