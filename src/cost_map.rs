//! Documents of the cost map: a table, JSON, ALTO, and the topologies of other schedulers.

pub mod alto;
mod topologies;

use clap::ValueEnum;
use edgeward_decision::document::without_nulls;
use edgeward_decision::model::cost_map::{Figure, Route, watts};
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::placement::patch::timestamp;
use edgeward_kube::units::{Micros, Now};
use serde_json::{Value, json};

/// Format of a cost map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// For programs (docs/reference/output.md).
    Json,
    /// The directory, the network map and the cost maps of RFC 7285.
    Alto,
    /// A NetworkTopology of the network-aware plugins of kube-scheduler.
    Diktyo,
    /// A NetworkTopology of CODECO's QoS scheduler.
    Codeco,
}

/// The column names of [`row`].
pub const HEADER: &str = "SOURCE,TARGET,RTT,JITTER,LOSS,BANDWIDTH,POWER,RTT FROM";

/// The document in this format, except for a table. Measurements of the WAN count for `ttl`.
pub fn document(format: Format, snapshot: &Snapshot, ttl: Micros, now: Now) -> Value {
    let routes = snapshot.cost_map(ttl, now.moment);
    match format {
        Format::Table | Format::Json => {
            json!({ "links": routes.iter().map(|route| entry(route, now)).collect::<Vec<_>>() })
        }
        Format::Alto => alto::documents(snapshot, &routes),
        Format::Diktyo => topologies::diktyo(&routes),
        Format::Codeco => topologies::codeco(snapshot, &routes),
    }
}

fn entry(route: &Route<'_>, now: Now) -> Value {
    without_nulls(json!({
        "source": route.source,
        "target": route.target,
        "rttMs": value(route.rtt),
        "jitterMs": value(route.jitter),
        "lossPct": value(route.loss),
        "bandwidth": route.bandwidth.map(|(bandwidth, _)| bandwidth),
        "watts": route.microwatts.map(watts),
        "from": {
            "rtt": origin(route.rtt),
            "jitter": origin(route.jitter),
            "loss": origin(route.loss),
            "bandwidth": origin(route.bandwidth),
        },
        "asOf": times(route, now),
    }))
}

fn value<T: Into<Value>>(figure: Figure<T>) -> Option<Value> {
    figure.map(|(value, _)| value.into())
}

fn origin<T>(figure: Figure<T>) -> Option<&'static str> {
    figure.map(|(_, origin)| origin.source.as_str())
}

/// When the figures were measured; `None` if none was.
fn times(route: &Route<'_>, now: Now) -> Option<Value> {
    let times = without_nulls(json!({
        "rtt": as_of(route.rtt, now),
        "jitter": as_of(route.jitter, now),
        "loss": as_of(route.loss, now),
        "bandwidth": as_of(route.bandwidth, now),
    }));
    Some(times).filter(|times| times.as_object().is_some_and(|times| !times.is_empty()))
}

/// When a figure was measured, RFC 3339.
fn as_of<T>(figure: Figure<T>, now: Now) -> Option<String> {
    let as_of = figure?.1.as_of?;
    Some(timestamp(now.at(as_of).wall))
}

/// The cells of a route for people.
pub fn row(route: &Route<'_>) -> [String; 8] {
    let known = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let ms = |figure: Figure<Micros>| known(figure.map(|(time, _)| format!("{time} ms")));
    [
        route.source.to_owned(),
        route.target.to_owned(),
        ms(route.rtt),
        ms(route.jitter),
        known(value(route.loss).map(|loss| format!("{loss} %"))),
        known(route.bandwidth.map(|(bandwidth, _)| bandwidth.into())),
        known(route.microwatts.map(|power| format!("{} W", watts(power)))),
        known(origin(route.rtt).map(ToOwned::to_owned)),
    ]
}

#[cfg(test)]
mod tests;
