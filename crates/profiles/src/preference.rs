//! The preferred site of a profile. It changes only after another site has been better by the margin, without a break,
//! for the dwell time.

use edgeward_decision::model::scores::{ProfileScores, Score};
use edgeward_kube::units::{Micros, Moment};

/// The preferred site, and since when another site has been better.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preference {
    site: Option<Box<str>>,
    /// Since when some site has been better, without a break.
    challenged: Option<Moment>,
}

impl Preference {
    /// Starts with this preferred site, if any. No other site has been better yet.
    pub fn of(site: Option<Box<str>>) -> Self {
        Self { site, challenged: None }
    }

    /// The preferred site.
    pub fn site(&self) -> Option<&str> {
        self.site.as_deref()
    }

    /// Takes the current scores and returns whether the preferred site changes. The first call chooses the best site,
    /// or the edge if no site is better than the edge by the margin. Later calls choose the best site once some site
    /// has been better than the preferred site by the margin for `dwell`. A preferred site without a score is worse
    /// than any site with a score. Without any score nothing changes.
    pub fn observe(&mut self, scores: &ProfileScores, dwell: Micros, edge: &str, now: Moment) -> bool {
        let scored = scores
            .sites
            .keys()
            .filter_map(|site| Some((site, scores.score(site, now)?)));
        // Of equal scores, the first by name wins.
        let best = scored.reduce(|best, other| if scores.gain(other.1, best.1) > 0 { other } else { best });
        let Some((best, best_score)) = best else {
            self.challenged = None;
            return false;
        };
        let is_beaten = |score: Option<Score>| score.is_none_or(|score| scores.is_better(best_score, score));
        let Some(preferred) = &self.site else {
            let stays = scores.score(edge, now).is_some_and(|edge| !is_beaten(Some(edge)));
            self.site = Some(if stays { edge.into() } else { best.clone() });
            return true;
        };
        if preferred == best || !is_beaten(scores.score(preferred, now)) {
            self.challenged = None;
            return false;
        }
        let since = *self.challenged.get_or_insert(now);
        if now.since(since) < dwell {
            return false;
        }
        *self = Self::of(Some(best.clone()));
        true
    }
}

#[cfg(test)]
mod tests {
    use edgeward_decision::model::scores::{Better, SiteScore};
    use proptest::prelude::*;

    use super::*;

    const DWELL: Micros = Micros(300);

    fn scores(scores: &[(&str, i64)], now: Moment) -> ProfileScores {
        let site = |(site, score): &(&str, i64)| {
            let score = SiteScore {
                by_missing: [Score(*score)].into(),
                as_of: now,
            };
            (Box::from(*site), score)
        };
        ProfileScores {
            better: Better::Lower,
            margin: Score(50),
            staleness: Micros(100),
            preferred: None,
            sites: scores.iter().map(site).collect(),
        }
    }

    fn observe(preference: &mut Preference, of: &[(&str, i64)], at: i64) -> Option<String> {
        preference.observe(&scores(of, Moment(at)), DWELL, "edge", Moment(at));
        preference.site().map(str::to_owned)
    }

    #[test]
    fn first_preference_is_best_site_or_edge_within_margin() {
        let first = |of: &[(&str, i64)]| observe(&mut Preference::default(), of, 0);
        assert_eq!(first(&[("edge", 412), ("cloud", 388)]).unwrap(), "edge");
        assert_eq!(first(&[("edge", 450), ("cloud", 388)]).unwrap(), "cloud");
        assert_eq!(first(&[("a", 5), ("b", 5)]).unwrap(), "a");
        assert_eq!(first(&[]), None);
    }

    #[test]
    fn preference_changes_once_a_site_is_better_for_dwell_time() {
        let mut preference = Preference::default();
        let (good, bad) = ([("edge", 100), ("cloud", 200)], [("edge", 300), ("cloud", 200)]);
        assert_eq!(observe(&mut preference, &good, 0).unwrap(), "edge");
        assert_eq!(observe(&mut preference, &bad, 1_000).unwrap(), "edge");
        assert_eq!(observe(&mut preference, &bad, 1_299).unwrap(), "edge");
        // A break begins it again, and so does a difference within the margin.
        assert_eq!(
            observe(&mut preference, &[("edge", 249), ("cloud", 200)], 1_300).unwrap(),
            "edge"
        );
        assert_eq!(observe(&mut preference, &bad, 1_400).unwrap(), "edge");
        assert_eq!(observe(&mut preference, &bad, 1_700).unwrap(), "cloud");
    }

    #[test]
    fn preferred_site_without_score_is_worse_than_any_other() {
        let mut preference = Preference::of(Some("edge".into()));
        assert_eq!(observe(&mut preference, &[], 0).unwrap(), "edge");
        assert_eq!(observe(&mut preference, &[("cloud", 900)], 1).unwrap(), "edge");
        assert_eq!(observe(&mut preference, &[("cloud", 900)], 301).unwrap(), "cloud");
    }

    proptest! {
        #[test]
        fn noise_within_the_margin_never_changes_preference(edge in 0_i64..1_000, noise in prop::collection::vec((-24_i64..=24, -24_i64..=24), 1..50)) {
            let mut preference = Preference::default();
            for (at, (one, other)) in noise.iter().enumerate() {
                let of = [("cloud", edge + one), ("edge", edge + other)];
                prop_assert_eq!(observe(&mut preference, &of, at as i64 * 1_000).unwrap(), "edge");
            }
        }

        #[test]
        fn preference_changes_are_a_dwell_time_apart(steps in prop::collection::vec((1_i64..400, prop::option::of(0_i64..200), prop::option::of(0_i64..200)), 1..200)) {
            let mut preference = Preference::default();
            let (mut at, mut changed) = (0, None::<i64>);
            for (step, edge, cloud) in steps {
                at += step;
                let of: Vec<_> = [edge.map(|score| ("edge", score)), cloud.map(|score| ("cloud", score))].into_iter().flatten().collect();
                if preference.observe(&scores(&of, Moment(at)), DWELL, "edge", Moment(at)) {
                    prop_assert!(changed.is_none_or(|before| at - before >= DWELL.signed()));
                    changed = Some(at);
                }
            }
        }
    }
}
