//! What a simulation takes from a real cluster: its fleet.

// A test says what it expects by failing; clippy's own exception covers test functions, not their helpers.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use edgeward_core::config::Config;
use edgeward_core::document::Faults;
use edgeward_core::model::node::Node;
use edgeward_core::units::Moment;
use edgeward_core::wire::fleet_file;
use edgeward_lab::load::Load;
use edgeward_lab::outcome::Outcome;
use edgeward_lab::policy::Policy;
use edgeward_lab::run::{paths, run};
use edgeward_lab::scenario::{Fleet, Scenario, read_on};
use serde_json::{Value, json};

/// A fleet of the examples, as `edgeward fleet -o json` writes it after it was read.
fn dumped(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let document: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let now = Moment(0);
    fleet_file::write(&fleet_file::read(&document, &Config::default(), now).unwrap(), now)
}

/// Small pods of which each ends after 30 s.
fn document() -> Value {
    json!({
        "name": "on a real fleet", "durationSeconds": 120, "drainSeconds": 60,
        "workloads": [{
            "name": "report", "class": "batch", "deadlineMs": 60_000, "requests": {"cpu": "200m", "memory": "64Mi"},
            "serviceMs": 30_000, "jobs": {"poisson": {"perSecond": 0.2}},
        }],
    })
}

fn read(fleet: &Value, document: &Value) -> Result<Scenario, Vec<String>> {
    let fleet = Fleet {
        name: "fleet.yaml",
        document: fleet,
    };
    let read = read_on(fleet, document, &|_| Err("there are no files".into()));
    read.map_err(|Faults(faults)| faults.iter().map(ToString::to_string).collect())
}

fn outcome(scenario: &Scenario, policy: Policy) -> Outcome {
    let (load, paths) = (Load::new(scenario, 1), paths(scenario, 1));
    run(scenario, &load, &paths, 1, policy, &AtomicBool::new(false)).unwrap()
}

#[test]
fn what_is_used_of_a_dumped_fleet_stays_used() {
    let mut document = document();
    document["workloads"][0]["jobs"]["poisson"]["perSecond"] = 0.into();
    let scenario = read(&dumped("fleet-overloaded.yaml"), &document).unwrap();
    let nodes: Vec<Vec<&str>> = scenario
        .sites
        .iter()
        .map(|site| site.nodes.iter().map(|node| &*node.name).collect())
        .collect();
    assert_eq!(nodes, [vec!["edge-1", "edge-2"], vec!["cloud-virtual-node"]]);
    for policy in Policy::ALL {
        let outcome = outcome(&scenario, policy);
        // 9, 11 and 60 pods are on the nodes; 3950m and 3900m of the edge's 8 CPUs are used.
        assert_eq!((outcome.pods.created, outcome.pods.running), (80, 80), "{policy}");
        assert!((outcome.edge_utilisation - 7.85 / 8.0).abs() < 1e-9, "{policy}");
        assert_eq!(outcome.decisions, 0, "{policy}");
    }
}

/// The same pods, where the edge has room and where it has none.
#[test]
fn decisions_are_by_the_room_of_the_fleet() {
    for (fleet, expected) in [("fleet.yaml", 0.0), ("fleet-overloaded.yaml", 1.0)] {
        let scenario = read(&dumped(fleet), &document()).unwrap();
        for policy in [Policy::Edgeward, Policy::Clairvoyant, Policy::FirstDesign] {
            let outcome = outcome(&scenario, policy);
            assert_eq!(outcome.cloud_fraction(), Some(expected), "{policy}, {fleet}");
            let (attained, pods) = (outcome.attained(), outcome.pods);
            assert!(
                attained.asked > 15 && attained.met == attained.asked,
                "{policy}, {fleet}: {attained:?}"
            );
            let sum = pods.done + pods.running + pods.deleted + pods.pending + pods.held;
            assert_eq!(pods.created, sum, "{policy}, {fleet}");
        }
    }
}

/// One who may evict finds those whom the fleet says one may evict.
#[test]
fn preemption_frees_what_the_fleet_says_it_can() {
    let mut fleet = dumped("fleet-overloaded.yaml");
    fleet["nodes"][0]["usedByPriority"] = json!([{"priority": -5, "used": {"cpu": "1", "memory": "1Gi", "pods": 4}}]);
    let mut document = document();
    document["workloads"][0]["offloadAllowed"] = false.into();
    document["workloads"][0]["priority"] = 10.into();
    document["workloads"][0]["serviceMs"] = 300_000.into();
    let scenario = read(&fleet, &document).unwrap();
    let outcome = outcome(&scenario, Policy::EdgeOnly);
    // Four of 250m each; the others of the node, and those of the other one, are of no known priority.
    assert_eq!((outcome.preempted, outcome.pods.deleted), (4, 4));
}

#[test]
fn placeholders_are_headroom() {
    let mut fleet = dumped("fleet-overloaded.yaml");
    let held = json!({"cpu": "3", "memory": "1Gi", "pods": 3});
    fleet["nodes"][0]["usedByPriority"] = json!([{"priority": -5, "used": held}]);
    let cloud_fraction = |fleet: &Value| {
        let scenario = read(fleet, &document()).unwrap();
        outcome(&scenario, Policy::Edgeward).cloud_fraction().unwrap()
    };
    // All but those that find the WAN degraded, for which one is evicted.
    let all = cloud_fraction(&fleet);
    assert!(all > 0.8, "{all}");
    fleet["nodes"][0]["placeholders"] = json!([{"priority": -5, "graceSeconds": 0, "used": held}]);
    assert_eq!(cloud_fraction(&fleet), 0.0);
}

/// What a fleet file cannot know is the scenario's; what it knows, its own.
#[test]
fn cost_speed_and_wan_are_of_the_scenarios_site_of_that_name() {
    let fleet = dumped("fleet.yaml");
    let mut document = document();
    document["sites"] = json!([
        {"name": "cloud", "kind": "cloud", "speed": 2, "costPerCpuHour": 3, "wan": {"rttMs": 77},
         "nodes": [{"allocatable": {"cpu": 1}}]},
    ]);
    let scenario = read(&fleet, &document).unwrap();
    let cloud = &scenario.sites[1];
    assert_eq!(
        (cloud.speed.0, cloud.cost, cloud.definition.speed.0),
        (2_000, 3.0, 1_000)
    );
    let rtt = |scenario: &Scenario| {
        paths(scenario, 1)[1]
            .as_ref()
            .and_then(|path| path.rtt(Default::default()))
    };
    assert_eq!(rtt(&scenario).map(|rtt| rtt.0), Some(77_000));
    let cpu = |node: &Node| (node.allocatable.cpu.0, node.used.cpu.0, node.pods);
    assert_eq!(cloud.nodes.iter().map(cpu).collect::<Vec<_>>(), [(64_000, 0, 0)]);
    let alone = read(&fleet, &self::document()).unwrap();
    assert_eq!(rtt(&alone).map(|rtt| rtt.0), Some(22_000));
}

#[test]
fn faults_of_both_files_are_named() {
    let faults = |fleet: &Value, document: &Value| read(fleet, document).map(|_| ()).unwrap_err();
    let mut fleet = dumped("fleet.yaml");
    let mut document = document();
    document["sites"] = json!([{"name": "clod", "wan": {"rttMs": 77}}, {"name": "edge", "wan": {"rttMs": 1}}]);
    assert_eq!(
        faults(&fleet, &document),
        [
            "sites[0].name: \"clod\" is no site of fleet.yaml, which has edge, cloud",
            "sites[1].wan: is not for the edge site, which no WAN leads to",
        ]
    );
    fleet["sites"][1].as_object_mut().unwrap().remove("wan");
    assert_eq!(
        faults(&fleet, &self::document()),
        ["fleet.yaml: sites: states no RTT of \"cloud\", and no site of that name in the scenario a wan"]
    );
    fleet["nodes"][0]["allocatable"]["cpu"] = "many".into();
    let [fault] = &faults(&fleet, &self::document())[..] else {
        panic!()
    };
    assert!(
        fault.starts_with("fleet.yaml: nodes[0].allocatable.cpu: `many` is not a quantity"),
        "{fault}"
    );
}
