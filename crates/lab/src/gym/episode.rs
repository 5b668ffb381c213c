//! Results of episodes.

use std::fmt;

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The reward, by the chosen [`RewardKind`](super::RewardKind).
    pub reward: f64,
    pub episode: Option<Episode>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Episode {
    pub reward: f64,
    /// Requests that were not accepted, in percent.
    pub rejected: f64,
    /// Mean latency of accepted requests, in ms. Each request counts once, whatever its number of replicas. `None` if
    /// no request was accepted.
    pub latency: Option<f64>,
    pub cost: Option<f64>,
}

/// A mean over episodes with the population standard deviation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MeanStd {
    pub mean: f64,
    /// The standard deviation, with the number of values as the divisor.
    pub deviation: f64,
}

impl MeanStd {
    /// Returns the mean and deviation of these values; `None` without values.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let count = values.clone().count();
        if count == 0 {
            return None;
        }
        let mean = values.clone().sum::<f64>() / count as f64;
        let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count as f64;
        Some(Self {
            mean,
            deviation: variance.sqrt(),
        })
    }
}

impl fmt::Display for MeanStd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.2} ± {:.2}", self.mean, self.deviation))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    pub episodes: usize,
    pub reward: Option<MeanStd>,
    /// Percentage of requests that were not accepted.
    #[serde(rename = "rejectedPercent")]
    pub rejected: Option<MeanStd>,
    /// Mean latency in ms, over the episodes with an accepted request.
    #[serde(rename = "latencyMs")]
    pub latency: Option<MeanStd>,
    pub cost: Option<MeanStd>,
}

impl Summary {
    pub fn of(episodes: &[Episode]) -> Self {
        Self {
            episodes: episodes.len(),
            reward: MeanStd::of(episodes.iter().map(|episode| episode.reward)),
            rejected: MeanStd::of(episodes.iter().map(|episode| episode.rejected)),
            latency: MeanStd::of(episodes.iter().filter_map(|episode| episode.latency)),
            cost: MeanStd::of(episodes.iter().filter_map(|episode| episode.cost)),
        }
    }

    /// Returns reward, rejected, cost and latency in the format of Table VII. A value that no episode has is a dash.
    pub fn cells(&self) -> [String; 4] {
        [self.reward, self.rejected, self.cost, self.latency]
            .map(|both| both.map_or_else(|| "–".to_owned(), |both| both.to_string()))
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [reward, rejected, cost, latency] = self.cells();
        write!(
            f,
            "reward {reward}, rejected {rejected} %, cost {cost}, latency {latency} ms"
        )
    }
}
