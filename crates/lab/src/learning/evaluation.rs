//! What trained policies are worth, beside baselines and the paper.

use anyhow::{Result, ensure};

use super::figure::{Line, Panel, figure};
use super::plan::Algorithm;
use super::policy::Policy;
use crate::gym::report::{self, Row};
use crate::gym::{Baseline, Gym, MeanStd, Protocol, RewardKind, Settings, Summary, play};

/// How policies are tried.
#[derive(Debug, Clone)]
pub struct Trial {
    /// In environments with so many clusters, one after the other; without any, with as many as a policy was trained with.
    pub clusters: Vec<usize>,
    /// In environments of these seeds.
    pub seeds: Vec<u64>,
    /// How many episodes of each seed.
    pub episodes: usize,
    /// How they are played.
    pub protocol: Protocol,
    /// What else is tried in the same environments.
    pub baselines: Vec<Baseline>,
}

/// What came of all policies in one environment.
#[derive(Debug, Clone)]
pub struct Section {
    /// The environment.
    pub settings: Settings,
    /// Each training of an algorithm by its seed; where there are several, a row of the algorithm after them: the mean of their
    /// means, and the standard deviation over them. Then the baselines.
    pub rows: Vec<Row>,
    /// How many trainings there were of each algorithm.
    pub trainings: Vec<(Algorithm, usize)>,
}

impl Trial {
    /// Tries policies, each in the environment it was trained in but for the number of clusters.
    ///
    /// # Errors
    /// A policy is for another number of clusters, or two have the same algorithm, environment and seed.
    pub fn run(&self, policies: &mut [Policy]) -> Result<Vec<Section>> {
        let mut environments: Vec<Settings> = Vec::new();
        for policy in &*policies {
            let settings = &policy.plan().settings;
            if !environments.contains(settings) {
                environments.push(settings.clone());
            }
        }
        let mut sections = Vec::new();
        for trained in environments {
            let own = [trained.clusters];
            let clusters = if self.clusters.is_empty() {
                &own
            } else {
                &self.clusters[..]
            };
            for clusters in clusters {
                sections.push(self.section(policies, &trained, *clusters)?);
            }
        }
        Ok(sections)
    }

    fn section(&self, policies: &mut [Policy], trained: &Settings, clusters: usize) -> Result<Section> {
        let settings = Settings {
            clusters,
            ..trained.clone()
        };
        let (mut rows, mut trainings) = (Vec::new(), Vec::new());
        for algorithm in Algorithm::ALL {
            let mut found: Vec<(u64, Summary)> = Vec::new();
            for policy in policies.iter_mut() {
                if policy.plan().algorithm != algorithm || policy.plan().settings != *trained {
                    continue;
                }
                policy.settings(clusters)?;
                let seed = policy.plan().seed;
                ensure!(
                    found.iter().all(|(other, _)| *other != seed),
                    "two trainings of {} have the seed {seed}",
                    algorithm.as_str()
                );
                let episodes = self
                    .seeds
                    .iter()
                    .flat_map(|seed| play(&mut Gym::new(&settings, *seed), policy, self.protocol, self.episodes));
                found.push((seed, Summary::of(&episodes.collect::<Vec<_>>())));
                policy.finish()?;
            }
            let row = |policy: String, summary| Row { policy, summary };
            let name = algorithm.as_str();
            match &found[..] {
                [] => continue,
                [(_, only)] => rows.push(row(name.to_owned(), *only)),
                several => {
                    rows.extend(
                        several
                            .iter()
                            .map(|(seed, one)| row(format!("{name}, seed {seed}"), *one)),
                    );
                    rows.push(row(name.to_owned(), over_trainings(several)));
                }
            }
            trainings.push((algorithm, found.len()));
        }
        rows.extend(self.baselines.iter().map(|baseline| Row {
            policy: baseline.to_string(),
            summary: baseline.summary(&settings, &self.seeds, self.protocol, self.episodes),
        }));
        Ok(Section {
            settings,
            rows,
            trainings,
        })
    }
}

/// The means of trainings, and the deviations over them.
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

/// A table of each section, in Markdown.
pub fn tables(sections: &[Section]) -> String {
    let table = |section: &Section| {
        let several = section.trainings.iter().filter(|(_, count)| *count > 1);
        let notes = several.map(|(algorithm, count)| {
            format!(
                "{}: {count} trainings, ± the standard deviation over them\n",
                algorithm.as_str()
            )
        });
        let notes: String = notes.collect();
        let gap = if notes.is_empty() { "" } else { "\n" };
        report::table(&section.settings, &section.rows) + gap + &notes
    };
    let tables: Vec<String> = sections.iter().map(table).collect();
    tables.join("\n")
}

/// The numbers of clusters of the paper's Fig. 5, whose policies were trained with the first.
const FIGURE_5_CLUSTERS: [f64; 6] = [4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// The mean rewards of Fig. 5.
const FIGURE_5: [(&str, RewardKind, [f64; 6]); 4] = [
    (
        "deepsets-ppo",
        RewardKind::Latency,
        [92.64, 84.90, 76.10, 63.10, 58.82, 59.30],
    ),
    (
        "deepsets-dqn",
        RewardKind::Latency,
        [87.98, 87.28, 85.84, 79.22, 62.16, 36.50],
    ),
    (
        "deepsets-ppo",
        RewardKind::Cost,
        [1150.9, 1224.3, 1261.8, 1355.2, 1400.9, 1435.0],
    ),
    (
        "deepsets-dqn",
        RewardKind::Cost,
        [1143.7, 1256.2, 1359.2, 1428.1, 1452.1, 1451.5],
    ),
];

/// How rewards go with the number of clusters, as SVG: a panel for each reward, with the paper's Fig. 5 in dashes.
pub fn over_clusters(sections: &[Section]) -> String {
    let panels = RewardKind::ALL.into_iter().filter_map(|reward| {
        let of_reward = || sections.iter().filter(move |section| section.settings.reward == reward);
        let first = of_reward().next()?;
        let mut lines: Vec<Line> = Vec::new();
        let names = first
            .rows
            .iter()
            .map(|row| row.policy.as_str())
            .filter(|name| !name.contains(','));
        for (colour, name) in names.enumerate() {
            let rows =
                of_reward().flat_map(|section| section.rows.iter().map(move |row| (section.settings.clusters, row)));
            let values = rows
                .filter(|(_, row)| row.policy == name)
                .filter_map(|(clusters, row)| {
                    let MeanStd { mean, deviation } = row.summary.reward?;
                    Some(((clusters as f64, mean), deviation))
                });
            let (points, spread) = values.unzip();
            let several = first
                .trainings
                .iter()
                .any(|(algorithm, count)| algorithm.as_str() == name && *count > 1);
            lines.push(Line {
                label: name.to_owned(),
                colour,
                dashed: false,
                points,
                spread: if several { spread } else { Vec::new() },
            });
            let paper = FIGURE_5
                .iter()
                .find(|(other, kind, _)| *other == name && *kind == reward);
            if let Some((_, _, rewards)) = paper {
                lines.push(Line {
                    label: format!("{name} of the paper"),
                    colour,
                    dashed: true,
                    points: FIGURE_5_CLUSTERS.into_iter().zip(*rewards).collect(),
                    spread: Vec::new(),
                });
            }
        }
        Some(Panel {
            title: format!("{reward} reward of an episode"),
            x: format!("clusters; trained with {}", FIGURE_5_CLUSTERS[0]),
            doubling: true,
            lines,
        })
    });
    figure(&panels.collect::<Vec<_>>())
}
