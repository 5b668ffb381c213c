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
    assert_eq!((nodes[2].state.taints.len(), nodes[2].slots), (1, 500));
}

#[test]
fn several_clouds_get_site_labels() {
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

const FAULTS: &str = r#"/durationSeconds = null -> missing field `durationSeconds`
/duration = 5 -> duration: unknown field `duration`, expected one of `name`, `description`, `warmupSeconds`, `durationSeconds`
/warmupSeconds = 60 -> warmupSeconds: is not before durationSeconds
/replicas = 0 -> replicas: 0 is not a whole number from 1 to 9
/edgeward = {"sites": []} -> edgeward: sites is not a setting here: use the field sites
/edgeward = {"rttThresholdMs": "x"} -> edgeward.rttThresholdMs: 
/sites/0/wan = {"rttMs": 5} -> sites[0].wan: is not for the edge site, which no WAN leads to
/sites/1/wan = null -> sites[1].wan: is missing
/sites/1/name = "edge" -> sites[1]: the name "edge" is taken by an earlier site
/sites/0/nodes/0/allocatable/cpu = "many" -> sites[0].nodes[0].allocatable.cpu: `many` is not a quantity
/workloads/0/class = "fast" -> workloads[0].class: 
/workloads/0/class = null -> workloads[0].latencyTargetMs: is stated without a class
/workloads/0/name = "Camera 1" -> workloads[0].name: "Camera 1" is not the name of a namespace
/workloads/0/namespace = "a/b" -> workloads[0].namespace: "a/b" is not the name of a namespace
/workloads/1 = {"name": "a", "cronJob": true, "requests": {}, "serviceMs": 1, "deployment": {"replicas": 1}} -> workloads[1].cronJob: is stated without jobs
/workloads/0/jobs = null -> workloads[0].jobs: needs exactly one of jobs and deployment
/workloads/0/serviceMs = {"uniform": {"fromMs": 5, "toMs": 4}} -> workloads[0].serviceMs: toMs is less than fromMs
/workloads/0/serviceMs = {} -> workloads[0].serviceMs: 
/workloads/0/jobs = {"trace": "a.csv"} -> workloads[0].jobs.trace: a.csv: a.csv is not there
/failures = [{"atSeconds": 5, "lastingSeconds": 5, "nodes": ["edge-9"]}] -> failures[0].nodes[0]: "edge-9" is not a node
/failures = [{"atSeconds": 5, "lastingSeconds": 5}] -> failures[0].nodes: needs exactly one of nodes and site"#;

#[test]
fn scenario_faults_name_their_path() {
    for row in FAULTS.lines() {
        let (pointer, rest) = row.split_once(" = ").unwrap();
        let (value, expected) = rest.split_once(" -> ").unwrap();
        let value = serde_json::from_str(value).unwrap();
        let found = faults(&[(pointer, value)]).join("\n");
        assert!(found.starts_with(expected) && !found.contains('\n'), "{row}: {found}");
    }
    let both = faults(&[("/sites/1/wan/trace", json!("wan.csv"))]);
    assert_eq!(
        both,
        [
            "sites[1].wan.trace: conflicts with numbers: a WAN is either measured or described",
            "sites[1].wan.trace: wan.csv: wan.csv is not there",
        ]
    );
}
