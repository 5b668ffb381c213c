//! Runs the table of decisions, `decisions.txt`, which explains its own format.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

/// Definitions by name.
pub(in crate::placement) type Definitions<'t> = BTreeMap<&'t str, &'t str>;

pub(in crate::placement) fn made(document: Value, parts: &str, definitions: &Definitions<'_>) -> Value {
    parts.split(" & ").fold(document, |document, part| {
        if let Some(parts) = definitions.get(part) {
            return made(document, parts, definitions);
        }
        match part {
            "-" => return document,
            "two_clouds" => return two_clouds(),
            "clusters" => return liqo::clusters(0),
            "clusters_full" => return liqo::clusters(4000),
            "data" => return data::fleet(),
            "data_full" => return data::full_edge(),
            _ => {}
        }
        if let Some(used) = part.strip_prefix("fleet ") {
            return fleet(used.parse().unwrap());
        }
        if let Some(element) = part.strip_prefix("-/") {
            let (list, at) = element.rsplit_once('/').unwrap();
            let mut document = document;
            let list = document.pointer_mut(&format!("/{list}")).and_then(Value::as_array_mut);
            list.unwrap().remove(at.parse().unwrap());
            return document;
        }
        let (name, value) = part
            .split_once('=')
            .unwrap_or_else(|| panic!("{part:?} is not defined"));
        match name {
            "claims" => with(document, "/spec/volumes", data::volumes(value)),
            _ if name.starts_with('/') => with(document, name, serde_json::from_str(value).unwrap()),
            _ => with(
                document,
                &format!("/metadata/annotations/slo.example.io~1{name}"),
                value.into(),
            ),
        }
    })
}

fn config(name: &str) -> Config {
    match name {
        "default" => Config::default(),
        "ungated" => ungated(),
        settings => Config::read(&serde_json::from_str(settings).unwrap()).unwrap(),
    }
}

/// Site and reason, and the warnings.
fn decided(fleet: &Value, pod: &Value, config: &Config, gated: Option<u64>) -> (String, String) {
    let snapshot = testkit::snapshot(fleet);
    let text = pod.to_string();
    let pod = Pod::from_json(&text).unwrap();
    let mut workload = pod.workload("shop".into(), &config.keys);
    if let Some(seconds) = gated {
        workload.gated_for = Some(Micros::from_secs(seconds));
        workload.gates = vec![(*config.keys.gate).into()];
    }
    let verdict = decide(&workload, &Room::of(&snapshot), config, NOW);
    let reason = verdict.reason.as_str();
    let outcome = verdict
        .site()
        .map_or(reason.to_owned(), |site| format!("{}: {reason}", site.name()));
    (outcome, verdict.warnings.join("\n"))
}

#[test]
fn decisions_match_the_table() {
    let (mut definitions, mut section, mut wrong) = (Definitions::new(), "", vec![]);
    for line in include_str!("decisions.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(head) = line.strip_prefix('[') {
            (section, _) = head.split_once(']').unwrap();
            continue;
        }
        let columns: Vec<_> = line.split(" | ").collect();
        let [fleets, pod, expected, ref rest @ ..] = columns[..] else {
            let (name, parts) = line.split_once(" = ").unwrap();
            definitions.insert(name, parts);
            continue;
        };
        let config = config(rest.first().unwrap_or(&section));
        let (pod, gated) = match pod.rsplit_once(" @") {
            Some((pod, seconds)) => (pod, Some(seconds.parse().unwrap())),
            None => (pod, None),
        };
        let pod = made(super::pod(json!({})), pod, &definitions);
        let (expected, warned) = expected.split_once(" ! ").unwrap_or((expected, ""));
        let (first, later) = expected.split_once(" -> ").unwrap_or((expected, ""));
        for fleet in fleets.split(" / ") {
            let fleet = made(Value::Null, fleet, &definitions);
            let (outcome, warnings) = decided(&fleet, &pod, &config, gated);
            if outcome != first || !warnings.contains(warned) {
                wrong.push(format!("{line}: {outcome}, {warnings:?}"));
            }
            if !later.is_empty() {
                let (outcome, _) = decided(&fleet, &pod, &config, Some(31));
                if outcome != if later == "=" { first } else { later } {
                    wrong.push(format!("{line}: {outcome} later"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
