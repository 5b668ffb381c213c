//! A training, which can be interrupted and resumed.

use std::path::Path;

use anyhow::Result;

use super::checkpoint::{self, Stored};
use super::memory::OffPolicy;
use super::network::Network;
use super::optimiser::Optimiser;
use super::plan::{Algorithm, Plan, Rollouts};
use super::policy::Policy;
use super::rollout::OnPolicy;
use super::world::World;
use crate::gym::Episode;
use crate::random::{Purpose, Stream};

/// Least number of steps in each environment per call of [`Training::advance`].
const TOGETHER: u64 = 100;

/// A training. Equal plans give equal numbers, even if the training was saved and resumed.
pub struct Training {
    plan: Plan,
    pub(super) stream: Stream,
    pub(super) world: World,
    pub(super) learner: Learner,
}

pub(super) enum Learner {
    OnPolicy(OnPolicy),
    OffPolicy(OffPolicy),
}

impl Training {
    /// Creates a training that has not begun.
    ///
    /// # Errors
    /// The plan is invalid.
    pub fn new(plan: Plan) -> Result<Self> {
        plan.validate()?;
        let world = World::new(&plan);
        let mut starts = Stream::new(plan.seed, Purpose::Learning, 0, 0);
        let learner = match Rollouts::of(plan.algorithm) {
            Some(rollouts) => {
                let shapes = [Algorithm::actor, Algorithm::critic].map(|shape| shape(plan.algorithm, world.actions()));
                Learner::OnPolicy(OnPolicy::new(shapes, rollouts, &mut starts)?)
            }
            None => Learner::OffPolicy(OffPolicy::new(&plan, world.actions(), &mut starts)?),
        };
        Ok(Self {
            stream: Stream::new(plan.seed, Purpose::Learning, 1, 0),
            plan,
            world,
            learner,
        })
    }

    /// Resumes the training saved in this folder. It replays all steps of the environments without learning, which
    /// takes about a second per million steps.
    ///
    /// # Errors
    /// A file is missing or was not written by [`Training::save`]. The message names the file and the fault.
    pub fn resume(folder: &Path) -> Result<Self> {
        let mut training = Self::new(checkpoint::read_plan(folder)?)?;
        let mut stored = Stored::read(folder, &training.plan)?;
        for (name, network) in training.learner.networks() {
            stored.restore(name, network)?;
        }
        let names = training.learner.optimised();
        stored.restore_moments(&names, training.learner.optimiser_mut())?;
        training.stream = Stream::at(stored.state("random")?);
        let history = stored.bytes("actions")?;
        stored.finish()?;
        let found = |error: anyhow::Error| error.context(checkpoint::file(folder).display().to_string());
        match &mut training.learner {
            Learner::OnPolicy(_) => training.world.replay(&history, |_, _, _| ()),
            Learner::OffPolicy(learner) => learner.replay(&mut training.world, &history),
        }
        .map_err(found)?;
        Ok(training)
    }

    /// Saves the plan and everything needed to resume. The previously saved state stays until the new one is complete.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn save(&self, folder: &Path) -> Result<()> {
        checkpoint::write_plan(folder, &self.plan)?;
        let mut stored = Stored::of(&self.plan)?;
        for (name, network) in self.learner.networks() {
            stored.keep(name, network);
        }
        stored.keep_moments(&self.learner.optimised(), self.learner.optimiser())?;
        stored.keep_state("random", self.stream.state())?;
        stored.keep_bytes("actions", self.world.history())?;
        stored.write(folder)
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn steps(&self) -> u64 {
        self.world.iterations() * Plan::ENVIRONMENTS as u64
    }

    pub fn is_over(&self) -> bool {
        self.steps() >= self.plan.steps
    }

    /// Takes some steps and learns from them. Does nothing if all steps are taken.
    ///
    /// # Errors
    /// An error of the tensor library.
    pub fn advance(&mut self) -> Result<()> {
        let iterations = match &self.learner {
            Learner::OnPolicy(learner) => learner.iterations(),
            Learner::OffPolicy(_) => 1,
        };
        for _ in 0..TOGETHER.div_ceil(iterations) {
            if self.is_over() {
                break;
            }
            match &mut self.learner {
                Learner::OnPolicy(learner) => learner.update(&mut self.world, &mut self.stream)?,
                Learner::OffPolicy(learner) => learner.update(&mut self.world, &mut self.stream)?,
            }
        }
        Ok(())
    }

    /// Returns the finished episodes, each with the number of steps of all environments at its end.
    pub fn episodes(&self) -> impl DoubleEndedIterator<Item = (u64, &Episode)> {
        let episodes = self.world.episodes.iter();
        episodes.map(|(iteration, episode)| (iteration * Plan::ENVIRONMENTS as u64, episode))
    }

    /// Returns the policy learned so far.
    ///
    /// # Errors
    /// An error of the tensor library.
    pub fn policy(&self) -> Result<Policy> {
        let name = format!("{}, seed {}", self.plan.algorithm, self.plan.seed);
        let actor = self.learner.networks()[0].1.copied()?;
        Ok(Policy::new(self.plan.clone(), self.steps(), name, actor))
    }
}

impl Learner {
    fn networks(&self) -> [(&'static str, &Network); 2] {
        match self {
            Self::OnPolicy(learner) => [("actor", &learner.actor), ("critic", &learner.critic)],
            Self::OffPolicy(learner) => [("actor", &learner.actor), ("target", &learner.target)],
        }
    }

    fn optimised(&self) -> Vec<String> {
        let networks = self.networks();
        let optimised = match self {
            Self::OnPolicy(_) => &networks[..],
            Self::OffPolicy(_) => &networks[..1],
        };
        let names = optimised.iter().flat_map(|(network, parameters)| {
            let names = parameters.parameters();
            names.map(move |(name, _)| format!("{network}.{name}"))
        });
        names.collect()
    }

    fn optimiser(&self) -> &Optimiser {
        match self {
            Self::OnPolicy(learner) => &learner.optimiser,
            Self::OffPolicy(learner) => &learner.optimiser,
        }
    }

    fn optimiser_mut(&mut self) -> &mut Optimiser {
        match self {
            Self::OnPolicy(learner) => &mut learner.optimiser,
            Self::OffPolicy(learner) => &mut learner.optimiser,
        }
    }
}
