use serde_json::{Value, json};

use super::*;
use crate::scenario::Scenario;

fn document() -> Value {
    json!({
        "name": "small",
        "durationSeconds": 60,
        "sites": [
            {"name": "edge", "kind": "edge", "nodes": [{"count": 2, "allocatable": {"cpu": 2, "memory": "4Gi"}}]},
            {"name": "cloud", "kind": "cloud", "wan": {"rttMs": 20},
             "nodes": [{"name": "virtual", "allocatable": {"cpu": "64", "memory": "256Gi", "pods": 500}}]},
        ],
        "workloads": [{
            "name": "camera", "class": "latency", "latencyTargetMs": 200, "requests": {"cpu": "200m"},
            "serviceMs": {"exponential": {"meanMs": 100}}, "jobs": {"poisson": {"perSecond": 1.5}},
        }],
    })
}

fn scenario(document: &Value) -> Scenario {
    read(document, &|name| Err(format!("{name} is not there"))).unwrap_or_else(|faults| panic!("{faults}"))
}

/// The faults of the document with these values at these places.
fn faults(changes: &[(&str, Value)]) -> Vec<String> {
    let mut document = document();
    for (pointer, value) in changes {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = document.pointer_mut(parent).unwrap();
        match (parent, value) {
            (Value::Object(map), Value::Null) => drop(map.remove(name)),
            (Value::Object(map), value) => drop(map.insert(name.to_owned(), value.clone())),
            (Value::Array(list), value) => list.push(value.clone()),
            _ => panic!("{pointer}"),
        }
    }
    match read(&document, &|name| Err(format!("{name} is not there"))) {
        Ok(_) => vec![],
        Err(Faults(faults)) => faults.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn nodes_have_the_labels_and_taints_of_their_site() {
    let scenario = scenario(&document());
    let nodes: Vec<_> = scenario.sites.iter().flat_map(|site| &site.nodes).collect();
    let names: Vec<_> = nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["edge-0", "edge-1", "virtual"]);
    assert_eq!(nodes[0].labels.get("node.role/edge"), Some("true"));
    assert_eq!((nodes[0].allocatable.cpu.0, nodes[0].slots), (2_000, 110));
    assert_eq!(nodes[2].labels.get("node.role/cloud"), Some("true"));
    assert_eq!((nodes[2].taints.len(), nodes[2].slots), (1, 500));
}

#[test]
fn several_clouds_are_told_apart() {
    let mut document = document();
    let second = json!({"name": "another", "kind": "cloud", "wan": {"rttMs": 50},
                        "nodes": [{"allocatable": {"cpu": "8", "memory": "8Gi"}}]});
    document["sites"].as_array_mut().unwrap().push(second);
    let scenario = scenario(&document);
    let names: Vec<_> = scenario.sites.iter().map(|site| &*site.definition.name).collect();
    assert_eq!(names, ["edge", "another", "cloud"], "as the configuration sorts them");
    let label = |site: usize| scenario.sites[site].nodes[0].labels.get("topology.edgeward.io/site");
    assert_eq!((label(0), label(1), label(2)), (None, Some("another"), Some("cloud")));
}

#[test]
fn every_fault_is_named_with_its_place() {
    for (pointer, value, expected) in [
        ("/durationSeconds", Value::Null, "durationSeconds: is missing"),
        (
            "/duration",
            json!(5),
            "duration: is not a field here, perhaps durationSeconds is meant; there are name, description, warmupSeconds, \
             durationSeconds, drainSeconds, seeds, replicas, delays, edgeward, sites, workloads, failures, profile",
        ),
        (
            "/warmupSeconds",
            json!(60),
            "warmupSeconds: is not before durationSeconds",
        ),
        (
            "/edgeward",
            json!({"sites": []}),
            "edgeward: sites is not a setting here: it is stated at sites",
        ),
        (
            "/edgeward",
            json!({"rttThresholdMs": "x"}),
            "edgeward.rttThresholdMs: \"x\" is not a number from 0.001 to 60000 with at most three decimals",
        ),
        (
            "/sites/0/wan",
            json!({"rttMs": 5}),
            "sites[0].wan: is not for the edge site, which no WAN leads to",
        ),
        ("/sites/1/wan", Value::Null, "sites[1].wan: is missing"),
        (
            "/sites/1/name",
            json!("edge"),
            "sites[1]: the name \"edge\" is taken by an earlier site",
        ),
        (
            "/sites/0/nodes/0/allocatable/cpu",
            json!("many"),
            "sites[0].nodes[0].allocatable.cpu: `many` is not a quantity (a number such as 2, 0.5, 500m, 1.5Gi or 1e3)",
        ),
        (
            "/workloads/0/class",
            json!("fast"),
            "workloads[0].class: \"fast\" is not one of latency, throughput, batch",
        ),
        (
            "/workloads/0/class",
            Value::Null,
            "workloads[0].latencyTargetMs: is stated without a class",
        ),
        (
            "/workloads/0/name",
            json!("Camera 1"),
            "workloads[0].name: \"Camera 1\" is not the name of a namespace: lower-case letters, digits and `-`, at most 63",
        ),
        (
            "/workloads/0/jobs",
            Value::Null,
            "workloads[0]: states not exactly one of jobs and deployment",
        ),
        (
            "/workloads/0/serviceMs",
            json!({"uniform": {"fromMs": 5, "toMs": 4}}),
            "workloads[0].serviceMs.uniform.toMs: is less than fromMs",
        ),
        (
            "/workloads/0/serviceMs",
            json!({}),
            "workloads[0].serviceMs: states not exactly one of exponential, logNormal, uniform, pareto",
        ),
        (
            "/workloads/0/jobs",
            json!({"trace": "a.csv"}),
            "workloads[0].jobs.trace: a.csv: a.csv is not there",
        ),
        (
            "/failures",
            json!([{"atSeconds": 5, "lastingSeconds": 5, "nodes": ["edge-9"]}]),
            "failures[0].nodes[0]: \"edge-9\" is not a node",
        ),
        (
            "/failures",
            json!([{"atSeconds": 5, "lastingSeconds": 5}]),
            "failures[0]: states not exactly one of nodes and site",
        ),
    ] {
        assert_eq!(faults(&[(pointer, value)]), [expected], "{pointer}");
    }
    let both = faults(&[("/sites/1/wan/trace", json!("wan.csv"))]);
    assert_eq!(
        both,
        [
            "sites[1].wan.trace: stands beside numbers: a WAN is either measured or described",
            "sites[1].wan.trace: wan.csv: wan.csv is not there",
        ]
    );
    let many = faults(&[("/replicas", json!(0)), ("/seeds", json!("x"))]);
    assert_eq!(many.len(), 2, "{many:?}");
}
