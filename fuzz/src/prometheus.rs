//! Answers of a Prometheus server.

use std::collections::BTreeSet;
use std::sync::Arc;

use edgeward::sources::prometheus::{Outcome, read};
use edgeward_core::cluster::telemetry::{Measurement, Telemetry};
use edgeward_core::config::{Config, Input, Query};
use edgeward_core::engine::Change;
use edgeward_core::testkit::NOW;
use edgeward_core::units::{Bytes, Micros, Millicores, Permille};
use http::StatusCode;
use serde_json::Value;

use super::documents;
use super::watched::{self, Watched};

const STALENESS: Micros = Micros::from_secs(60);

/// The body, as the answer to every question.
///
/// # Panics
/// A value is used that the answer does not have, or not once, or that is stale or beyond what can be; or a measurement gives
/// room.
pub fn check(data: &[u8]) {
    let config = Arc::new(Config::default());
    let document = documents::read(data);
    let mut telemetry = Telemetry::new(vec![]);
    for input in [
        Input::EdgeFreeCpu,
        Input::EdgeFreeMemory,
        Input::Processing,
        Input::WanRtt,
        Input::WanLoss,
    ] {
        let query = Query {
            input,
            promql: String::new(),
            period: Micros::from_secs(15),
            timeout: Micros::from_secs(1),
            staleness: STALENESS,
        };
        for status in [StatusCode::BAD_REQUEST, StatusCode::SERVICE_UNAVAILABLE] {
            let (readings, outcome) = read(&query, status, data, &config.sites, NOW.wall);
            assert!(readings.is_empty() && outcome.is_err(), "{status}");
        }
        let (readings, outcome) = read(&query, StatusCode::OK, data, &config.sites, NOW.wall);
        let series = document.as_ref().and_then(|answer| answer["data"]["result"].as_array());
        let series = series.map_or(&[][..], Vec::as_slice);
        match &outcome {
            Ok(()) => assert!(
                !readings.is_empty() && readings.len() == series.len(),
                "every series is used"
            ),
            Err(failure) => {
                assert!(failure.outcome != Outcome::Ok && failure.detail.chars().count() <= 301);
                assert!(
                    readings.is_empty() || readings.len() < series.len(),
                    "a series is not used"
                );
            }
        }
        let mut places = BTreeSet::new();
        for reading in &readings {
            let measurement = &reading.measurement;
            assert!(reading.age <= STALENESS, "{reading:?}");
            assert!(
                places.insert(place(measurement)),
                "two series for the place of {measurement:?}"
            );
            assert!(
                series.iter().any(|series| says(series, input, measurement)),
                "{measurement:?}"
            );
        }
        for reading in readings {
            telemetry.record(reading.measurement, NOW.moment, NOW.moment.after(STALENESS), &config);
        }
    }
    assert_takes_room_alone(&config, telemetry);
}

/// Site and class of a measurement.
fn place(measurement: &Measurement) -> String {
    match measurement {
        Measurement::EdgeFreeCpu(_) | Measurement::EdgeFreeMemory(_) => String::new(),
        Measurement::Processing(site, class, _) => format!("{site} {}", class.as_str()),
        Measurement::WanRtt(site, _) | Measurement::WanLoss(site, _) => site.clone(),
    }
}

/// Whether the series is about the place of this measurement, and its number is this one, rounded to the worse side.
fn says(series: &Value, input: Input, measurement: &Measurement) -> bool {
    let is_site = |site: &str| series["metric"]["site"] == site;
    let Some(number) = series["value"][1]
        .as_str()
        .and_then(|number| number.parse::<f64>().ok())
    else {
        return false;
    };
    let is = |most: f64, found: f64, unit: f64, is_up: bool| {
        let worse = if is_up {
            found - number * unit
        } else {
            number * unit - found
        };
        // The last digits of a binary number.
        let dust = 2e-3 + (number * unit).abs() * 1e-12;
        (0.0..=most).contains(&number) && (-dust..1.0 + dust).contains(&worse)
    };
    match (input, measurement) {
        (Input::EdgeFreeCpu, Measurement::EdgeFreeCpu(Millicores(cpu))) => is(1e9, *cpu as f64, 1e3, false),
        (Input::EdgeFreeMemory, Measurement::EdgeFreeMemory(Bytes(bytes))) => is(9e15, *bytes as f64, 1.0, false),
        (Input::Processing, Measurement::Processing(site, class, Micros(us))) => {
            let is_place = is_site(site) && series["metric"]["class"] == class.as_str();
            is_place && *us > 0 && is(86_400.0, *us as f64, 1e6, true)
        }
        (Input::WanRtt, Measurement::WanRtt(site, Micros(us))) => is_site(site) && is(60.0, *us as f64, 1e6, true),
        (Input::WanLoss, Measurement::WanLoss(site, Permille(loss))) => {
            is_site(site) && is(1.0, f64::from(*loss), 1e3, true)
        }
        _ => false,
    }
}

/// A measurement only ever takes room away.
fn assert_takes_room_alone(config: &Arc<Config>, telemetry: Telemetry) {
    let mut watched = Watched::listed(config, watched::nodes(), vec![]);
    let (nodes, before) = (watched.nodes(), watched.snapshot());
    watched.apply(&Change::Telemetry(Box::new(telemetry)));
    assert_eq!(watched.nodes(), nodes);
    for (site, before) in watched.snapshot().sites.iter().zip(&before.sites) {
        assert!(!site.free.has_more_than(&before.free), "{:?}", site.free);
    }
}
