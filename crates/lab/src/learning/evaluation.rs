//! Evaluates trained policies and compares them with baselines and the paper.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::figure::{Line, Panel, figure};
use super::plan::{Algorithm, Plan};
use super::policy::Policy;
use crate::gym::report::{self, Row};
use crate::gym::{Baseline, Gym, MeanStd, Protocol, RewardKind, Settings, Summary, play};

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
            masked_targets,
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
        if !masked_targets && !is_alone {
            name += ", unmasked-targets";
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

/// Mean rewards of the paper's Fig. 5 with 4, 8, 16, 32, 64 and 128 clusters. The policies were trained with 4
/// clusters.
const FIGURE_5: &str = "\
deepsets-ppo latency 92.64 84.90 76.10 63.10 58.82 59.30
deepsets-dqn latency 87.98 87.28 85.84 79.22 62.16 36.50
deepsets-ppo cost 1150.9 1224.3 1261.8 1355.2 1400.9 1435.0
deepsets-dqn cost 1143.7 1256.2 1359.2 1428.1 1452.1 1451.5";

/// Returns the points of Fig. 5 for this policy and reward.
fn figure_5(policy: &str, reward: RewardKind) -> Option<Vec<(f64, f64)>> {
    let name = format!("{policy} {reward} ");
    let rewards = FIGURE_5.lines().find_map(|row| row.strip_prefix(&name))?.split(' ');
    let rewards = rewards.filter_map(|reward| reward.parse().ok());
    Some([4.0, 8.0, 16.0, 32.0, 64.0, 128.0].into_iter().zip(rewards).collect())
}

/// Checks that [`over_clusters`] can show these policies in one figure.
///
/// # Errors
/// The environments of two policies differ in more than the number of clusters and the reward.
pub fn have_one_figure(policies: &[Policy]) -> Result<()> {
    let rest = |policy: &Policy| Settings {
        clusters: 1,
        reward: RewardKind::Latency,
        ..policy.plan().settings.clone()
    };
    for pair in policies.windows(2) {
        ensure!(
            rest(&pair[0]) == rest(&pair[1]),
            "the environments of {} and {} differ in more than clusters and reward",
            pair[0].name(),
            pair[1].name()
        );
    }
    Ok(())
}

/// Plots the rewards over the number of clusters as SVG. Each reward has a panel; the paper's Fig. 5 is dashed.
pub fn over_clusters(sections: &[Section]) -> String {
    let papers = Settings::default().clusters;
    let panels = RewardKind::ALL.into_iter().filter_map(|reward| {
        let of_reward: Vec<&Section> = sections
            .iter()
            .filter(|section| section.settings.reward == reward)
            .collect();
        let first = of_reward.first()?;
        let mut lines: Vec<Line> = Vec::new();
        for (colour, (Row { policy: name, .. }, trainings)) in first.policies().into_iter().enumerate() {
            let rows = of_reward.iter().flat_map(|section| {
                let rows = section.policies().into_iter();
                rows.map(|(row, _)| (section.settings.clusters, row))
            });
            let values = rows
                .filter(|(_, row)| row.policy == name)
                .filter_map(|(clusters, row)| {
                    let MeanStd { mean, deviation } = row.summary.reward?;
                    Some(((clusters as f64, mean), deviation))
                });
            let (points, spread) = values.unzip();
            let of_4 = Settings {
                clusters: papers,
                ..first.settings.clone()
            };
            let is_papers = report::paper(&name, &of_4).is_some();
            let paper = figure_5(&name, reward).filter(|_| is_papers);
            lines.push(Line {
                label: name.clone(),
                colour,
                dashed: false,
                points,
                spread: if trainings > 1 { spread } else { Vec::new() },
            });
            if let Some(points) = paper {
                lines.push(Line {
                    label: format!("{name} of the paper"),
                    colour,
                    dashed: true,
                    points,
                    spread: Vec::new(),
                });
            }
        }
        let is_papers = |group: &Group| group.plan.settings.clusters == papers;
        let trained = match first.groups.iter().all(is_papers) {
            true => format!("clusters; trained with {papers}"),
            false => "clusters".to_owned(),
        };
        Some(Panel {
            title: format!("{reward} reward of an episode"),
            x: trained,
            doubling: true,
            lines,
        })
    });
    figure(&panels.collect::<Vec<_>>())
}
