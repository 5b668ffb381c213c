//! `edgeward-lab evaluate`.

use std::fmt::Display;

use anyhow::{Result, bail};
use edgeward_lab::gym::{Baseline, Protocol, Settings, report};

use super::{Output, print, whole};

/// Plays episodes of gym-multi-k8s under several policies and compares the results with each other and with the paper
#[derive(Debug, clap::Args)]
pub(super) struct Evaluate {
    /// Fields of the environment, separated by commas, such as mode=stay,observation=fresh,clusters=8; the default of
    /// each field is the published value
    #[arg(long, value_name = "FIELDS", value_parser = Settings::parse, default_value_t)]
    env: Settings,
    /// Run these policies only, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = Baseline::parse)]
    policies: Vec<Baseline>,
    /// Number of episodes for each seed
    #[arg(long, default_value_t = 2000, value_parser = whole(1..=1_000_000), allow_negative_numbers = true)]
    episodes: u64,
    /// Seeds of the environments, separated by commas; the published seed is 42
    #[arg(long, value_delimiter = ',', default_value = "42", value_parser = whole(0..=u64::MAX), allow_hyphen_values = true)]
    seeds: Vec<u64>,
    /// Number of resets before an episode: one-reset, as in the published test of greedy policies, or two-resets, as in
    /// the published test of trained policies
    #[arg(long, value_parser = Protocol::parse, default_value_t = Protocol::OneReset)]
    protocol: Protocol,
    /// Output format
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    #[command(flatten)]
    trained: Trained,
}

/// Options for policies trained by `edgeward-lab train`.
#[derive(Debug, clap::Args)]
struct Trained {
    /// Evaluate the policy in this output folder of `train`, in the environment it was trained in; may be repeated. The
    /// baselines run too if --policies names them
    #[arg(long = "checkpoint", value_name = "DIR", conflicts_with = "env")]
    checkpoints: Vec<std::path::PathBuf>,
    /// Evaluate with each of these numbers of clusters in turn, separated by commas; the default is the number in
    /// training
    // With `--env`, clap waives the required `--checkpoint`, because the two conflict. So each option states its own
    // conflict.
    #[arg(long, value_delimiter = ',', value_parser = clusters, allow_hyphen_values = true)]
    #[arg(requires = "checkpoints", conflicts_with = "env")]
    clusters: Vec<usize>,
}

fn clusters(text: &str) -> Result<usize, String> {
    whole(1..=Settings::MAX_CLUSTERS as u64)(text).map(|clusters| clusters as usize)
}

impl Evaluate {
    pub(super) fn run(self) -> Result<()> {
        are_distinct("--policies", &self.policies)?;
        are_distinct("--seeds", &self.seeds)?;
        if !self.trained.checkpoints.is_empty() {
            return self.run_trained();
        }
        let policies = match self.policies.is_empty() {
            true => Baseline::ALL.to_vec(),
            false => self.policies.clone(),
        };
        let rows = policies.iter().map(|policy| report::Row {
            policy: policy.to_string(),
            summary: policy.summary(&self.env, &self.seeds, self.protocol, self.episodes as usize),
        });
        let rows: Vec<_> = rows.collect();
        print(&match self.output {
            Output::Table => report::table(&self.env, &rows),
            Output::Json => format!("{:#}\n", report::json(&self.env, &rows)),
        })
    }

    fn run_trained(self) -> Result<()> {
        use edgeward_lab::learning::{Policy, Trial, json, tables};
        are_distinct("--clusters", &self.trained.clusters)?;
        super::train::on_one_thread()?;
        let policies = self.trained.checkpoints.iter().map(|folder| Policy::load(folder));
        let mut policies = policies.collect::<Result<Vec<_>>>()?;
        let trial = Trial {
            clusters: self.trained.clusters,
            seeds: self.seeds,
            episodes: self.episodes as usize,
            protocol: self.protocol,
            baselines: self.policies,
        };
        let sections = trial.run(&mut policies)?;
        print(&match self.output {
            Output::Table => tables(&sections),
            Output::Json => format!("{:#}\n", json(&sections)),
        })
    }
}

fn are_distinct<T: Display + PartialEq>(option: &str, values: &[T]) -> Result<()> {
    let twice = |(at, value): &(usize, &T)| values[..*at].contains(value);
    match values.iter().enumerate().find(twice) {
        Some((_, value)) => bail!("{option}: {value} is given twice"),
        None => Ok(()),
    }
}
