//! Evaluates trained policies and compares them with baselines and the paper.

use anyhow::{Result, bail};
use serde_json::Value;

use super::plan::{Algorithm, Plan};
use super::policy::Policy;
use crate::gym::report::{self, Row};
use crate::gym::{Baseline, Gym, MeanStd, Protocol, Settings, Summary, play};

#[derive(Debug, Clone)]
pub struct Trial {
    /// The numbers of clusters to evaluate with, in turn. If empty, each policy gets the number that it was trained
    /// with.
    pub clusters: Vec<usize>,
    pub seeds: Vec<u64>,
    pub episodes: usize,
    pub protocol: Protocol,
    pub baselines: Vec<Baseline>,
}

#[derive(Debug, Clone)]
pub struct Section {
    pub settings: Settings,
    pub groups: Vec<Group>,
    pub baselines: Vec<Row>,
}

/// Trainings with equal plans, except for the seed, and equal numbers of steps.
#[derive(Debug, Clone)]
pub struct Group {
    plan: Plan,
    steps: u64,
    seeds: Vec<(u64, Summary)>,
}

impl Trial {
    /// Evaluates policies. Each runs in the environment it was trained in, except for the number of clusters.
    ///
    /// # Errors
    /// A policy does not support the number of clusters, or two policies have the same plan and number of steps.
    pub fn run(&self, policies: &mut [Policy]) -> Result<Vec<Section>> {
        let mut environments: Vec<Settings> = Vec::new();
        for (at, policy) in policies.iter().enumerate() {
            let twin = policies[..at].iter().find(|other| other.is_twin_of(policy));
            if let Some(twin) = twin {
                let (one, other, seed) = (twin.name(), policy.name(), policy.plan().seed);
                bail!("{one} and {other} have the same plan, and both have the seed {seed}");
            }
            for settings in self.environments(policy)? {
                if !environments.contains(&settings) {
                    environments.push(settings);
                }
            }
        }
        let sections = environments
            .into_iter()
            .map(|settings| self.section(policies, settings));
        sections.collect()
    }

    fn environments(&self, policy: &Policy) -> Result<Vec<Settings>> {
        let own = [policy.plan().settings.clusters];
        let clusters = if self.clusters.is_empty() {
            &own
        } else {
            &self.clusters[..]
        };
        clusters.iter().map(|clusters| policy.settings(*clusters)).collect()
    }

    fn section(&self, policies: &mut [Policy], settings: Settings) -> Result<Section> {
        let mut groups: Vec<Group> = Vec::new();
        for policy in policies {
            if !self.environments(policy)?.contains(&settings) {
                continue;
            }
            let episodes = self
                .seeds
                .iter()
                .flat_map(|seed| play(&mut Gym::new(&settings, *seed), policy, self.protocol, self.episodes));
            let summary = Summary::of(&episodes.collect::<Vec<_>>());
            policy.finish()?;
            let (seed, steps) = (policy.plan().seed, policy.steps());
            let plan = Plan {
                seed: 0,
                ..policy.plan().clone()
            };
            match groups
                .iter_mut()
                .find(|group| group.plan == plan && group.steps == steps)
            {
                Some(group) => group.seeds.push((seed, summary)),
                None => groups.push(Group {
                    plan,
                    steps,
                    seeds: vec![(seed, summary)],
                }),
            }
        }
        groups.sort_by_key(|group| Algorithm::ALL.iter().position(|one| *one == group.plan.algorithm));
        let baselines = self.baselines.iter().map(|baseline| Row {
            policy: baseline.to_string(),
            summary: baseline.summary(&settings, &self.seeds, self.protocol, self.episodes),
        });
        Ok(Section {
            baselines: baselines.collect(),
            settings,
            groups,
        })
    }
}

impl Group {
    fn name(&self, others: &[Self]) -> String {
        let Plan {
            algorithm,
            settings,
            environment_seed,
            steps,
            ..
        } = &self.plan;
        let mut name = algorithm.as_str().to_owned();
        let is_alone = others.iter().filter(|other| other.plan.algorithm == *algorithm).count() < 2;
        if self.steps < *steps {
            name += &format!(", {} of {steps} steps", self.steps);
        } else if !is_alone && *steps != algorithm.steps() {
            name += &format!(", {steps} steps");
        }
        if settings.clusters != Settings::default().clusters {
            name += &format!(", trained with {} clusters", settings.clusters);
        }
        if let Some(seed) = environment_seed
            && !is_alone
        {
            name += &format!(", env-seed {seed}");
        }
        name
    }

    /// The summary of a single training. For several trainings, the mean of their means and the standard deviation over
    /// them.
    fn summary(&self) -> Summary {
        match &self.seeds[..] {
            [(_, only)] => *only,
            several => over_trainings(several),
        }
    }
}

impl Section {
    /// Returns a row for each group and each baseline, with the number of its trainings.
    fn policies(&self) -> Vec<(Row, usize)> {
        let groups = self.groups.iter().map(|group| {
            let row = Row {
                policy: group.name(&self.groups),
                summary: group.summary(),
            };
            (row, group.seeds.len())
        });
        let baselines = self.baselines.iter().map(|row| (row.clone(), 0));
        groups.chain(baselines).collect()
    }

    /// Returns the rows. A group of several trainings first has a row for each training, named by its seed.
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (at, (row, trainings)) in self.policies().into_iter().enumerate() {
            if trainings > 1 {
                rows.extend(self.groups[at].seeds.iter().map(|(seed, summary)| Row {
                    policy: format!("{}, seed {seed}", row.policy),
                    summary: *summary,
                }));
            }
            rows.push(row);
        }
        rows
    }
}

fn over_trainings(trainings: &[(u64, Summary)]) -> Summary {
    let of = |part: &dyn Fn(&Summary) -> Option<MeanStd>| {
        let means: Vec<f64> = trainings
            .iter()
            .filter_map(|(_, one)| part(one))
            .map(|both| both.mean)
            .collect();
        MeanStd::of(means.iter().copied())
    };
    Summary {
        episodes: trainings.iter().map(|(_, one)| one.episodes).sum(),
        reward: of(&|one| one.reward),
        rejected: of(&|one| one.rejected),
        latency: of(&|one| one.latency),
        cost: of(&|one| one.cost),
    }
}

pub fn tables(sections: &[Section]) -> String {
    let table = |section: &Section| {
        let policies = section.policies();
        let several = policies.iter().filter(|(_, trainings)| *trainings > 1);
        let notes = several.map(|(row, trainings)| {
            format!(
                "{}: {trainings} trainings, ± the standard deviation over them\n",
                row.policy
            )
        });
        let notes: String = notes.collect();
        let gap = if notes.is_empty() { "" } else { "\n" };
        report::table(&section.settings, &section.rows()) + gap + &notes
    };
    let tables: Vec<String> = sections.iter().map(table).collect();
    tables.join("\n")
}

pub fn json(sections: &[Section]) -> Value {
    let section = |section: &Section| report::json(&section.settings, &section.rows());
    sections.iter().map(section).collect()
}
