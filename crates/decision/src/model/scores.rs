//! Scores of sites by performance profiles: what operators prefer among the feasible sites.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use edgeward_kube::units::{Micros, Moment};
use edgeward_kube::words;

words! {
    /// Which of two scores is better.
    pub enum Better {
        /// The lower score, because scores are costs.
        Lower = "lower",
        /// The higher score.
        Higher = "higher",
    }
}

/// A score in millionths. As an integer it compares alike in every replica and every build.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Score(pub i64);

impl Score {
    /// Largest absolute value of a score. A 64-bit float is exact to a millionth up to here.
    pub const MAX: f64 = 1e9;

    /// Rounds a number to millionths. Returns `None` if the number is not finite, or beyond [`Self::MAX`].
    pub fn of(number: f64) -> Option<Self> {
        // NaN is outside of every range.
        let is_usable = (-Self::MAX..=Self::MAX).contains(&number);
        is_usable.then(|| Self((number * 1e6).round() as i64))
    }

    /// The score as a floating-point number.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl From<Score> for f64 {
    fn from(score: Score) -> Self {
        score.as_f64()
    }
}

impl TryFrom<f64> for Score {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        let [least, most] = [-Self::MAX, Self::MAX];
        Self::of(number).ok_or_else(|| format!("{number} is not a number from {least} to {most}"))
    }
}

/// Prints at most three decimals, as in `0.412`. A score that would round to 0 is printed in full, as in `0.00002`.
impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rounded = (self.as_f64() * 1e3).round() / 1e3;
        let shown = if rounded == 0.0 { self.as_f64() } else { rounded };
        write!(f, "{shown}")
    }
}

/// Scores by profile name.
pub type Profiles = BTreeMap<Box<str>, Arc<ProfileScores>>;

/// Scores of the sites by one profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileScores {
    /// Which of two scores is better.
    pub better: Better,
    /// By how much another site must be better to be preferred. Never negative.
    pub margin: Score,
    /// Maximum age of a score that counts.
    pub staleness: Micros,
    /// The site that all replicas prefer, if any.
    pub preferred: Option<Box<str>>,
    /// Scores by site. A site without an entry has no score.
    pub sites: BTreeMap<Box<str>, SiteScore>,
}

/// Maximum number of optional traits of a pod.
pub const MAX_MISSING: usize = 16;

/// Scores of a site by one profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteScore {
    /// Scores for pods that lack 0, 1, 2, … of their optional traits at the site. The last score also covers higher
    /// numbers. If the scores depend on the pod's component, [`MAX_MISSING`] + 1 scores for pods whose component runs at the
    /// site, and then as many for other pods. Never empty.
    pub by_missing: Arc<[Score]>,
    /// Time of the oldest value that the scores are computed from.
    pub as_of: Moment,
}

impl ProfileScores {
    /// Score of this site for a pod that lacks nothing there. `None` if there is no score, or if it is too old.
    pub fn score(&self, site: &str, now: Moment) -> Option<Score> {
        self.score_of_pod(site, 0, true, now)
    }

    /// Score of this site for a pod that lacks `missing` of its optional traits there, and whose component runs there or not.
    pub fn score_of_pod(&self, site: &str, missing: usize, has_component: bool, now: Moment) -> Option<Score> {
        let site = self.sites.get(site)?;
        let is_fresh = now.since(site.as_of) <= self.staleness;
        let (with, without) = site.by_missing.split_at(site.by_missing.len().min(MAX_MISSING + 1));
        let scores = if has_component || without.is_empty() {
            with
        } else {
            without
        };
        let at = missing.min(scores.len().checked_sub(1)?);
        is_fresh.then(|| scores[at])
    }

    /// Whether all replicas prefer this site.
    pub fn prefers(&self, site: &str) -> bool {
        self.preferred.as_deref() == Some(site)
    }

    /// By how much `score` is better than `over`. Negative if it is worse.
    pub fn gain(&self, score: Score, over: Score) -> i64 {
        match self.better {
            Better::Lower => over.0.saturating_sub(score.0),
            Better::Higher => score.0.saturating_sub(over.0),
        }
    }

    /// Whether `score` is better than `than` by at least the margin. Equal scores are never better.
    pub fn is_better(&self, score: Score, than: Score) -> bool {
        self.gain(score, than) >= self.margin.0.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_finite_or_too_large_number_is_no_score() {
        assert_eq!(Score::of(0.412), Some(Score(412_000)));
        assert_eq!(Score::of(-1e9), Some(Score(-1_000_000_000_000_000)));
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.1e9] {
            assert_eq!(Score::of(number), None);
        }
    }

    #[test]
    fn score_prints_with_few_significant_digits() {
        for (score, shown) in [
            (412_345, "0.412"),
            (0, "0"),
            (20, "0.00002"),
            (-1_500_000, "-1.5"),
            (12_000_000, "12"),
        ] {
            assert_eq!(Score(score).to_string(), shown);
        }
    }

    #[test]
    fn score_is_better_if_different_by_at_least_the_margin() {
        let of = |better, margin| ProfileScores {
            better,
            margin: Score(margin),
            staleness: Micros(10),
            preferred: None,
            sites: BTreeMap::new(),
        };
        let (lower, none) = (of(Better::Lower, 5), of(Better::Lower, 0));
        assert!(lower.is_better(Score(5), Score(10)) && !lower.is_better(Score(6), Score(10)));
        assert!(of(Better::Higher, 5).is_better(Score(10), Score(5)));
        assert!(none.is_better(Score(9), Score(10)) && !none.is_better(Score(10), Score(10)));
    }

    #[test]
    fn score_counts_until_it_is_stale() {
        let site = SiteScore {
            by_missing: [1, 2].map(Score).into(),
            as_of: Moment(100),
        };
        let scores = ProfileScores {
            better: Better::Lower,
            margin: Score(0),
            staleness: Micros(10),
            preferred: None,
            sites: [("edge".into(), site)].into(),
        };
        assert_eq!(scores.score("edge", Moment(110)), Some(Score(1)));
        assert_eq!(scores.score_of_pod("edge", 7, false, Moment(110)), Some(Score(2)));
        assert_eq!(scores.score("edge", Moment(111)), None);
        assert_eq!(scores.score("cloud", Moment(100)), None);
    }
}
