//! What came of episodes.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// By the chosen [`RewardKind`](super::RewardKind).
    pub reward: f64,
    pub episode: Option<Episode>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Episode {
    pub reward: f64,
    /// Requests that were not accepted, percent.
    pub rejected: f64,
    /// The mean latency of accepted requests, ms, each counted once however many replicas it has; `None` without any.
    pub latency: Option<f64>,
    pub cost: Option<f64>,
}

/// A mean over episodes, and the standard deviation over them as of the whole population.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanStd {
    pub mean: f64,
    /// The standard deviation, with the number of values as the divisor.
    pub deviation: f64,
}

impl MeanStd {
    /// Of these values; `None` of none.
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

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub episodes: usize,
    pub reward: Option<MeanStd>,
    /// Of the percentages of requests that were not accepted.
    pub rejected: Option<MeanStd>,
    /// Of the mean latencies, ms, of episodes in which something was accepted.
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

    /// Reward, rejected, cost and latency, as Table VII has them; a dash for what no episode has.
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
