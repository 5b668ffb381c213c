//! The performance profile of a scenario, and what a Prometheus server would answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::document::{Fault, Faults, Field};
use edgeward_core::units::{Micros, Moment};
use edgeward_profiles::profile::{By, Source};
use edgeward_profiles::{Profile, Series};
use serde_json::Value;

use super::Site;
use super::read::numbers::{number, seconds};

pub const NAME: &str = "simulated";

type Course = Vec<(Micros, f64)>;

/// A profile that all managed pods name, and the course of its metrics.
#[derive(Debug, Clone)]
pub struct SimulatedProfile {
    pub profile: Arc<Profile>,
    courses: BTreeMap<String, BTreeMap<String, Course>>,
}

impl SimulatedProfile {
    /// Reads the member `profile` of a scenario.
    pub(super) fn read(field: &Field<'_>, document: &Value, sites: &[Site]) -> Option<Self> {
        let [spec, values] = field.object(["spec", "values"])?;
        spec.required();
        let report = |Fault { path, message }: Fault| field.clone().called(&format!("profile.{path}")).fault(message);
        let profile = Profile::read(&document["profile"]["spec"]);
        let profile = profile
            .map_err(|Faults(faults)| faults.into_iter().for_each(report))
            .ok()?;
        let mut courses = BTreeMap::<_, BTreeMap<_, _>>::new();
        for (name, of_sites) in values.entries().into_iter().flatten() {
            let metric = profile.metrics.iter().find(|metric| metric.name == name);
            let Some(Source::PromQl(query, By::Site)) = metric.map(|metric| &metric.source) else {
                of_sites.fault("is no metric of the profile with promQL and by: site".into());
                continue;
            };
            for (site, values) in of_sites.entries().into_iter().flatten() {
                if !sites.iter().any(|known| known.definition.name == site) {
                    values.fault(format!("{site:?} is no site of this scenario"));
                }
                let course = course(&values)?;
                courses
                    .entry(query.clone())
                    .or_default()
                    .insert(site.to_owned(), course);
            }
        }
        Some(Self {
            profile: Arc::new(profile),
            courses,
        })
    }

    /// What each query gives at this time, which the engine calls `at`.
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
        answers
            .map(|(query, sites)| (&**query, sites.iter().filter_map(series).collect()))
            .collect()
    }
}

/// A number, or a list of numbers with the time from which each holds.
fn course(field: &Field<'_>) -> Option<Course> {
    const MOST: i64 = 1_000_000_000;
    if !field.is_list() {
        return Some(vec![(Micros(0), number(field, -MOST, MOST)?)]);
    }
    let steps = field.list()?.into_iter().map(|step| {
        let [at, value] = step.object(["atSeconds", "value"])?;
        Some((seconds(&at.required(), 0)?, number(&value.required(), -MOST, MOST)?))
    });
    let mut steps: Course = steps.collect::<Option<_>>()?;
    steps.sort_by_key(|(at, _)| *at);
    Some(steps)
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
    fn a_value_holds_from_its_time_on() {
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
    fn faults_are_named_with_their_place() {
        let faults = |profile| scenario(profile).unwrap_err();
        assert_eq!(
            faults(profile(json!({"carbon": {"cluod": 1}, "power": {"edge": 1}}))),
            [
                "profile.values.carbon.cluod: \"cluod\" is no site of this scenario",
                "profile.values.power: is no metric of the profile with promQL and by: site",
            ]
        );
        let mut unknown = profile(json!({}));
        unknown["spec"]["equation"] = "cm_normalized_power".into();
        let [fault] = &faults(unknown)[..] else { panic!() };
        assert!(fault.starts_with("profile.spec.equation: "), "{fault}");
        assert_eq!(faults(json!({"values": {}}))[0], "profile.spec: is missing");
    }
}
