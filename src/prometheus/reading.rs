//! Converts the series of an answer to measurements.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use edgeward_cluster::telemetry::{Measurement, Work};
use edgeward_decision::config::Input;
use edgeward_decision::model::link::Bandwidth;
use edgeward_decision::model::site::{SiteDefinition, SiteKind};
use edgeward_decision::model::slo::Class;
use edgeward_decision::model::traits::Bound;
use edgeward_kube::units::{Micros, Moment};
use edgeward_profiles::Series;

use crate::prometheus::answer::{Failure, Outcome};

/// The site and work that a series describes; no name and no work for a query with a single number.
type Target<'s> = (&'s str, Option<Work<&'s str>>);

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
    let target = |series| target(input, series, sites);
    read_each(staleness, series, now, target, |target, number| {
        measurement(input, target, number)
    })
}

/// A value in thousandths, and when it was true.
type Value = (i64, Moment);

/// Reads the usable values of an answer with one series for each site, and returns the first fault of the others.
pub(super) fn read_trait<'s>(
    bound: Bound,
    staleness: Micros,
    series: &[Series],
    sites: &'s [Arc<SiteDefinition>],
    now: Moment,
) -> (BTreeMap<&'s str, Value>, Result<(), Failure>) {
    let target = |series: &Series| Ok(&*named_site(series, sites, "site")?.name);
    let value = |site, number: f64| (number.abs() <= 1e12).then(|| (site, bound.thousandths(number)));
    let (values, faults) = read_each(staleness, series, now, target, value);
    let values = values.into_iter().map(|((site, value), at)| (site, (value, at)));
    (values.collect(), faults)
}

/// The names of two sites.
type Pair<'s> = (&'s str, &'s str);

/// Reads the usable values of an answer about links, by source and target, with the time of the oldest. Returns the first fault of
/// the others too.
pub(super) fn read_links<'s>(
    input: Input,
    staleness: Micros,
    series: &[Series],
    sites: &'s [Arc<SiteDefinition>],
    now: Moment,
) -> (Vec<(Pair<'s>, u64)>, Moment, Result<(), Failure>) {
    let target = |series: &Series| {
        let named = |label| Ok::<_, Failure>(&*named_site(series, sites, label)?.name);
        let (source, target) = (named("source")?, named("target")?);
        match source == target {
            true => Err(missing("one site is named twice", series)),
            false => Ok((source, target)),
        }
    };
    let value = |pair, number| Some((pair, measurement(input, ("", None), number)?.value));
    let (values, faults) = read_each(staleness, series, now, target, value);
    let oldest = values.iter().map(|(_, at)| *at).min().unwrap_or(now);
    (values.into_iter().map(|(value, _)| value).collect(), oldest, faults)
}

/// Reads each series that is the only one for its target, and returns the first fault of the others. A value of `None` is out
/// of range.
fn read_each<'r, T: Copy + Eq + Hash, V>(
    staleness: Micros,
    series: &'r [Series],
    now: Moment,
    target: impl Fn(&'r Series) -> Result<T, Failure>,
    value: impl Fn(T, f64) -> Option<V>,
) -> (Vec<(V, Moment)>, Result<(), Failure>) {
    if series.is_empty() {
        return (vec![], Err(Failure::new(Outcome::Empty, "no series")));
    }
    let targets: Vec<_> = series.iter().map(target).collect();
    let mut counts = HashMap::<T, usize>::new();
    for target in targets.iter().flatten() {
        *counts.entry(*target).or_default() += 1;
    }
    let mut readings = Vec::new();
    let mut first_fault = Ok(());
    for (series, target) in series.iter().zip(targets) {
        let reading = target.and_then(|target| match counts[&target] {
            1 => reading(staleness, series, now, |number| value(target, number)),
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

fn label<'l>(series: &'l Series, name: &str) -> Option<&'l str> {
    series.labels.get(name).map(String::as_str)
}

fn missing(what: &str, series: &Series) -> Failure {
    Failure::new(Outcome::Label, format_args!("{what} by {}", labels(series)))
}

/// The site that this label names.
fn named_site<'s>(series: &Series, sites: &'s [Arc<SiteDefinition>], by: &str) -> Result<&'s SiteDefinition, Failure> {
    let site = sites.iter().find(|site| label(series, by) == Some(&site.name));
    site.map(|site| &**site)
        .ok_or_else(|| missing("no site is named", series))
}

fn target<'s>(input: Input, series: &'s Series, sites: &'s [Arc<SiteDefinition>]) -> Result<Target<'s>, Failure> {
    match input {
        Input::EdgeFreeCpu | Input::EdgeFreeMemory => Ok(("", None)),
        Input::Processing => {
            let site = named_site(series, sites, "site")?;
            let class = label(series, "class").and_then(Class::of_word);
            let class = class.ok_or_else(|| missing("no class is named", series))?;
            let work = Work {
                namespace: label(series, "namespace").unwrap_or_default(),
                class,
                is_p95: is_p95(series)?,
            };
            Ok((&site.name, Some(work)))
        }
        Input::WanRtt | Input::WanLoss => {
            let cloud = named_site(series, sites, "site").ok();
            let cloud = cloud.filter(|site| site.kind == SiteKind::Cloud);
            let cloud = cloud.ok_or_else(|| missing("no cloud site is named", series))?;
            Ok((&cloud.name, None))
        }
        of_links => Err(Failure::new(
            Outcome::Label,
            format_args!("{} is of links", of_links.as_str()),
        )),
    }
}

/// Whether the series is a p95, by its label `quantile`. A series without one is a mean.
fn is_p95(series: &Series) -> Result<bool, Failure> {
    match label(series, "quantile") {
        None | Some("") => Ok(false),
        Some(quantile) if quantile.parse() == Ok(0.95) => Ok(true),
        Some(_) => Err(missing("the quantile is not 0.95", series)),
    }
}

fn reading<V>(
    staleness: Micros,
    series: &Series,
    now: Moment,
    value: impl Fn(f64) -> Option<V>,
) -> Result<(V, Moment), Failure> {
    let number = series.value;
    if !number.is_finite() {
        let detail = format_args!("{number} for {}", labels(series));
        return Err(Failure::new(Outcome::NotANumber, detail));
    }
    let value = value(number)
        .ok_or_else(|| Failure::new(Outcome::OutOfRange, format_args!("{number} for {}", labels(series))))?;
    let age = now.since(series.at);
    if age > staleness {
        return Err(Failure::new(
            Outcome::Stale,
            format_args!("{age} ms old, more than {staleness} ms: {}", labels(series)),
        ));
    }
    Ok((value, series.at))
}

/// Converts a number and rounds it to the unfavourable side. `None` for a number outside the input's range.
fn measurement(input: Input, (site, work): Target<'_>, number: f64) -> Option<Measurement> {
    // Decimal fractions leave errors below a thousandth of the unit in binary: 0.029 · 1000 is slightly more than 29.
    const DUST: f64 = 1e-3;
    let up = |number: f64| (number - DUST).ceil() as u64;
    let down = |number: f64| (number + DUST).floor() as u64;
    let (range, value) = match input {
        Input::EdgeFreeCpu => (0.0..=1e9, down(number * 1e3)),
        Input::EdgeFreeMemory => (0.0..=9e15, down(number)),
        Input::Processing => (1e-6..=86_400.0, up(number * 1e6)),
        Input::WanRtt | Input::LinkRtt => (0.0..=60.0, up(number * 1e6)),
        Input::WanLoss | Input::LinkLoss => (0.0..=1.0, up(number * 1e3)),
        Input::LinkBandwidth => (1e3..=Bandwidth::MOST as f64, down(number)),
        Input::LinkBytes | Input::LinkPackets => (0.0..=1e15, up(number)),
    };
    let is_possible = range.contains(&number);
    let work = work.map(|work| Work {
        namespace: work.namespace.into(),
        class: work.class,
        is_p95: work.is_p95,
    });
    is_possible.then(|| Measurement {
        work,
        ..Measurement::new(input, site, value)
    })
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
            good(Measurement::new(Input::EdgeFreeCpu, "", 1_999))
        );
        assert_eq!(
            one(Input::EdgeFreeCpu, "0"),
            good(Measurement::new(Input::EdgeFreeCpu, "", 0))
        );
        assert_eq!(
            one(Input::EdgeFreeMemory, "1e9"),
            good(Measurement::new(Input::EdgeFreeMemory, "", 1_000_000_000))
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
        let of = |namespace: &str, quantile: &str| json!({"site": "edge", "class": "batch", "namespace": namespace, "quantile": quantile});
        let time_of = |site: &str, class, namespace: &str, is_p95, us| {
            let namespace = namespace.into();
            Measurement::processing(
                site,
                Work {
                    namespace,
                    class,
                    is_p95,
                },
                Micros(us),
            )
        };
        let time = |site: &str, class, us| time_of(site, class, "", false, us);
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
                    series(of("shop", ""), "3"),
                    series(of("shop", "0.95"), "4"),
                ]
            ),
            (
                vec![
                    time("edge", Class::Batch, 1_500_000),
                    time("cloud", Class::Latency, 2),
                    time_of("edge", Class::Batch, "shop", false, 3_000_000),
                    time_of("edge", Class::Batch, "shop", true, 4_000_000),
                ],
                Outcome::NotANumber
            )
        );
        for (expected, named, number) in [
            (Outcome::Label, json!({"class": "batch"}), "1"),
            (Outcome::Label, labels("edge", "quick"), "1"),
            (Outcome::Label, of("shop", "0.9"), "1"),
            (Outcome::OutOfRange, labels("edge", "batch"), "0"),
            (Outcome::OutOfRange, labels("edge", "batch"), "86401"),
        ] {
            assert_eq!(outcome(Input::Processing, [series(named, number)]), (vec![], expected));
        }
    }

    #[test]
    fn wan_samples_are_accepted_for_clouds_only() {
        let one = |input, site: &str, number: &str| outcome(input, [series(json!({"site": site}), number)]);
        let rtt = Measurement::new(Input::WanRtt, "cloud", 25_001);
        assert_eq!(one(Input::WanRtt, "cloud", "0.0250001"), (vec![rtt], Outcome::Ok));
        let loss = Measurement::new(Input::WanLoss, "cloud", 20);
        assert_eq!(one(Input::WanLoss, "cloud", "0.0191"), (vec![loss], Outcome::Ok));
        for (number, permille) in [("0.029", 29), ("0.0290011", 30), ("2.2e-16", 0), ("1", 1_000)] {
            let loss = Measurement::new(Input::WanLoss, "cloud", permille);
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

    #[test]
    fn site_has_a_value_only_from_one_usable_series() {
        let (sites, now) = (&Config::default().sites, Moment(0));
        let read = |bound, all: &[Series]| {
            let (values, fault) = read_trait(bound, Micros::from_secs(60), all, sites, now);
            let outcome = fault.map_or_else(|failure| failure.outcome, |()| Outcome::Ok);
            let values = values.into_iter().map(|(site, (value, _))| (site.to_owned(), value));
            (values.collect::<Vec<_>>(), outcome)
        };
        let of = |site: &str, number: &str| series(json!({"site": site}), number);
        let edge = |value| vec![("edge".to_owned(), value)];
        let by_site = |all: &[Series]| read(Bound::AtMost(0), all);
        // A value is rounded to the side where the trait holds less.
        for (number, most, least) in [("59.9996", 60_000, 59_999), ("0.0004", 1, 0), ("0.029", 29, 29)] {
            assert_eq!(by_site(&[of("edge", number)]), (edge(most), Outcome::Ok));
            assert_eq!(
                read(Bound::AtLeast(0), &[of("edge", number)]),
                (edge(least), Outcome::Ok)
            );
        }
        assert_eq!(by_site(&[of("edge", "-2")]), (edge(-2_000), Outcome::Ok));
        for (other, outcome) in [("NaN", Outcome::NotANumber), ("1e13", Outcome::OutOfRange)] {
            assert_eq!(by_site(&[of("cloud", other), of("edge", "1")]), (edge(1_000), outcome));
        }
        assert_eq!(
            by_site(&[of("edge", "1"), of("edge", "1")]),
            (vec![], Outcome::Ambiguous)
        );
        assert_eq!(by_site(&[of("moon", "1")]), (vec![], Outcome::Label));
        assert_eq!(by_site(&[]), (vec![], Outcome::Empty));
    }

    #[test]
    fn links_are_read_by_source_and_target() {
        let (sites, now) = (&Config::default().sites, Moment(0));
        let links = |input, all: &[Series]| {
            let (values, _, fault) = read_links(input, Micros::from_secs(60), all, sites, now);
            let outcome = fault.map_or_else(|failure| failure.outcome, |()| Outcome::Ok);
            let values = values
                .into_iter()
                .map(|((source, target), value)| format!("{source}-{target} {value}"));
            (values.collect::<Vec<_>>(), outcome)
        };
        let of = |source: &str, target: &str, number| series(json!({"source": source, "target": target}), number);
        let both = [of("edge", "cloud", "5e7"), of("cloud", "edge", "1e6")];
        let found = vec!["edge-cloud 50000000".to_owned(), "cloud-edge 1000000".to_owned()];
        assert_eq!(links(Input::LinkBandwidth, &both), (found, Outcome::Ok));
        let rtt = [of("edge", "cloud", "0.0250001")];
        assert_eq!(
            links(Input::LinkRtt, &rtt),
            (vec!["edge-cloud 25001".to_owned()], Outcome::Ok)
        );
        for (source, target, number, outcome) in [
            ("edge", "edge", "1e6", Outcome::Label),
            ("edge", "moon", "1e6", Outcome::Label),
            ("edge", "cloud", "999", Outcome::OutOfRange),
            ("edge", "cloud", "NaN", Outcome::NotANumber),
        ] {
            let found = links(Input::LinkBandwidth, &[of(source, target, number)]);
            assert_eq!(found, (vec![], outcome), "{source} {target} {number}");
        }
    }
}
