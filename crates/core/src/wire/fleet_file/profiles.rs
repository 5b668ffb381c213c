//! What performance profiles say of the sites, in a fleet file.

use std::sync::Arc;

use super::seconds;
use crate::document::Field;
use crate::model::scores::{Better, ProfileScores, Profiles, Score, SiteScore};
use crate::model::slo;
use crate::units::{Micros, Moment};

/// How old a score may be to count, where a fleet file does not say.
const STALENESS: Micros = Micros::from_secs(120);

/// The list `profiles`. `sites` are the names that the file has.
pub(super) fn read(field: &Field<'_>, sites: &[&str], now: Moment) -> Profiles {
    let mut profiles = Profiles::new();
    for field in field.list().into_iter().flatten() {
        let Some((name, profile)) = profile(&field, sites, now) else {
            continue;
        };
        if profiles.insert(name.into(), Arc::new(profile)).is_some() {
            field.fault(format!("the name {name:?} is taken by an earlier profile"));
        }
    }
    profiles
}

fn profile<'d>(field: &Field<'d>, sites: &[&str], now: Moment) -> Option<(&'d str, ProfileScores)> {
    let [name, better, margin, staleness, preferred, scores] =
        field.object(["name", "better", "margin", "stalenessSeconds", "preferred", "scores"])?;
    let site = |field: &Field<'d>| -> Option<&'d str> {
        let name = field.string()?;
        if !sites.contains(&name) {
            field.fault(format!("{name:?} is no site of this file"));
        }
        Some(name)
    };
    let name = name.required();
    let profile = name.string();
    if let Some(profile) = profile.filter(|profile| !slo::is_profile_name(profile)) {
        name.fault(format!("{profile:?} is not {}", slo::PROFILE_NAME));
    }
    let mut scores_of = ProfileScores {
        better: better.required().word(&Better::BY_WORD).unwrap_or(Better::Lower),
        margin: score(&margin, 0.0).unwrap_or_default(),
        staleness: if staleness.is_present() {
            seconds(&staleness)
        } else {
            STALENESS
        },
        preferred: site(&preferred).map(Box::from),
        sites: [].into(),
    };
    for field in scores.list().into_iter().flatten() {
        let Some([name, number, stated_age]) = field.object(["site", "score", "ageSeconds"]) else {
            continue;
        };
        let name = site(&name.required());
        let number = number.required();
        let numbers = match number.is_list() {
            true => number.list().unwrap_or_default(),
            false => vec![number.clone()],
        };
        if numbers.is_empty() {
            number.fault("is empty".into());
        }
        let numbers: Option<Arc<[Score]>> = numbers.iter().map(|number| score(number, -Score::MAX)).collect();
        let (Some(name), Some(by_missing)) = (name, numbers) else {
            continue;
        };
        let as_of = now.before(seconds(&stated_age));
        if scores_of
            .sites
            .insert(name.into(), SiteScore { by_missing, as_of })
            .is_some()
        {
            field.fault(format!("the site {name:?} has a score already"));
        }
    }
    Some((profile?, scores_of))
}

fn score(field: &Field<'_>, least: f64) -> Option<Score> {
    let most = Score::MAX;
    field.typed(&format!("a number from {least} to {most}"), |number| {
        let number = number.as_f64().filter(|number| *number >= least)?;
        Score::of(number)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Config;
    use crate::wire::fleet_file;

    fn file(profiles: Value) -> Value {
        json!({"sites": [{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud"}], "profiles": profiles})
    }

    #[test]
    fn scores_are_read_as_they_were_written() {
        let now = Moment(100_000_000);
        let stated = json!([
            {"name": "greenness", "better": "lower", "margin": 0.05, "stalenessSeconds": 90, "preferred": "cloud", "scores": [
                {"site": "cloud", "score": 0.388123, "ageSeconds": 2.5},
                {"site": "edge", "score": [0.412, 1.5, -3.0], "ageSeconds": 0},
            ]},
            {"name": "unscored", "better": "higher", "margin": 0.0, "stalenessSeconds": 120},
        ]);
        let snapshot = fleet_file::read(&file(stated.clone()), &Config::default(), now).unwrap();
        let greenness = &snapshot.profiles["greenness"];
        assert_eq!(greenness.score("cloud", 3, now), Some(Score(388_123)));
        assert_eq!(greenness.score("edge", 2, now), Some(Score(-3_000_000)));
        assert_eq!(greenness.sites["cloud"].as_of, Moment(97_500_000));
        assert_eq!(fleet_file::write(&snapshot, now)["profiles"], stated);
    }

    #[test]
    fn every_fault_is_named() {
        let stated = json!([
            {"name": "Green", "better": "less", "margin": -1, "preferred": "moon", "scores": [
                {"site": "moon", "score": "x"}, {"site": "edge", "score": []}, {"site": "edge", "score": 2e9}]},
            {"name": "twice", "better": "lower", "scores": [{"site": "edge", "score": 1}, {"site": "edge", "score": 1}]},
            {"name": "twice", "better": "lower"},
        ]);
        let faults = fleet_file::read(&file(stated), &Config::default(), Moment(0)).unwrap_err();
        let faults: Vec<_> = faults.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            faults,
            [
                "profiles[0].name: \"Green\" is not the name of a PerformanceProfile: lower-case letters, digits, `-` and `.`, at most 63",
                "profiles[0].better: \"less\" is not one of lower, higher",
                "profiles[0].margin: -1 is not a number from 0 to 1000000000",
                "profiles[0].preferred: \"moon\" is no site of this file",
                "profiles[0].scores[0].site: \"moon\" is no site of this file",
                "profiles[0].scores[0].score: \"x\" is not a number from -1000000000 to 1000000000",
                "profiles[0].scores[1].score: is empty",
                "profiles[0].scores[2].score: 2000000000.0 is not a number from -1000000000 to 1000000000",
                "profiles[1].scores[1]: the site \"edge\" has a score already",
                "profiles[2]: the name \"twice\" is taken by an earlier profile",
            ]
        );
    }
}
