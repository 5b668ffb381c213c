//! The performance profile of a scenario, and the answers of a Prometheus server to its queries.

use std::collections::BTreeMap;
use std::sync::Arc;

use edgeward_decision::document::{Checks, Faults, within};
use edgeward_kube::units::{Micros, Moment};
use edgeward_profiles::profile::{By, Source};
use edgeward_profiles::{Profile, Series};
use serde::Deserialize;
use serde_json::Value;

use super::Site;
use super::read::numbers::{number, seconds};

pub const NAME: &str = "simulated";

type Course = Vec<(Micros, f64)>;

/// The query for the free CPU that edgeward exports.
const ROOM: &str = "max by (site) (edgeward_site_free_cpu_cores)";

/// The query for that free CPU in 15 minutes, by a line through the last 30 minutes.
const ROOM_AHEAD: &str = "clamp_min(predict_linear((max by (site) (edgeward_site_free_cpu_cores))[30m:30s], 900), 0)";

const WINDOW: Micros = Micros::from_secs(1_800);

const AHEAD: f64 = 900.0;

/// A profile that all managed pods name, with the values of its metrics over time.
#[derive(Debug, Clone)]
pub struct SimulatedProfile {
    pub profile: Arc<Profile>,
    courses: BTreeMap<String, BTreeMap<String, Course>>,
    /// Free cores of each site within the window.
    room: BTreeMap<String, Course>,
}

/// A [`SimulatedProfile`] in its written form.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatedProfile {
    spec: Value,
    #[serde(default)]
    values: BTreeMap<String, BTreeMap<String, StatedCourse>>,
}

/// A number, or a list of numbers, each with its start time.
#[derive(Deserialize)]
#[serde(untagged, expecting = "is neither a number nor a list of atSeconds and value")]
enum StatedCourse {
    Number(f64),
    Steps(Vec<Step>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Step {
    #[serde(deserialize_with = "seconds::<_, 0>")]
    at_seconds: Micros,
    #[serde(deserialize_with = "number::<_, -1_000_000_000, 1_000_000_000>")]
    value: f64,
}

impl SimulatedProfile {
    /// Reads the field `profile` of a scenario.
    pub(super) fn read(stated: StatedProfile, sites: &[Site], checks: &mut Checks<'_>) -> Option<Self> {
        let profile = match Profile::read(&stated.spec) {
            Ok(profile) => profile,
            Err(Faults(faults)) => {
                for fault in faults {
                    checks.fault(within("profile", fault.path), fault.message);
                }
                return None;
            }
        };
        let mut courses = BTreeMap::<_, BTreeMap<_, _>>::new();
        for (name, of_sites) in stated.values {
            let metric = profile.metrics.iter().find(|metric| metric.name == name);
            let at = format!("profile.values.{name}");
            let Some(Source::PromQl(query, By::Site)) = metric.map(|metric| &metric.source) else {
                checks.fault(at, "is not a metric of the profile with promQL and by: site");
                continue;
            };
            for (site, course) in of_sites {
                if !sites.iter().any(|known| known.definition.name == site) {
                    checks.fault(within(&at, &site), format!("{site:?} is not a site of this scenario"));
                }
                courses
                    .entry(query.clone())
                    .or_default()
                    .insert(site, course.into_steps());
            }
        }
        Some(Self {
            profile: Arc::new(profile),
            courses,
            room: BTreeMap::new(),
        })
    }

    /// Creates a profile without stated values.
    pub fn new(profile: Profile) -> Self {
        Self {
            profile: Arc::new(profile),
            courses: BTreeMap::new(),
            room: BTreeMap::new(),
        }
    }

    /// Records the free cores of a site, as a scrape of edgeward's metrics does.
    pub fn scrape(&mut self, now: Micros, site: &str, cores: f64) {
        let course = self.room.entry(site.to_owned()).or_default();
        course.retain(|(at, _)| *at + WINDOW > now);
        course.push((now, cores));
    }

    /// Returns the answer to each query at this time, which the engine calls `at`.
    pub fn answers(&self, now: Micros, at: Moment) -> BTreeMap<&str, Vec<Series>> {
        let series = |(site, course): (&String, &Course)| {
            let (_, value) = course.iter().rfind(|(from, _)| *from <= now)?;
            Some(Series {
                labels: [("site".to_owned(), site.clone())].into(),
                value: *value,
                at,
            })
        };
        let answers = self.courses.iter();
        let answers = answers.map(|(query, sites)| (&**query, sites.iter().filter_map(series).collect()));
        let of_room = |value: &dyn Fn(&Course) -> Option<f64>| {
            let values = self
                .room
                .iter()
                .filter_map(|(site, course)| Some((site, value(course)?)));
            let series = values.map(|(site, value)| Series {
                labels: [("site".to_owned(), site.clone())].into(),
                value,
                at,
            });
            series.collect::<Vec<_>>()
        };
        let present = of_room(&|course| course.last().map(|(_, cores)| *cores));
        let ahead = of_room(&|course| Some(predict_linear(course, now, AHEAD)?.max(0.0)));
        answers.chain([(ROOM, present), (ROOM_AHEAD, ahead)]).collect()
    }
}

/// Predicts the value `ahead` seconds after `now` by the least squares of the course, as the function of PromQL.
fn predict_linear(course: &[(Micros, f64)], now: Micros, ahead: f64) -> Option<f64> {
    if course.len() < 2 {
        return None;
    }
    let points = || {
        course
            .iter()
            .map(|(at, value)| (at.0 as f64 / 1e6 - now.0 as f64 / 1e6, *value))
    };
    let count = course.len() as f64;
    let mean = |sum: f64| sum / count;
    let (x, y) = (
        mean(points().map(|(x, _)| x).sum()),
        mean(points().map(|(_, y)| y).sum()),
    );
    let covariance: f64 = points().map(|(at, value)| (at - x) * (value - y)).sum();
    let variance: f64 = points().map(|(at, _)| (at - x).powi(2)).sum();
    let slope = covariance / variance;
    Some(y + slope * (ahead - x))
}

impl StatedCourse {
    fn into_steps(self) -> Course {
        match self {
            Self::Number(value) => vec![(Micros(0), value)],
            Self::Steps(steps) => {
                let mut steps: Course = steps.into_iter().map(|step| (step.at_seconds, step.value)).collect();
                steps.sort_by_key(|(at, _)| *at);
                steps
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Scenario, read};
    use super::*;

    fn scenario(profile: Value) -> Result<Scenario, Vec<String>> {
        let document = json!({
            "name": "a profile",
            "durationSeconds": 10,
            "sites": [
                {"name": "edge", "kind": "edge", "nodes": [{"allocatable": {"cpu": 1}}]},
                {"name": "cloud", "kind": "cloud", "nodes": [{"allocatable": {"cpu": 1}}], "wan": {"rttMs": 20}},
            ],
            "workloads": [{"name": "one", "requests": {"cpu": 1}, "serviceMs": 1, "jobs": {"poisson": {"perSecond": 1}}}],
            "profile": profile,
        });
        let found = read(&document, &|_| Err("there are no files".into()));
        found.map_err(|Faults(faults)| faults.iter().map(ToString::to_string).collect())
    }

    fn profile(values: Value) -> Value {
        let carbon = json!({"name": "carbon", "by": "site", "promQL": "carbon", "normMin": 0, "normMax": 100});
        json!({"spec": {"better": "lower", "equation": "cm_normalized_carbon", "metrics": [carbon]}, "values": values})
    }

    #[test]
    fn profile_value_holds_from_its_step() {
        let steps = json!([{"atSeconds": 60, "value": 7.5}, {"atSeconds": 30, "value": 5}]);
        let scenario = scenario(profile(json!({"carbon": {"edge": 3, "cloud": steps}}))).unwrap();
        let simulated = scenario.profile.unwrap();
        let values = |seconds| {
            let now = Micros::from_secs(seconds);
            let answers = simulated.answers(now, Moment(0));
            let series = answers["carbon"].iter();
            series
                .map(|series| (series.labels["site"].clone(), series.value))
                .collect::<Vec<_>>()
        };
        let of = |cloud: f64| vec![("cloud".to_owned(), cloud), ("edge".to_owned(), 3.0)];
        assert_eq!(values(29), of(0.0)[1..]);
        assert_eq!((values(30), values(59), values(60)), (of(5.0), of(5.0), of(7.5)));
    }

    #[test]
    fn room_ahead_continues_the_line_of_the_window() {
        let mut simulated = scenario(profile(json!({}))).unwrap().profile.unwrap();
        let values = |simulated: &SimulatedProfile, query: &str, minute: u64| {
            let answers = simulated.answers(Micros::from_secs(60 * minute), Moment(0));
            answers[query].iter().map(|series| series.value).collect::<Vec<_>>()
        };
        simulated.scrape(Micros(0), "edge", 10.0);
        assert_eq!(values(&simulated, ROOM, 0), [10.0]);
        assert!(values(&simulated, ROOM_AHEAD, 0).is_empty());
        for minute in 1..=10 {
            simulated.scrape(Micros::from_secs(60 * minute), "edge", 10.0 - 0.25 * minute as f64);
        }
        let [ahead] = values(&simulated, ROOM_AHEAD, 10)[..] else {
            panic!()
        };
        assert!((ahead - (10.0 - 0.25 * 25.0)).abs() < 1e-9, "{ahead}");
        // Samples older than 30 minutes do not count, and room is not negative.
        for minute in 41..=44 {
            simulated.scrape(Micros::from_secs(60 * minute), "edge", 44.0 - minute as f64);
        }
        assert_eq!(values(&simulated, ROOM_AHEAD, 44), [0.0]);
        assert_eq!(values(&simulated, ROOM, 44), [0.0]);
    }

    #[test]
    fn profile_faults_name_their_path() {
        let faults = |profile| scenario(profile).unwrap_err();
        assert_eq!(
            faults(profile(json!({"carbon": {"cluod": 1}, "power": {"edge": 1}}))),
            [
                "profile.values.carbon.cluod: \"cluod\" is not a site of this scenario",
                "profile.values.power: is not a metric of the profile with promQL and by: site",
            ]
        );
        let mut unknown = profile(json!({}));
        unknown["spec"]["equation"] = "cm_normalized_power".into();
        let [fault] = &faults(unknown)[..] else { panic!() };
        assert!(fault.starts_with("profile.spec.equation: "), "{fault}");
        assert_eq!(faults(json!({"values": {}}))[0], "profile: missing field `spec`");
    }
}
