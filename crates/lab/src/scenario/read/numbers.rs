//! Numbers, times and tables, as scenarios write them.

use crate::document::Field;
use edgeward_core::units::Micros;
use serde_json::{Map, Value};

use super::Load;
use crate::random::Distribution;
use crate::scenario::Rate;

/// A year, the longest time that a scenario states, in thousandths of a second.
pub(super) const LONGEST: i64 = 365 * 24 * 3_600 * 1_000;

pub(in crate::scenario) fn number(field: &Field<'_>, least: i64, most: i64) -> Option<f64> {
    Some(field.thousandths(least..=most)? as f64 / 1_000.0)
}

pub(in crate::scenario) fn seconds(field: &Field<'_>, least: i64) -> Option<Micros> {
    let thousandths = field.thousandths(least..=LONGEST)?;
    Some(Micros::from_millis(thousandths.unsigned_abs()))
}

pub(super) fn percent(field: &Field<'_>) -> Option<f64> {
    number(field, 0, 100_000).map(|percent| percent / 100.0)
}

/// `20`, or one of the distributions, in milliseconds.
pub(super) fn distribution(field: &Field<'_>) -> Option<Distribution> {
    const MOST: i64 = LONGEST * 1_000;
    if !field.is_object() {
        return number(field, 0, MOST).map(Distribution::Constant);
    }
    let [exponential, lognormal, uniform, pareto] = field.object(["exponential", "logNormal", "uniform", "pareto"])?;
    let stated = [&exponential, &lognormal, &uniform, &pareto];
    if stated.iter().filter(|field| field.is_present()).count() != 1 {
        field.fault("states not exactly one of exponential, logNormal, uniform, pareto".into());
        return None;
    }
    if exponential.is_present() {
        let [mean] = exponential.object(["meanMs"])?;
        return number(&mean.required(), 1, MOST).map(Distribution::Exponential);
    }
    if lognormal.is_present() {
        let [median, sigma] = lognormal.object(["medianMs", "sigma"])?;
        let (median, sigma) = (
            number(&median.required(), 1, MOST),
            number(&sigma.required(), 0, 10_000),
        );
        return Some(Distribution::LogNormal(median?, sigma?));
    }
    if uniform.is_present() {
        let [from, to] = uniform.object(["fromMs", "toMs"])?;
        let (least, most) = (
            number(&from.required(), 0, MOST)?,
            number(&to.clone().required(), 0, MOST)?,
        );
        if most < least {
            to.fault("is less than fromMs".into());
        }
        return Some(Distribution::Uniform(least, most));
    }
    let [least, exponent, most] = pareto.object(["leastMs", "exponent", "mostMs"])?;
    let (least, exponent) = (
        number(&least.required(), 1, MOST),
        number(&exponent.required(), 100, 100_000),
    );
    Some(Distribution::Pareto(
        least?,
        exponent?,
        number(&most.required(), 1, MOST)?,
    ))
}

/// A map of resources to quantities, rounded as kube-scheduler rounds them. A node has 110 pod slots where it states none.
pub(super) fn quantities(field: &Field<'_>) -> Option<Map<String, Value>> {
    let mut found = Map::new();
    for (name, field) in field.entries()? {
        let quantity = field.quantity()?;
        let text = match name {
            "cpu" => format!("{}m", quantity.millis()),
            _ => quantity.units().to_string(),
        };
        found.insert(name.to_owned(), text.into());
    }
    found.entry("pods").or_insert("110".into());
    Some(found)
}

pub(super) fn table<T>(field: &Field<'_>, load: Load<'_>, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
    let path = field.non_empty_string()?;
    match load(path).and_then(|text| read(&text)) {
        Ok(table) => Some(table),
        Err(error) => {
            field.fault(format!("{path}: {error}"));
            None
        }
    }
}

pub(super) fn rate(field: &Field<'_>) -> Option<Rate> {
    const MOST: i64 = 1_000_000_000;
    let [constant, bursty, diurnal, steps] = field.object(["perSecond", "bursty", "diurnal", "steps"])?;
    let stated = [&constant, &bursty, &diurnal, &steps];
    if stated.iter().filter(|field| field.is_present()).count() != 1 {
        field.fault("states not exactly one of perSecond, bursty, diurnal, steps".into());
        return None;
    }
    if bursty.is_present() {
        let [between, within, every, lasting] =
            bursty.object(["perSecond", "burstPerSecond", "everySeconds", "lastingSeconds"])?;
        return Some(Rate::Bursty(
            number(&between.required(), 0, MOST)?,
            number(&within.required(), 0, MOST)?,
            seconds(&every.required(), 1)?,
            seconds(&lasting.required(), 1)?,
        ));
    }
    if diurnal.is_present() {
        let [mean, amplitude, period, peak] =
            diurnal.object(["perSecond", "amplitude", "periodSeconds", "peakAtSeconds"])?;
        return Some(Rate::Diurnal(
            number(&mean.required(), 0, MOST)?,
            number(&amplitude.required(), 0, 1_000)?,
            seconds(&period, 1).unwrap_or(Micros::from_secs(86_400)),
            seconds(&peak, 0).unwrap_or_default(),
        ));
    }
    if steps.is_present() {
        let list = steps.list()?;
        let step = |field: &Field<'_>| {
            let [at, rate] = field.object(["atSeconds", "perSecond"])?;
            Some((seconds(&at.required(), 0)?, number(&rate.required(), 0, MOST)?))
        };
        let list = list.iter().map(step).collect::<Option<Vec<_>>>()?;
        if !list.is_sorted_by_key(|(at, _)| *at) {
            steps.fault("is not sorted by atSeconds".into());
        }
        return Some(Rate::Steps(list));
    }
    number(&constant, 0, MOST).map(Rate::Constant)
}
