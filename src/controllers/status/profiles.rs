//! Writes the status of PerformanceProfiles. It also carries the preferred site, which all replicas use.

use std::collections::BTreeMap;

use edgeward_decision::config::Config;
use edgeward_decision::model::scores::Score;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::placement::patch::timestamp;
use edgeward_kube::units::{Moment, Now};
use edgeward_profiles::{All, Evaluated, Evaluation, Preference, Round};
use jiff::Timestamp;

use crate::api::{Condition, PerformanceProfileStatus, SiteScore};

/// The status of each of these profiles. `kept` lasts as long as this replica leads.
pub(super) fn statuses(
    all: &All,
    kept: &mut BTreeMap<String, Kept>,
    config: &Config,
    now: Now,
) -> BTreeMap<String, PerformanceProfileStatus> {
    kept.retain(|name, _| all.contains_key(name));
    let edge = config.sites.iter().find(|site| site.kind == SiteKind::Edge);
    let edge = edge.map_or("", |edge| &*edge.name);
    let status = |(name, evaluated): (&String, &Evaluated)| {
        let kept = kept.entry(name.clone()).or_insert_with(|| Kept::of(evaluated));
        (name.clone(), kept.status(evaluated, edge, now))
    };
    all.iter().map(status).collect()
}

/// State that the leader keeps for a profile.
pub(super) struct Kept {
    /// The generation that this state belongs to. A changed spec starts with fresh state.
    generation: Option<i64>,
    preference: Preference,
    preferred_since: Option<Timestamp>,
    /// The round that the preference used last.
    judged: Option<Moment>,
}

impl Kept {
    /// Continues from the status that an earlier leader wrote.
    fn of(evaluated: &Evaluated) -> Self {
        let known = evaluated.known().and_then(|known| known.preferred.clone());
        let (site, since) = known.unzip();
        Self {
            generation: evaluated.seen.generation,
            preference: Preference::of(site),
            preferred_since: since,
            judged: None,
        }
    }

    /// The status as of now. A new round may change the preferred site.
    fn status(&mut self, evaluated: &Evaluated, edge: &str, now: Now) -> PerformanceProfileStatus {
        let generation = evaluated.seen.generation;
        // A spec with faults leaves the last valid one in force.
        if self.generation != generation && evaluated.refused.is_none() {
            *self = Self::of(evaluated);
        }
        let round = evaluated.last.as_deref();
        if let (Some(profile), Some(round), Some(scores)) = (&evaluated.profile, round, evaluated.scores())
            && self.judged != Some(round.at.moment)
        {
            self.judged = Some(round.at.moment);
            if self.preference.observe(&scores, profile.dwell, edge, now.moment) {
                self.preferred_since = Some(now.wall);
            }
        }
        let is_accepted = evaluated.refused.is_none();
        let since = match &evaluated.seen.known.accepted {
            Some((before, since)) if *before == is_accepted => since.clone(),
            _ => timestamp(now.wall),
        };
        let refusal = evaluated.refused.as_ref();
        let condition = Condition {
            kind: "Accepted".to_owned(),
            status: if is_accepted { "True" } else { "False" }.to_owned(),
            reason: if is_accepted { "Accepted" } else { "Invalid" }.to_owned(),
            message: refusal.cloned().unwrap_or_default(),
            last_transition_time: since,
            observed_generation: generation,
        };
        let scores = round.map(scores).unwrap_or_default();
        let summary: Vec<_> = scores.iter().map(summary).collect();
        let fault = |site: &SiteScore| Some(format!("{}: {}", site.site, site.fault.as_ref()?));
        let unscored = scores.iter().find_map(fault);
        PerformanceProfileStatus {
            observed_generation: generation,
            conditions: vec![condition],
            preferred: self.preference.site().map(str::to_owned),
            preferred_since: self.preferred_since.map(timestamp),
            summary: Some(summary.join(" ")).filter(|summary| !summary.is_empty()),
            scores,
            fault: refusal.cloned().or(unscored),
            evaluated: round.map(|round| timestamp(round.at.wall)),
        }
    }
}

/// The scores of a round, sorted by site name.
fn scores(round: &Round) -> Vec<SiteScore> {
    let Evaluation { scores, unscored } = &round.evaluation;
    let scored = scores.iter().map(|(site, score)| SiteScore {
        site: site.to_string(),
        score: score.by_missing.first().map(|score| score.as_f64()),
        by_missing: match &*score.by_missing {
            [_] => vec![],
            all => all.iter().map(|score| score.as_f64()).collect(),
        },
        as_of: Some(timestamp(round.at.at(score.as_of).wall)),
        fault: None,
    });
    let unscored = unscored.iter().map(|(site, fault)| SiteScore {
        site: site.to_string(),
        fault: Some(fault.clone()),
        ..SiteScore::default()
    });
    let mut all: Vec<_> = scored.chain(unscored).collect();
    all.sort_by(|one, other| one.site.cmp(&other.site));
    all
}

/// Formats a score: `edge=0.412`, or `edge=?` without one.
fn summary(site: &SiteScore) -> String {
    let score = site.score.and_then(Score::of);
    let score = score.map_or_else(|| "?".to_owned(), |score| score.to_string());
    format!("{}={score}", site.site)
}

#[cfg(test)]
mod tests {
    use edgeward_profiles::{SeenProfile, StatusFacts};
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use super::*;
    use std::sync::Arc;

    fn at(seconds: i64) -> Now {
        let start: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        Now {
            moment: Moment(seconds * 1_000_000),
            wall: start.checked_add(SignedDuration::from_secs(seconds)).unwrap(),
        }
    }

    fn spec(equation: &str) -> Value {
        json!({"better": "lower", "equation": equation, "metrics": [{"name": "a", "normMin": 0, "normMax": 1, "builtIn": "pods"}],
            "margin": 0.05, "dwell": "60s"})
    }

    /// A profile in the round of this second, whose sites have these scores in millionths.
    fn evaluated(spec: Value, generation: i64, known: StatusFacts, scores: &[(&str, i64)], second: i64) -> Evaluated {
        let site = |(site, score): &(&str, i64)| {
            let as_of = at(second).moment;
            let by_missing = [Score(*score)].into();
            (
                Box::from(*site),
                edgeward_decision::model::scores::SiteScore { by_missing, as_of },
            )
        };
        let evaluation = Evaluation {
            scores: scores.iter().map(site).collect(),
            unscored: [("dark".into(), "a: nothing".to_owned())].into(),
        };
        let seen = SeenProfile {
            generation: Some(generation),
            spec,
            known,
        };
        let round = Round {
            evaluation,
            at: at(second),
        };
        Evaluated {
            last: Some(Arc::new(round)),
            ..Evaluated::after(seen, None)
        }
    }

    const DIRTY: [(&str, i64); 2] = [("edge", 900_000), ("cloud", 100_000)];
    const CLEAN: [(&str, i64); 2] = [("edge", 10_000), ("cloud", 100_000)];

    #[test]
    fn profile_status_shows_scores_and_changes_site_after_dwell() {
        let first = evaluated(spec("cm_normalized_a"), 3, StatusFacts::default(), &DIRTY, 7);
        let mut kept = Kept::of(&first);
        let status = kept.status(&first, "edge", at(8));
        assert_eq!(
            (status.observed_generation, status.preferred.as_deref()),
            (Some(3), Some("cloud"))
        );
        assert_eq!(status.preferred_since.as_deref(), Some("2026-11-23T12:00:08Z"));
        assert_eq!(status.summary.as_deref(), Some("cloud=0.1 dark=? edge=0.9"));
        assert_eq!(status.fault.as_deref(), Some("dark: a: nothing"));
        assert_eq!(status.evaluated.as_deref(), Some("2026-11-23T12:00:07Z"));
        assert_eq!(
            (&*status.conditions[0].status, &*status.conditions[0].message),
            ("True", "")
        );
        // The dwell time counts from the first round in which the edge scored better.
        for (second, preferred) in [(20, "cloud"), (60, "cloud"), (80, "edge")] {
            let clean = evaluated(spec("cm_normalized_a"), 3, StatusFacts::default(), &CLEAN, second);
            let status = kept.status(&clean, "edge", at(second));
            assert_eq!(status.preferred.as_deref(), Some(preferred), "{second}");
        }
    }

    #[test]
    fn new_leader_keeps_preferred_site_unless_spec_changed() {
        let since: Timestamp = "2026-11-23T11:00:00Z".parse().unwrap();
        let known = StatusFacts {
            generation: Some(3),
            preferred: Some(("edge".into(), since)),
            accepted: Some((true, "2026-11-23T10:00:00Z".to_owned())),
        };
        let of = |generation| {
            let evaluated = evaluated(spec("cm_normalized_a"), generation, known.clone(), &DIRTY, 1);
            let status = Kept::of(&evaluated).status(&evaluated, "edge", at(1));
            (
                status.preferred.unwrap(),
                status.preferred_since.unwrap(),
                status.conditions[0].last_transition_time.clone(),
            )
        };
        let accepted = "2026-11-23T10:00:00Z".to_owned();
        assert_eq!(
            of(3),
            ("edge".to_owned(), "2026-11-23T11:00:00Z".to_owned(), accepted.clone())
        );
        assert_eq!(of(4), ("cloud".to_owned(), "2026-11-23T12:00:01Z".to_owned(), accepted));
    }

    #[test]
    fn invalid_equation_is_not_accepted_and_names_the_fix() {
        let good = evaluated(spec("cm_normalized_a"), 1, StatusFacts::default(), &DIRTY, 0);
        let mut kept = Kept::of(&good);
        let before = kept.status(&good, "edge", at(0));
        let seen = SeenProfile {
            generation: Some(2),
            spec: spec("2 * cm_normalized_a"),
            known: StatusFacts::default(),
        };
        let bad = Evaluated::after(seen, Some(&good));
        let status = kept.status(&bad, "edge", at(5));
        let condition = &status.conditions[0];
        assert_eq!((&*condition.status, &*condition.reason), ("False", "Invalid"));
        let fault = "spec.equation: 2 is a whole number, which CEL does not mix with others: write 2.0";
        assert_eq!((&*condition.message, status.fault.as_deref()), (fault, Some(fault)));
        assert_eq!(condition.last_transition_time, "2026-11-23T12:00:05Z");
        // The status that was in force stays.
        assert_eq!((&status.preferred, &status.scores), (&before.preferred, &before.scores));
        // Without an earlier valid spec, nothing is in force.
        let never = Evaluated::after(bad.seen, None);
        let status = Kept::of(&never).status(&never, "edge", at(5));
        assert_eq!((status.preferred, status.scores.len()), (None, 0));
    }
}
