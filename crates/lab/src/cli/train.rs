//! `edgeward-lab train`.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use edgeward_lab::gym::{Mode, Observation, RewardKind, Settings, Summary};
use edgeward_lab::learning::{Algorithm, Plan, Training, learning_curve};

use super::note;

/// Trains a network that places requests, in the environment of `evaluate`
#[derive(Debug, clap::Args)]
pub(super) struct Train {
    /// How: deepsets-ppo, deepsets-dqn, mlp-maskable-ppo or mlp-a2c
    #[arg(long = "algo", value_name = "ALGORITHM", value_parser = Algorithm::parse, required_unless_present = "resume")]
    algorithm: Option<Algorithm>,
    /// What a step is worth: latency, cost, naive, risk or binpack
    #[arg(long, value_parser = RewardKind::parse, default_value = "latency")]
    reward: RewardKind,
    /// How long requests run: instant as in the published code, or stay as in the paper
    #[arg(long, value_parser = Mode::parse, default_value = "instant")]
    mode: Mode,
    /// What is seen: stale as in the published code, or fresh
    #[arg(long, value_parser = Observation::parse, default_value = "stale")]
    observation: Observation,
    /// How many clusters there are
    #[arg(long, default_value_t = 4, value_parser = clusters)]
    clusters: usize,
    /// Let the rows of "spread" and "reject" differ
    #[arg(long)]
    distinct_padding: bool,
    /// Scale what is seen to numbers of about 1
    #[arg(long)]
    scaled: bool,
    /// Of the networks, of what is drawn, and of the environments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The seed of all environments, 42 as published; each has one of its own without it
    #[arg(long, value_name = "SEED")]
    env_seed: Option<u64>,
    /// Q-learning takes the best next action among all, as in the published code, and not among those that the mask has
    #[arg(long)]
    unmasked_targets: bool,
    /// Steps of all environments together; without it 200000, and 1600000 of deepsets-dqn
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=Plan::MAX_STEPS))]
    steps: Option<u64>,
    /// The folder of the checkpoint and the learning curve
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    out: Option<PathBuf>,
    /// Go on with the training in this folder, which was interrupted; its plan is there
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "algorithm", "reward", "mode", "observation", "clusters", "distinct_padding", "scaled", "seed", "env_seed",
        "unmasked_targets", "steps", "out",
    ])]
    resume: Option<PathBuf>,
}

fn clusters(text: &str) -> Result<usize, String> {
    let clusters = text
        .parse()
        .ok()
        .filter(|clusters| (1..=Settings::MAX_CLUSTERS).contains(clusters));
    clusters.ok_or_else(|| format!("is not a whole number from 1 to {}", Settings::MAX_CLUSTERS))
}

impl Train {
    pub(super) fn run(self) -> Result<()> {
        on_one_thread()?;
        let (mut training, folder) = match (&self.resume, &self.algorithm, &self.out) {
            (Some(folder), ..) => (Training::resume(folder)?, folder.clone()),
            (None, Some(algorithm), Some(out)) => (Training::new(self.plan(*algorithm))?, out.clone()),
            _ => bail!("--algo and --out are needed"),
        };
        if self.resume.is_none() {
            if folder.join("checkpoint.safetensors").exists() {
                bail!(
                    "--out {}: a training is there already; --resume goes on with it",
                    folder.display()
                );
            }
            training.save(&folder)?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        // The second time it ends the process, as if nobody had asked for the first.
        signal_hook::flag::register_conditional_default(signal_hook::consts::SIGINT, Arc::clone(&stop))?;
        signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))?;
        run(&mut training, &folder, &stop)
    }

    fn plan(&self, algorithm: Algorithm) -> Plan {
        Plan {
            algorithm,
            settings: Settings {
                clusters: self.clusters,
                mode: self.mode,
                observation: self.observation,
                reward: self.reward,
                distinct_padding: self.distinct_padding,
                scaled: self.scaled,
            },
            seed: self.seed,
            environment_seed: self.env_seed,
            steps: self.steps.unwrap_or(algorithm.steps()),
            masked_targets: !self.unmasked_targets,
        }
    }
}

/// Starts this program anew, unless it is told already how many threads multiply: see [`edgeward_lab::learning`].
pub(super) fn on_one_thread() -> Result<()> {
    const THREADS: &str = "RAYON_NUM_THREADS";
    if std::env::var_os(THREADS).is_some() {
        return Ok(());
    }
    let mut again = Command::new(std::env::current_exe()?);
    again.args(std::env::args_os().skip(1)).env(THREADS, "1");
    // It only returns if it failed.
    Err(again.exec()).context("cannot start anew")
}

/// Goes on until the end or until it is asked to stop, and saves ten times meanwhile.
fn run(training: &mut Training, folder: &Path, stop: &AtomicBool) -> Result<()> {
    let all = training.plan().steps;
    let part = |steps: u64| steps * 10 / all;
    let mut reported = part(training.steps());
    let mut seen = training.episodes().count();
    while !training.is_over() && !stop.load(Ordering::Relaxed) {
        training.advance()?;
        let steps = training.steps();
        if part(steps) > reported || training.is_over() {
            reported = part(steps);
            let episodes: Vec<_> = training.episodes().skip(seen).map(|(_, episode)| *episode).collect();
            seen += episodes.len();
            note(&format!("{steps} of {all} steps: {}\n", Summary::of(&episodes)));
            save(training, folder)?;
        }
    }
    if training.is_over() {
        return Ok(());
    }
    save(training, folder)?;
    bail!(
        "stopped after {} of {all} steps; --resume {} goes on",
        training.steps(),
        folder.display()
    )
}

fn save(training: &Training, folder: &Path) -> Result<()> {
    training.save(folder)?;
    let path = folder.join("curve.svg");
    std::fs::write(&path, learning_curve(training)).with_context(|| path.display().to_string())
}
