//! `edgeward-lab peers`.

use std::fmt::Write as _;
use std::str::FromStr as _;

use anyhow::{Context as _, Result, ensure};
use edgeward_lab::peers::{Measured, Plan, Topology, flocky, run};

use super::{print, whole};

/// Rounds before a partition begins.
const BEFORE_PARTITION: u64 = 10;

/// Simulates the discovery of peers from a cold start, and compares it with Flocky as published
#[derive(Debug, clap::Args)]
pub(super) struct Peers {
    /// A topology file of Flocky, or uniform:N for N random nodes, drawn as Flocky draws them
    #[arg(long, value_name = "FILE|uniform:N")]
    topology: String,
    /// RTT in ms within which peers are near
    #[arg(long, default_value_t = 10.0, value_parser = range)]
    range: f64,
    /// Number of seeds to run, starting at 1
    #[arg(long, default_value_t = 3, value_parser = whole(1..=1_000))]
    seeds: u64,
    /// Number of rounds of 10 s
    #[arg(long, default_value_t = 20, value_parser = whole(1..=10_000))]
    rounds: u64,
    /// Give every node the first node as its only seed
    #[arg(long)]
    common_seed: bool,
    /// Percentage of nodes that lie about their coordinates and offer addresses where nothing is
    #[arg(long, default_value_t = 0.0, value_parser = percentage)]
    hostile: f64,
    /// Percentage of requests without an answer
    #[arg(long, default_value_t = 0.0, value_parser = percentage)]
    loss: f64,
    /// Percentage of nodes that leave in each round; they return after 10 rounds and have forgotten everything
    #[arg(long, default_value_t = 0.0, value_parser = percentage)]
    churn: f64,
    /// After 10 rounds, cut the network into halves for this number of rounds
    #[arg(long, default_value_t = 0, value_parser = whole(0..=10_000))]
    partition: u64,
}

fn percentage(text: &str) -> Result<f64, String> {
    let percentage = text.parse().ok().filter(|percentage| (0.0..=90.0).contains(percentage));
    percentage.ok_or_else(|| "is not a number from 0 to 90".to_owned())
}

fn range(text: &str) -> Result<f64, String> {
    let range = text.parse().ok().filter(|range| (0.1..=1_000.0).contains(range));
    range.ok_or_else(|| "is not a number from 0.1 to 1000".to_owned())
}

impl Peers {
    pub(super) fn run(self) -> Result<()> {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for seed in 1..=self.seeds {
            let topology = self.topology(seed)?;
            let plan = Plan {
                range_ms: self.range,
                rounds: self.rounds,
                seed,
                hostile: self.hostile / 100.0,
                loss: self.loss / 100.0,
                churn: self.churn / 100.0,
                partition: BEFORE_PARTITION + 1..BEFORE_PARTITION + 1 + self.partition,
            };
            ours.push(run(&topology, &plan));
            theirs.push(flocky(&topology, self.range, self.rounds, seed));
        }
        print(&table(&ours, &theirs))
    }

    fn topology(&self, seed: u64) -> Result<Topology> {
        let topology = match self.topology.strip_prefix("uniform:") {
            Some(nodes) => {
                let nodes = nodes.parse().ok().filter(|nodes| (2..=5_000).contains(nodes));
                Topology::uniform(nodes.context("--topology uniform:N: N is not from 2 to 5000")?, seed)
            }
            None => {
                let text = std::fs::read_to_string(&self.topology).with_context(|| self.topology.clone())?;
                Topology::from_str(&text).with_context(|| self.topology.clone())?
            }
        };
        ensure!(topology.len() >= 2, "{}: has fewer than two nodes", self.topology);
        Ok(match self.common_seed {
            true => topology.with_common_seed(),
            false => topology,
        })
    }
}

/// A line for each round: means over the seeds, and the lowest accuracy. Flocky's network is undisturbed.
fn table(ours: &[Vec<Measured>], theirs: &[Vec<Measured>]) -> String {
    let mut text = "round  accuracy  lowest   pings   near  dead %  |  Flocky: accuracy   pings\n".to_owned();
    for round in 0..ours.first().map_or(0, Vec::len) {
        let mean = |runs: &[Vec<Measured>], value: fn(&Measured) -> f64| {
            runs.iter().map(|run| value(&run[round])).sum::<f64>() / runs.len() as f64
        };
        let lowest = ours.iter().map(|run| run[round].accuracy).fold(1.0, f64::min);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:5}  {:8.4}  {lowest:6.4}  {:6.2}  {:5.1}  {:6.2}  |  {:16.4}  {:6.2}",
            round + 1,
            mean(ours, |at| at.accuracy),
            mean(ours, |at| at.pings),
            mean(ours, |at| at.near),
            100.0 * mean(ours, |at| at.dead),
            mean(theirs, |at| at.accuracy),
            mean(theirs, |at| at.pings),
        );
    }
    text
}
