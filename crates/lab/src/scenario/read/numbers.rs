//! Numbers, times and tables as scenarios write them.

use std::collections::BTreeMap;

use edgeward_decision::document::{Decimal, parse};
use edgeward_kube::units::{Micros, Quantity};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::Load;
use crate::random::Distribution;
use crate::scenario::RateStep;

/// The longest time that a scenario may state: a year, in thousandths of a second.
pub(super) const LONGEST: i64 = 365 * 24 * 3_600 * 1_000;

pub(in crate::scenario) const MOST: i64 = 1_000_000_000_000;

pub(in crate::scenario) fn number<'de, D: Deserializer<'de>, const LEAST: i64, const MOST: i64>(
    deserializer: D,
) -> Result<f64, D::Error> {
    let Decimal(thousandths) = Decimal::<3, LEAST, MOST>::deserialize(deserializer)?;
    Ok(thousandths as f64 / 1_000.0)
}

/// Reads seconds; the least value is in thousandths of a second.
pub(in crate::scenario) fn seconds<'de, D: Deserializer<'de>, const LEAST: i64>(
    deserializer: D,
) -> Result<Micros, D::Error> {
    let Decimal(thousandths) = Decimal::<3, LEAST, LONGEST>::deserialize(deserializer)?;
    Ok(Micros::from_millis(thousandths.unsigned_abs()))
}

pub(in crate::scenario) fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    number::<_, 0, 100_000>(deserializer).map(|percent| percent / 100.0)
}

pub(in crate::scenario) fn rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    number::<_, 0, 1_000_000_000>(deserializer)
}

pub(in crate::scenario) fn rate_steps<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RateStep>, D::Error> {
    let steps = Vec::<RateStep>::deserialize(deserializer)?;
    match steps.is_sorted_by_key(|step| step.at_seconds) {
        true => Ok(steps),
        false => Err(D::Error::custom("is not sorted by atSeconds")),
    }
}

pub(in crate::scenario) fn count<'de, D: Deserializer<'de>, const LEAST: i64>(
    deserializer: D,
) -> Result<u32, D::Error> {
    let Decimal(count) = Decimal::<0, LEAST, 100_000>::deserialize(deserializer)?;
    Ok(count as u32)
}

pub(in crate::scenario) fn one() -> u32 {
    1
}

pub(in crate::scenario) fn five_minutes() -> Micros {
    Micros::from_secs(300)
}

pub(in crate::scenario) fn a_day() -> Micros {
    Micros::from_secs(86_400)
}

type Ms<const LEAST: i64> = Decimal<3, LEAST, { LONGEST * 1_000 }>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
enum Drawn {
    Exponential {
        mean_ms: Ms<1>,
    },
    LogNormal {
        median_ms: Ms<1>,
        sigma: Decimal<3, 0, 10_000>,
    },
    Uniform {
        from_ms: Ms<0>,
        to_ms: Ms<0>,
    },
    Pareto {
        least_ms: Ms<1>,
        exponent: Decimal<3, 100, 100_000>,
        most_ms: Ms<1>,
    },
}

/// Reads a number such as `20`, or a distribution, in milliseconds.
impl TryFrom<Value> for Distribution {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let of = |thousandths: i64| thousandths as f64 / 1_000.0;
        if !value.is_object() {
            let constant = parse::<Ms<0>>(&value, "").map_err(|fault| fault.message)?;
            return Ok(Self::Constant(of(constant.0)));
        }
        Ok(match parse(&value, "").map_err(|fault| fault.to_string())? {
            Drawn::Exponential { mean_ms } => Self::Exponential(of(mean_ms.0)),
            Drawn::LogNormal { median_ms, sigma } => Self::LogNormal(of(median_ms.0), of(sigma.0)),
            Drawn::Uniform { from_ms, to_ms } if to_ms.0 < from_ms.0 => return Err("toMs is less than fromMs".into()),
            Drawn::Uniform { from_ms, to_ms } => Self::Uniform(of(from_ms.0), of(to_ms.0)),
            Drawn::Pareto {
                least_ms,
                exponent,
                most_ms,
            } => Self::Pareto(of(least_ms.0), of(exponent.0), of(most_ms.0)),
        })
    }
}

/// Returns resources as a manifest states them, rounded as kube-scheduler rounds them.
pub(super) fn quantities(stated: &BTreeMap<String, Quantity>) -> Map<String, Value> {
    let text = |(name, quantity): (&String, &Quantity)| {
        let text = match &**name {
            "cpu" => format!("{}m", quantity.millis()),
            _ => quantity.units().to_string(),
        };
        (name.clone(), text.into())
    };
    stated.iter().map(text).collect()
}

pub(super) fn table<T>(path: &str, load: Load<'_>, read: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
    load(path)
        .and_then(|text| read(&text))
        .map_err(|error| format!("{path}: {error}"))
}
