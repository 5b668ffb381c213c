//! Converts the series of an answer to measurements.

use std::collections::HashMap;
use std::sync::Arc;

use edgeward_cluster::telemetry::Measurement;
use edgeward_decision::config::Input;
use edgeward_decision::model::site::{SiteDefinition, SiteKind};
use edgeward_decision::model::slo::Class;
use edgeward_kube::units::{Micros, Moment};
use edgeward_profiles::Series;

use crate::prometheus::answer::{Failure, Outcome};

/// The site and class that a series describes; no name and no class for a query with a single number.
type Target<'s> = (&'s str, Option<Class>);

/// A measurement, and when it was true.
type Reading = (Measurement, Moment);

/// Reads the usable series of an answer, and returns the first fault of the others.
pub(super) fn read(
    input: Input,
    staleness: Micros,
    series: &[Series],
    sites: &[Arc<SiteDefinition>],
    now: Moment,
) -> (Vec<Reading>, Result<(), Failure>) {
    if series.is_empty() {
        return (vec![], Err(Failure::new(Outcome::Empty, "no series")));
    }
    let targets: Vec<_> = series.iter().map(|series| target(input, series, sites)).collect();
    let mut counts = HashMap::<Target<'_>, usize>::new();
    for target in targets.iter().flatten() {
        *counts.entry(*target).or_default() += 1;
    }
    let mut readings = Vec::new();
    let mut first_fault = Ok(());
    for (series, target) in series.iter().zip(targets) {
        let reading = target.and_then(|target| match counts[&target] {
            1 => reading(input, staleness, series, target, now),
            same => {
                let detail = format_args!("{same} series for {}", labels(series));
                Err(Failure::new(Outcome::Ambiguous, detail))
            }
        });
        match reading {
            Ok(reading) => readings.push(reading),
            Err(failure) => first_fault = first_fault.and(Err(failure)),
        }
    }
    (readings, first_fault)
}

fn target<'s>(input: Input, series: &Series, sites: &'s [Arc<SiteDefinition>]) -> Result<Target<'s>, Failure> {
    let label = |name: &str| series.labels.get(name).map(String::as_str);
    let missing = |what: &str| Failure::new(Outcome::Label, format_args!("{what} by {}", labels(series)));
    let site = sites.iter().find(|site| label("site") == Some(&site.name));
    match input {
        Input::EdgeFreeCpu | Input::EdgeFreeMemory => Ok(("", None)),
        Input::Processing => {
            let site = site.ok_or_else(|| missing("no site is named"))?;
            let class = label("class").and_then(Class::of_word);
            let class = class.ok_or_else(|| missing("no class is named"))?;
            Ok((&site.name, Some(class)))
        }
        Input::WanRtt | Input::WanLoss => {
            let cloud = site.filter(|site| site.kind == SiteKind::Cloud);
            let cloud = cloud.ok_or_else(|| missing("no cloud site is named"))?;
            Ok((&cloud.name, None))
        }
    }
}

fn reading(
    input: Input,
    staleness: Micros,
    series: &Series,
    target: Target<'_>,
    now: Moment,
) -> Result<Reading, Failure> {
    let number = series.value;
    if !number.is_finite() {
        let detail = format_args!("{number} for {}", labels(series));
        return Err(Failure::new(Outcome::NotANumber, detail));
    }
    let measurement = measurement(input, target, number)
        .ok_or_else(|| Failure::new(Outcome::OutOfRange, format_args!("{number} for {}", labels(series))))?;
    let age = now.since(series.at);
    if age > staleness {
        return Err(Failure::new(
            Outcome::Stale,
            format_args!("{age} ms old, more than {staleness} ms: {}", labels(series)),
        ));
    }
    Ok((measurement, series.at))
}

/// Converts a number and rounds it to the unfavourable side. `None` for a number outside the input's range.
fn measurement(input: Input, (site, class): Target<'_>, number: f64) -> Option<Measurement> {
    // Decimal fractions leave errors below a thousandth of the unit in binary: 0.029 · 1000 is slightly more than 29.
    const DUST: f64 = 1e-3;
    let up = |number: f64| (number - DUST).ceil() as u64;
    let down = |number: f64| (number + DUST).floor() as u64;
    let (range, value) = match input {
        Input::EdgeFreeCpu => (0.0..=1e9, down(number * 1e3)),
        Input::EdgeFreeMemory => (0.0..=9e15, down(number)),
        Input::Processing => (1e-6..=86_400.0, up(number * 1e6)),
        Input::WanRtt => (0.0..=60.0, up(number * 1e6)),
        Input::WanLoss => (0.0..=1.0, up(number * 1e3)),
    };
    let is_possible = range.contains(&number);
    is_possible.then(|| Measurement::new(input, site, class, value))
}

fn labels(series: &Series) -> String {
    format!("{:?}", series.labels)
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgeward_decision::config::Config;
    use serde_json::{Value, json};

    /// The readings without their times, and the outcome.
    fn outcome<const N: usize>(input: Input, series: [Series; N]) -> (Vec<Measurement>, Outcome) {
        let (sites, now) = (&Config::default().sites, Moment(0));
        let (readings, fault) = read(input, Micros::from_secs(60), &series, sites, now);
        let outcome = fault.map_or_else(|failure| failure.outcome, |()| Outcome::Ok);
        (
            readings.into_iter().map(|(measurement, _)| measurement).collect(),
            outcome,
        )
    }

    fn series(labels: Value, number: &str) -> Series {
        Series {
            labels: serde_json::from_value(labels).unwrap(),
            value: number.parse().unwrap(),
            at: Moment(0),
        }
    }

    #[test]
    fn free_capacity_sample_is_rounded_down_or_refused() {
        let one = |input, number: &str| outcome(input, [series(json!({"job": "x"}), number)]);
        let good = |measurement| (vec![measurement], Outcome::Ok);
        let bad = |outcome| (vec![], outcome);
        assert_eq!(
            one(Input::EdgeFreeCpu, "1.9999"),
            good(Measurement::new(Input::EdgeFreeCpu, "", None, 1_999))
        );
        assert_eq!(
            one(Input::EdgeFreeCpu, "0"),
            good(Measurement::new(Input::EdgeFreeCpu, "", None, 0))
        );
        assert_eq!(
            one(Input::EdgeFreeMemory, "1e9"),
            good(Measurement::new(Input::EdgeFreeMemory, "", None, 1_000_000_000))
        );
        for number in ["NaN", "+Inf", "-Inf"] {
            assert_eq!(one(Input::EdgeFreeMemory, number), bad(Outcome::NotANumber));
        }
        assert_eq!(one(Input::EdgeFreeCpu, "-0.1"), bad(Outcome::OutOfRange));
        assert_eq!(one(Input::EdgeFreeMemory, "1e30"), bad(Outcome::OutOfRange));
    }

    #[test]
    fn processing_times_are_read_by_label_with_first_fault() {
        let labels = |site: &str, class: &str| json!({"site": site, "class": class});
        let time = |site: &str, class, us| Measurement::new(Input::Processing, site, Some(class), us);
        assert_eq!(
            outcome(
                Input::Processing,
                [
                    series(labels("edge", "batch"), "1.5"),
                    series(labels("edge", "latency"), "NaN"),
                    series(labels("moon", "batch"), "1"),
                    series(labels("cloud", "batch"), "1"),
                    series(labels("cloud", "latency"), "0.0000015"),
                    series(labels("cloud", "batch"), "2"),
                ]
            ),
            (
                vec![time("edge", Class::Batch, 1_500_000), time("cloud", Class::Latency, 2)],
                Outcome::NotANumber
            )
        );
        for (expected, named, number) in [
            (Outcome::Label, json!({"class": "batch"}), "1"),
            (Outcome::Label, labels("edge", "quick"), "1"),
            (Outcome::OutOfRange, labels("edge", "batch"), "0"),
            (Outcome::OutOfRange, labels("edge", "batch"), "86401"),
        ] {
            assert_eq!(outcome(Input::Processing, [series(named, number)]), (vec![], expected));
        }
    }

    #[test]
    fn wan_samples_are_accepted_for_clouds_only() {
        let one = |input, site: &str, number: &str| outcome(input, [series(json!({"site": site}), number)]);
        let rtt = Measurement::new(Input::WanRtt, "cloud", None, 25_001);
        assert_eq!(one(Input::WanRtt, "cloud", "0.0250001"), (vec![rtt], Outcome::Ok));
        let loss = Measurement::new(Input::WanLoss, "cloud", None, 20);
        assert_eq!(one(Input::WanLoss, "cloud", "0.0191"), (vec![loss], Outcome::Ok));
        for (number, permille) in [("0.029", 29), ("0.0290011", 30), ("2.2e-16", 0), ("1", 1_000)] {
            let loss = Measurement::new(Input::WanLoss, "cloud", None, permille);
            assert_eq!(one(Input::WanLoss, "cloud", number), (vec![loss], Outcome::Ok));
        }
        assert_eq!(one(Input::WanLoss, "cloud", "2"), (vec![], Outcome::OutOfRange));
        assert_eq!(one(Input::WanRtt, "cloud", "61"), (vec![], Outcome::OutOfRange));
        assert_eq!(one(Input::WanRtt, "edge", "0.025"), (vec![], Outcome::Label));
    }

    #[test]
    fn edge_capacity_query_needs_exactly_one_series() {
        let two = ["a", "b"].map(|pod| series(json!({ "pod": pod }), "1"));
        assert_eq!(outcome(Input::EdgeFreeCpu, two), (vec![], Outcome::Ambiguous));
        assert_eq!(outcome(Input::EdgeFreeCpu, []), (vec![], Outcome::Empty));
    }

    #[test]
    fn sample_older_than_staleness_is_stale() {
        let at = |age: u64| {
            let series = Series {
                at: Moment(0).before(Micros(age)),
                ..series(json!({}), "1")
            };
            outcome(Input::EdgeFreeCpu, [series]).1
        };
        assert_eq!([at(60_000_000), at(60_000_001)], [Outcome::Ok, Outcome::Stale]);
    }
}
