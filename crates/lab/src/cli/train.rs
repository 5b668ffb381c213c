//! `edgeward-lab train`.

use std::fmt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use edgeward_decision::model::scorer::Provenance;
use edgeward_lab::gym::{Settings, Summary};
use edgeward_lab::learning::{Algorithm, Placement, Plan, Round, Training, learning_curve};

use super::scenarios::Folder;
use super::{note, set_by_sigint, whole};

/// Trains a network that places requests, in the environment of `evaluate`, or the learned scorer, in simulations
#[derive(Debug, clap::Args)]
pub(super) struct Train {
    /// Algorithm: deepsets-ppo, deepsets-dqn, mlp-maskable-ppo or mlp-a2c
    #[arg(long = "algo", value_name = "ALGORITHM", value_parser = Algorithm::parse)]
    algorithm: Option<Algorithm>,
    /// Fields of the environment, as of `evaluate`; or `placement`, which trains the learned scorer on --scenarios
    #[arg(long, value_name = "FIELDS", value_parser = Environment::parse, default_value_t)]
    env: Environment,
    /// Folder with the scenarios of `--env placement`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["algorithm", "env_seed"])]
    scenarios: Option<PathBuf>,
    /// Seed of the networks, the samples and the environments
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX), allow_negative_numbers = true)]
    seed: u64,
    /// Use this seed for all environments, 42 as published; by default each environment has its own
    #[arg(long, value_name = "SEED", value_parser = whole(0..=u64::MAX), allow_negative_numbers = true)]
    env_seed: Option<u64>,
    /// Number of steps of all environments together, rounded up to whole rounds; the default is 200000, and 1600000 for
    /// deepsets-dqn. With `--env placement`, the number of choices
    #[arg(long, value_parser = whole(1..=Plan::MAX_STEPS), allow_negative_numbers = true)]
    steps: Option<u64>,
    /// Folder for the checkpoint and the learning curve, or for `scorer.json`
    #[arg(long, value_name = "DIR", required_unless_present = "resume")]
    out: Option<PathBuf>,
    /// Resume the interrupted training in this folder, which also holds its plan
    #[arg(long, value_name = "DIR", conflicts_with_all = [
        "algorithm", "env", "scenarios", "seed", "env_seed", "steps", "out",
    ])]
    resume: Option<PathBuf>,
}

#[derive(Debug, Clone)]
enum Environment {
    Gym(Box<Settings>),
    Placement,
}

impl Default for Environment {
    fn default() -> Self {
        Self::Gym(Box::default())
    }
}

impl Environment {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "placement" => Ok(Self::Placement),
            fields => Ok(Self::Gym(Box::new(Settings::parse(fields)?))),
        }
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gym(settings) => settings.fmt(f),
            Self::Placement => f.write_str("placement"),
        }
    }
}

impl Train {
    pub(super) fn run(self) -> Result<()> {
        on_one_thread()?;
        let (mut training, folder) = match (&self.env, &self.scenarios, &self.resume, &self.algorithm, &self.out) {
            (Environment::Placement, Some(scenarios), _, _, Some(out)) => return self.placement(scenarios, out),
            (Environment::Placement, ..) => bail!("--env placement: needs --scenarios and --out"),
            (_, Some(folder), ..) => bail!("--scenarios {}: needs --env placement", folder.display()),
            (_, _, Some(folder), ..) => (Training::resume(folder)?, folder.clone()),
            (Environment::Gym(settings), _, _, Some(algorithm), Some(out)) => {
                (Training::new(self.plan(*algorithm, settings))?, out.clone())
            }
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

    /// Trains a scorer on the scenarios of this folder.
    fn placement(&self, scenarios: &Path, out: &Path) -> Result<()> {
        let file = out.join("scorer.json");
        ensure!(!file.exists(), "--out {}: scorer.json is there already", out.display());
        std::fs::create_dir_all(out).with_context(|| out.display().to_string())?;
        let folder = Folder::read(scenarios)?;
        let steps = self.steps.unwrap_or(Placement::STEPS);
        let provenance = Provenance {
            command: format!(
                "edgeward-lab train --env placement --scenarios {} --seed {} --steps {steps}",
                scenarios.display(),
                self.seed
            ),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            scenarios: folder.hashes,
            seeds: vec![self.seed],
        };
        let mut training = Placement::new(self.seed, folder.read)?;
        let mut sum = Round::default();
        while training.steps() < steps {
            let before = training.steps() * 10 / steps;
            sum.add(training.advance()?);
            if training.steps() * 10 / steps > before {
                note(&format!("{} of {steps} choices: {sum}\n", training.steps()));
                sum = Round::default();
            }
        }
        let text = serde_json::to_string(&training.scorer(provenance)?)? + "\n";
        std::fs::write(&file, text).with_context(|| file.display().to_string())
    }

    fn plan(&self, algorithm: Algorithm, settings: &Settings) -> Plan {
        Plan {
            algorithm,
            settings: settings.clone(),
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
