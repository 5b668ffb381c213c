//! What tests decide on, those of other crates too: a time and a fleet. And, for properties of this crate, generated ones.

#[cfg(test)]
mod generated;

use serde_json::Value;

use crate::config::Config;
use crate::model::snapshot::Snapshot;
use crate::units::{Moment, Now};
use crate::wire::fleet_file;

#[cfg(test)]
pub(crate) use generated::{fleet, huge_pod, pod};

/// The time at which tests decide: midnight, a thousand seconds after the process started.
pub const NOW: Now = Now {
    moment: Moment(1_000_000_000),
    wall: jiff::Timestamp::constant(1_767_225_600, 0),
};

/// The snapshot of a fleet file.
#[allow(clippy::panic)]
pub fn snapshot(fleet: &Value) -> Snapshot {
    fleet_file::read(fleet, &Config::default(), NOW.moment).unwrap_or_else(|faults| panic!("{faults}"))
}

#[cfg(test)]
mod tests;
