//! The WAN of a scenario.

use edgeward_decision::document::Checks;
use serde::Deserialize;

use super::Load;
use super::numbers::{percent, table};
use crate::random::Distribution;
use crate::scenario::{Congestion, DiurnalRtt, Flapping, Outage, Wan, WanModel, tables};

/// A [`Wan`] in its written form: either a trace or the other fields.
#[derive(Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct StatedWan {
    rtt_ms: Option<Distribution>,
    #[serde(deserialize_with = "percent")]
    loss_pct: f64,
    diurnal: Option<DiurnalRtt>,
    flapping: Option<Flapping>,
    congestion: Option<Congestion>,
    outages: Vec<Outage>,
    trace: Option<String>,
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
            diurnal: self.diurnal,
            flapping: self.flapping,
            congestion: self.congestion,
            outages: self.outages,
        }))
    }
}
