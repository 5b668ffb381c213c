//! The WAN of a scenario.

use crate::document::Field;
use edgeward_core::units::Micros;

use super::Load;
use super::numbers::{distribution, number, percent, seconds, table};
use crate::scenario::{Wan, WanModel, tables};

pub(super) fn wan(field: &Field<'_>, load: Load<'_>) -> Option<Wan> {
    let [rtt, loss, diurnal, flapping, congestion, outages, trace] = field.object([
        "rttMs",
        "lossPct",
        "diurnal",
        "flapping",
        "congestion",
        "outages",
        "trace",
    ])?;
    if trace.is_present() {
        let others = [&rtt, &loss, &diurnal, &flapping, &congestion, &outages];
        if others.iter().any(|field| field.is_present()) {
            trace.fault("stands beside numbers: a WAN is either measured or described".into());
        }
        return table(&trace, load, tables::wan).map(Wan::Trace);
    }
    let diurnal = diurnal.is_present().then(|| {
        let [added, period, peak] = diurnal.object(["addedMs", "periodSeconds", "peakAtSeconds"])?;
        let period = seconds(&period, 1).unwrap_or(Micros::from_secs(86_400));
        Some((
            number(&added.required(), 0, 60_000_000)?,
            period,
            seconds(&peak, 0).unwrap_or_default(),
        ))
    });
    let flapping = flapping.is_present().then(|| {
        let [every, down] = flapping.object(["everySeconds", "downSeconds"])?;
        Some((seconds(&every.required(), 1)?, seconds(&down.required(), 1)?))
    });
    let congestion = congestion.is_present().then(|| {
        let [every, lasting, added, loss] =
            congestion.object(["everySeconds", "lastingSeconds", "addedMs", "lossPct"])?;
        let added = number(&added, 0, 60_000_000).unwrap_or(0.0);
        let loss = percent(&loss).unwrap_or(0.0);
        Some((
            seconds(&every.required(), 1)?,
            seconds(&lasting.required(), 1)?,
            added,
            loss,
        ))
    });
    let outages = outages.list().unwrap_or_default();
    let outages = outages.iter().map(|field| {
        let [at, lasting] = field.object(["atSeconds", "lastingSeconds"])?;
        Some((seconds(&at.required(), 0)?, seconds(&lasting.required(), 1)?))
    });
    Some(Wan::Model(WanModel {
        rtt: distribution(&rtt.required())?,
        loss: percent(&loss).unwrap_or(0.0),
        diurnal: diurnal.flatten(),
        flapping: flapping.flatten(),
        congestion: congestion.flatten(),
        outages: outages.collect::<Option<_>>()?,
    }))
}
