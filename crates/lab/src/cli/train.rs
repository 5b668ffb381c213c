//! `edgeward-lab train`.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use edgeward_lab::gym::{Settings, Summary};
use edgeward_lab::learning::{Algorithm, Plan, Training, learning_curve};

use super::{note, set_by_sigint, whole};

/// Trains a network that places requests, in the environment of `evaluate`
#[derive(Debug, clap::Args)]
pub(super) struct Train {
    /// Algorithm: deepsets-ppo, deepsets-dqn, mlp-maskable-ppo or mlp-a2c
    #[arg(long = "algo", value_name = "ALGORITHM", value_parser = Algorithm::parse, required_unless_present = "resume")]
    algorithm: Option<Algorithm>,
    /// Fields of the environment, as of `evaluate`
    #[arg(long, value_name = "FIELDS", value_parser = Settings::parse, default_value_t)]
    env: Settings,
    /// Seed of the networks, the samples and the environments
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX), allow_negative_numbers = true)]
    seed: u64,
    /// Use this seed for all environments, 42 as published; by default each environment has its own
    #[arg(long, value_name = "SEED", value_parser = whole(0..=u64::MAX), allow_negative_numbers = true)]
    env_seed: Option<u64>,
    /// Number of steps of all environments together, rounded up to whole rounds; the default is 200000, and 1600000 for
    /// deepsets-dqn
    #[arg(long, value_parser = whole(1..=Plan::MAX_STEPS), allow_negative_numbers = true)]
    steps: Option<u64>,
    /// Folder for the checkpoint and the learning curve
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    out: Option<PathBuf>,
    /// Resume the interrupted training in this folder, which also holds its plan
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "algorithm", "env", "seed", "env_seed", "steps", "out",
    ])]
    resume: Option<PathBuf>,
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
            is_free(&folder)?;
            training.save(&folder)?;
        } else if training.is_over() {
            note(&format!(
                "{}: all {} steps are done\n",
                folder.display(),
                training.steps()
            ));
        }
        let stop = set_by_sigint()?;
        run(&mut training, &folder, &stop)
    }

    fn plan(&self, algorithm: Algorithm) -> Plan {
        Plan {
            algorithm,
            settings: self.env.clone(),
            seed: self.seed,
            environment_seed: self.env_seed,
            steps: self.steps.unwrap_or(algorithm.steps()),
        }
    }
}

/// Fails if the folder holds files that a training would overwrite.
fn is_free(folder: &Path) -> Result<()> {
    let files = ["training.json", "checkpoint.safetensors", "curve.svg"];
    let found: Vec<_> = files.into_iter().filter(|file| folder.join(file).exists()).collect();
    let (file, advice) = match found[..] {
        [] => return Ok(()),
        [plan, "checkpoint.safetensors", ..] => (plan, "; --resume goes on with that training"),
        [file, ..] => (file, ""),
    };
    bail!("--out {}: {file} is there already{advice}", folder.display())
}

/// Restarts this program with one thread for matrix products, unless the environment already sets the number. See
/// [`edgeward_lab::learning`].
pub(super) fn on_one_thread() -> Result<()> {
    const THREADS: &str = "RAYON_NUM_THREADS";
    if std::env::var_os(THREADS).is_some() {
        return Ok(());
    }
    let mut again = Command::new(std::env::current_exe()?);
    again.args(std::env::args_os().skip(1)).env(THREADS, "1");
    // `exec` returns only if it fails.
    Err(again.exec()).context("cannot restart this program")
}

/// Trains until all steps are done or `stop` is set. Saves ten times on the way.
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
            let went = match episodes.is_empty() {
                true => "no episode ended".to_owned(),
                false => Summary::of(&episodes).to_string(),
            };
            note(&format!("{steps} of {all} steps: {went}\n"));
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
