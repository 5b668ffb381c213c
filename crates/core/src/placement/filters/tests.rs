//! What each filter says of one site. Each filter's file has its table.

use serde_json::Value;

use super::*;
use crate::testkit::{self, NOW};
use crate::wire::pod::Pod;

/// What the filter says of the site: the refusal's code and numbers, or nothing.
pub(super) fn said(filter: Filter, site: &str, fleet: &Value, pod: &Value) -> String {
    let config = Config::default();
    let snapshot = testkit::snapshot(fleet);
    let text = pod.to_string();
    let workload = Pod::from_json(&text).unwrap().workload("shop".into(), &config.keys);
    let workload = crate::placement::located::located(&workload, &snapshot);
    let room = Room::of(&snapshot);
    let case = Case {
        workload: &workload,
        intent: workload.intent.as_ref().unwrap(),
        room: &room,
        homes: room.homes(&workload),
        config: &config,
        now: NOW,
        profile: None,
    };
    let site = snapshot.sites.iter().find(|found| found.name() == site).unwrap();
    match filter(&case, &unfiltered(&case, site, Permille::ONE)) {
        None => String::new(),
        Some(refusal) if refusal.numbers.is_empty() => refusal.code.as_str().to_owned(),
        Some(refusal) => format!("{} {}", refusal.code.as_str(), Value::from(refusal.numbers)),
    }
}
