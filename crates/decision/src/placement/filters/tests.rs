//! Runs filters.txt, a table of each filter's answer for one site.

use serde_json::{Map, Value, json};

use super::*;
use crate::placement::decide::tests::decisions::{Definitions, made};
use crate::placement::decide::tests::{fleet, pod};
use crate::pod::Pod;
use crate::testkit;
use crate::testkit::NOW;

/// The filter's answer for the site: the refusal's code and numbers, or an empty text.
fn said(filter: Filter, site: &str, fleet: &Value, pod: &Value) -> String {
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
        elsewhere: Elsewhere::default(),
        peers: room.peers(&workload),
        config: &config,
        now: NOW,
        profile: None,
    };
    let site = snapshot.sites.iter().find(|found| found.name() == site).unwrap();
    match filter(&case, &unfiltered(&case, site)) {
        None => String::new(),
        Some(refusal) if refusal.numbers.is_empty() => refusal.code.as_str().to_owned(),
        Some(refusal) => format!("{} {}", refusal.code.as_str(), Value::from(refusal.numbers)),
    }
}

fn filter(name: &str) -> Filter {
    match name {
        "not_in_sites" => sites::not_in_sites,
        "not_offloaded" => liqo::not_offloaded,
        "no_usable_node" => nodes::no_usable_node,
        "not_offloadable" => leaving::not_offloadable,
        "missing_trait" => traits::missing_trait,
        "bad_link" => wan::bad_link,
        "too_far" => wan::too_far,
        "not_in_neighbourhood" => sites::not_in_neighbourhood,
        "bandwidth_unknown" => time::bandwidth_unknown,
        "no_room" => room::no_room,
        "no_bandwidth" => room::no_bandwidth,
        "closed_to_controller" => room::closed_to_controller,
        "full_behind_nodes" => room::full_behind_nodes,
        "beyond_report" => room::beyond_report,
        "unreported_trait" => traits::unreported_trait,
        "deadline_missed" => time::deadline_missed,
        "latency_target_missed" => time::latency_target_missed,
        other => panic!("{other}"),
    }
}

#[test]
fn filter_refusals_match_the_table() {
    let (mut definitions, mut section, mut wrong) = (Definitions::new(), "", vec![]);
    let lines = include_str!("filters.txt").lines();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            continue;
        }
        let columns: Vec<_> = line.split(" | ").collect();
        let [site, fleet, pod_parts, expected] = columns[..] else {
            let (name, parts) = line.split_once(" = ").unwrap();
            definitions.insert(name, parts);
            continue;
        };
        let fleet = made(Value::Null, fleet, &definitions);
        let pod = made(pod(json!({})), pod_parts, &definitions);
        let found = said(filter(section), site, &fleet, &pod);
        let expected = if expected == "ok" { "" } else { expected };
        if found != expected {
            wrong.push(format!("{section}: {line}: {found:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn refusal_names_at_most_16_resources() {
    let gpus: Map<String, Value> = (0..100).map(|i| (format!("example.com/gpu-{i}"), json!("1"))).collect();
    let (mut fleet, mut greedy) = (fleet(0), pod(json!({})));
    greedy["spec"]["containers"][0]["resources"]["requests"] = gpus.clone().into();
    let allocatable = fleet["nodes"][0]["allocatable"].as_object_mut().unwrap();
    allocatable.extend(gpus.clone());
    fleet["nodes"][0]["used"] = gpus.into();
    let refusal = said(room::no_room, "edge", &fleet, &greedy);
    // Named resources count in the request and in the free amounts.
    let named = 2 * (room::MAX_NAMED_RESOURCES - 1);
    assert_eq!(refusal.matches("example.com/gpu-").count(), named, "{refusal}");
}
