//! The performance profiles in a fleet file, with the scores of its sites.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::config::site_definition::some_of;
use crate::document::{Checks, Decimal, Fault};
use crate::fleet_file::Age;
use crate::model::scores::{Better, ProfileScores, Profiles, Score, SiteScore};
use crate::model::slo;
use crate::model::snapshot::{Site, Snapshot};
use edgeward_kube::units::{Micros, Moment};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProfileEntry {
    name: Box<str>,
    better: Better,
    margin: Option<Score>,
    staleness_seconds: Option<Age>,
    preferred: Option<Box<str>>,
    scores: Option<Vec<ScoreEntry>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ScoreEntry {
    site: Box<str>,
    score: OneOrMany,
    age_seconds: Option<Age>,
}

/// One score, or a list with the scores of pods that miss no, one, two … optional traits.
#[derive(Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "not a number from -1000000000 to 1000000000, nor a list of such"
)]
enum OneOrMany {
    One(Score),
    Many(Vec<Score>),
}

/// How long a score counts if the fleet file does not say.
const STALENESS: Micros = Micros::from_secs(120);

/// The list `profiles` of a file with these sites.
pub(super) fn read(entries: Vec<ProfileEntry>, sites: &[Site], now: Moment, faults: &mut Vec<Fault>) -> Profiles {
    let mut profiles = Profiles::new();
    for (i, entry) in entries.into_iter().enumerate() {
        let at = format!("profiles[{i}]");
        let mut checks = Checks { at: &at, faults };
        let name = entry.name.clone();
        let profile = entry.profile(sites, now, &mut checks);
        if profiles.insert(name.clone(), Arc::new(profile)).is_some() {
            checks.fault("name", format_args!("{name:?} is taken by an earlier profile"));
        }
    }
    profiles
}

impl ProfileEntry {
    fn profile(self, sites: &[Site], now: Moment, checks: &mut Checks<'_>) -> ProfileScores {
        if !slo::is_profile_name(&self.name) {
            checks.fault("name", format_args!("{:?} is not {}", self.name, slo::PROFILE_NAME));
        }
        let margin = self.margin.unwrap_or_default();
        if margin.0 < 0 {
            checks.fault("margin", format_args!("{margin} is negative"));
        }
        let is_there = |name: &str| sites.iter().any(|site| site.name() == name);
        if let Some(name) = self.preferred.as_deref().filter(|name| !is_there(name)) {
            checks.fault("preferred", format_args!("{name:?} is no site of this file"));
        }
        let mut by_site = BTreeMap::new();
        for (i, entry) in self.scores.into_iter().flatten().enumerate() {
            let field = format!("scores[{i}]");
            let name = entry.site;
            if !is_there(&name) {
                checks.fault(&field, format_args!("{name:?} is no site of this file"));
            }
            let by_missing: Arc<[Score]> = match entry.score {
                OneOrMany::One(score) => [score].into(),
                OneOrMany::Many(scores) => scores.into(),
            };
            if by_missing.is_empty() {
                checks.fault(&field, "score is empty");
            }
            let as_of = entry.age_seconds.map_or(now, |age| age.before(now));
            if by_site.insert(name.clone(), SiteScore { by_missing, as_of }).is_some() {
                checks.fault(&field, format_args!("the site {name:?} has a score already"));
            }
        }
        ProfileScores {
            better: self.better,
            margin,
            staleness: self.staleness_seconds.map_or(STALENESS, Age::time),
            preferred: self.preferred,
            sites: by_site,
        }
    }
}

/// Returns the profiles and the scores of the snapshot's sites.
pub(super) fn entries(snapshot: &Snapshot, now: Moment) -> impl Iterator<Item = ProfileEntry> {
    let is_there = |name: &str| snapshot.sites.iter().any(|site| site.name() == name);
    snapshot.profiles.iter().map(move |(name, profile)| {
        let scores = profile.sites.iter().filter(|(site, _)| is_there(site));
        let scores = scores.map(|(site, score)| ScoreEntry {
            site: site.clone(),
            score: match &*score.by_missing {
                [score] => OneOrMany::One(*score),
                scores => OneOrMany::Many(scores.to_vec()),
            },
            age_seconds: Some(Age::of(score.as_of, now)),
        });
        ProfileEntry {
            name: name.clone(),
            better: profile.better,
            margin: Some(profile.margin),
            staleness_seconds: Some(Decimal(profile.staleness.0.div_ceil(1_000) as i64)),
            preferred: profile.preferred.clone().filter(|site| is_there(site)),
            scores: some_of(scores),
        }
    })
}
