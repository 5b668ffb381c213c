//! How good sites are by performance profiles: what operators prefer among the sites that would do.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::units::{Micros, Moment};
use crate::words;

words! {
    /// Which of two scores is the better one.
    pub enum Better {
        /// The lower: scores are costs.
        Lower = "lower",
        /// The higher.
        Higher = "higher",
    }
}

/// A score in millionths, so that every replica and every build compares alike.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Score(pub i64);

impl Score {
    /// The largest amount that a score may have, of either sign: a 64-bit float is exact to its millionths.
    pub const MAX: f64 = 1e9;

    /// Rounded to millionths; `None` for what is not finite, or beyond [`Self::MAX`].
    pub fn of(number: f64) -> Option<Self> {
        // NaN is in no range.
        let is_usable = (-Self::MAX..=Self::MAX).contains(&number);
        is_usable.then(|| Self((number * 1e6).round() as i64))
    }

    /// As a number.
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

/// With the decimals that it has, three of them at most unless all of it is behind them: `0.412`, `0.00002`.
impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rounded = (self.as_f64() * 1e3).round() / 1e3;
        let shown = if rounded == 0.0 { self.as_f64() } else { rounded };
        write!(f, "{shown}")
    }
}

/// The scores of each profile, by its name.
pub type Profiles = BTreeMap<Box<str>, Arc<ProfileScores>>;

/// What one profile says of the sites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileScores {
    /// Which of two scores is the better one.
    pub better: Better,
    /// By how much another site must be better to be preferred; never negative.
    pub margin: Score,
    /// How old a score may be to count.
    pub staleness: Micros,
    /// The site that all replicas prefer.
    pub preferred: Option<Box<str>>,
    /// The scores there are, by site. One that is missing is no score.
    pub sites: BTreeMap<Box<str>, SiteScore>,
}

/// How good a site is by a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteScore {
    /// Of pods that miss no, one, two … of their optional traits there; the last one also of those that miss more. Never empty.
    pub by_missing: Arc<[Score]>,
    /// When the oldest of what it is made of was true.
    pub as_of: Moment,
}

impl ProfileScores {
    /// The score of this site for a pod that misses so many of its optional traits there; none where it is too old.
    pub fn score(&self, site: &str, missing: usize, now: Moment) -> Option<Score> {
        let site = self.sites.get(site)?;
        let is_fresh = now.since(site.as_of) <= self.staleness;
        let at = missing.min(site.by_missing.len().checked_sub(1)?);
        is_fresh.then(|| site.by_missing[at])
    }

    /// Whether this is the site that all replicas prefer.
    pub fn prefers(&self, site: &str) -> bool {
        self.preferred.as_deref() == Some(site)
    }

    /// By how much the first is better than the second; negative where it is worse.
    pub fn gain(&self, score: Score, over: Score) -> i64 {
        match self.better {
            Better::Lower => over.0.saturating_sub(score.0),
            Better::Higher => score.0.saturating_sub(over.0),
        }
    }

    /// Whether the first is better than the second by more than noise: by the margin, and at all.
    pub fn is_better(&self, score: Score, than: Score) -> bool {
        self.gain(score, than) >= self.margin.0.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_or_too_large_is_no_score() {
        assert_eq!(Score::of(0.412), Some(Score(412_000)));
        assert_eq!(Score::of(-1e9), Some(Score(-1_000_000_000_000_000)));
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.1e9] {
            assert_eq!(Score::of(number), None);
        }
    }

    #[test]
    fn a_score_is_shown_short() {
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
    fn better_is_by_the_margin_and_at_all() {
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
    fn a_score_counts_until_it_is_stale() {
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
        assert_eq!(scores.score("edge", 0, Moment(110)), Some(Score(1)));
        assert_eq!(scores.score("edge", 7, Moment(110)), Some(Score(2)));
        assert_eq!(scores.score("edge", 0, Moment(111)), None);
        assert_eq!(scores.score("cloud", 0, Moment(100)), None);
    }
}
