//! The WAN of a scenario.

use edgeward_core::document::Checks;
use edgeward_core::units::Micros;
use serde::Deserialize;

use super::Load;
use super::numbers::{a_day, number, percent, seconds, table};
use crate::random::Distribution;
use crate::scenario::{Wan, WanModel, tables};

/// A [`Wan`] in its written form: either a trace or the other fields.
#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct StatedWan {
    rtt_ms: Option<Distribution>,
    #[serde(deserialize_with = "percent")]
    loss_pct: f64,
    diurnal: Option<Diurnal>,
    flapping: Option<Flapping>,
    congestion: Option<Congestion>,
    outages: Vec<Outage>,
    trace: Option<String>,
}

#[derive(PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Diurnal {
    #[serde(deserialize_with = "number::<_, 0, 60_000_000>")]
    added_ms: f64,
    #[serde(default = "a_day", deserialize_with = "seconds::<_, 1>")]
    period_seconds: Micros,
    #[serde(default, deserialize_with = "seconds::<_, 0>")]
    peak_at_seconds: Micros,
}

#[derive(PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Flapping {
    #[serde(deserialize_with = "seconds::<_, 1>")]
    every_seconds: Micros,
    #[serde(deserialize_with = "seconds::<_, 1>")]
    down_seconds: Micros,
}

#[derive(PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Congestion {
    #[serde(deserialize_with = "seconds::<_, 1>")]
    every_seconds: Micros,
    #[serde(deserialize_with = "seconds::<_, 1>")]
    lasting_seconds: Micros,
    #[serde(default, deserialize_with = "number::<_, 0, 60_000_000>")]
    added_ms: f64,
    #[serde(default, deserialize_with = "percent")]
    loss_pct: f64,
}

#[derive(PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Outage {
    #[serde(deserialize_with = "seconds::<_, 0>")]
    at_seconds: Micros,
    #[serde(deserialize_with = "seconds::<_, 1>")]
    lasting_seconds: Micros,
}

impl StatedWan {
    pub(super) fn read(mut self, checks: &mut Checks<'_>, load: Load<'_>) -> Option<Wan> {
        if let Some(trace) = self.trace.take() {
            if self != Self::default() {
                checks.fault("trace", "conflicts with numbers: a WAN is either measured or described");
            }
            let read = table(&trace, load, tables::wan);
            return read.map(Wan::Trace).map_err(|error| checks.fault("trace", error)).ok();
        }
        if self.rtt_ms.is_none() {
            checks.fault("rttMs", "is missing");
        }
        Some(Wan::Model(WanModel {
            rtt: self.rtt_ms?,
            loss: self.loss_pct,
            diurnal: self
                .diurnal
                .map(|it| (it.added_ms, it.period_seconds, it.peak_at_seconds)),
            flapping: self.flapping.map(|it| (it.every_seconds, it.down_seconds)),
            congestion: self
                .congestion
                .map(|it| (it.every_seconds, it.lasting_seconds, it.added_ms, it.loss_pct)),
            outages: self
                .outages
                .iter()
                .map(|it| (it.at_seconds, it.lasting_seconds))
                .collect(),
        }))
    }
}
