//! The learning curve of a training.

use super::training::Training;
use crate::gym::MeanStd;
use crate::report::plot::{Line, Plot, Scale, figure};

/// Maximum number of points of a curve.
const POINTS: usize = 100;

/// Returns the learning curve as SVG: mean and standard deviation of the reward of episodes, for each hundredth of the
/// training.
pub fn learning_curve(training: &Training) -> String {
    let plan = training.plan();
    let mut parts = vec![Vec::new(); POINTS];
    for (steps, episode) in training.episodes() {
        let part = (steps.saturating_sub(1) as u128 * POINTS as u128 / u128::from(plan.steps.max(1))) as usize;
        parts[part.min(POINTS - 1)].push(episode.reward);
    }
    let parts = parts.iter().enumerate();
    let points = parts.filter_map(|(part, rewards)| {
        let x = (part as f64 + 0.5) / POINTS as f64 * plan.steps as f64;
        MeanStd::of(rewards.iter().copied()).map(|MeanStd { mean, deviation }| ((x / 1_000.0, mean), deviation))
    });
    let (points, spread) = points.unzip();
    let settings = &plan.settings;
    figure(&Plot {
        title: format!(
            "{}, {} reward, {} clusters",
            plan.algorithm.as_str(),
            settings.reward,
            settings.clusters
        ),
        scale: Scale::Linear,
        unit: "k steps",
        range: None,
        size: (448.0, 268.0),
        lines: vec![Line {
            label: format!(
                "of an episode while training: mean ± standard deviation; seed {}",
                plan.seed
            ),
            points,
            spread,
            ..Line::default()
        }],
    })
}
