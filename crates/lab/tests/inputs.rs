//! Inputs of a simulation from a real cluster: its fleet file, and the log of a running edgeward.

// Failures of tests panic. Clippy exempts test functions only, not their helpers.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::{env, fs};

use edgeward_decision::config::Config;
use edgeward_decision::document::Faults;
use edgeward_decision::fleet_file;
use edgeward_kube::node::Node;
use edgeward_kube::units::Moment;
use edgeward_lab::load::Load;
use edgeward_lab::outcome::Outcome;
use edgeward_lab::policy::Policy;
use edgeward_lab::run::{paths, run};
use edgeward_lab::scenario::{Fleet, Scenario, read_on};
use serde_json::{Value, json};

/// Returns the path of a file in the checkout of the running test. Several checkouts may share the compiled test.
fn file(path: &str) -> PathBuf {
    Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap())
        .join("../..")
        .join(path)
}

/// Reads an example fleet and returns it in the format of `edgeward fleet -o json`.
fn dumped(name: &str) -> Value {
    let path = file("examples").join(name);
    let document: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let now = Moment(0);
    fleet_file::write(&fleet_file::read(&document, &Config::default(), now).unwrap(), now)
}

/// A scenario of small pods that end after 30 s.
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
fn used_room_of_dumped_fleet_stays_used() {
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
        // The nodes hold 9, 11 and 60 pods. The edge uses 3950m and 3900m of its 8 CPUs.
        assert_eq!((outcome.pods.created, outcome.pods.running), (80, 80), "{policy}");
        assert!((outcome.edge_utilisation - 7.85 / 8.0).abs() < 1e-9, "{policy}");
        assert_eq!(outcome.decisions, 0, "{policy}");
    }
}

/// Creates equal pods on an edge with room and on a full edge.
#[test]
fn fleet_room_decides_between_edge_and_cloud() {
    for (fleet, expected) in [("fleet.yaml", 0.0), ("fleet-overloaded.yaml", 1.0)] {
        let scenario = read(&dumped(fleet), &document()).unwrap();
        for policy in [Policy::Edgeward, Policy::Clairvoyant] {
            let outcome = outcome(&scenario, policy);
            assert_eq!(outcome.cloud_fraction(), Some(expected), "{policy}, {fleet}");
            let (attained, pods) = (outcome.attained(), outcome.pods);
            assert!(
                attained.asked > 15 && attained.met == attained.asked,
                "{policy}, {fleet}: {attained:?}"
            );
            let sum = pods.done + pods.running + pods.deleted + pods.pending + pods.gated;
            assert_eq!(pods.created, sum, "{policy}, {fleet}");
        }
    }
}

/// Pods that may preempt find the victims that the fleet file states.
#[test]
fn preemption_evicts_victims_stated_in_fleet_file() {
    let mut fleet = dumped("fleet-overloaded.yaml");
    fleet["nodes"][0]["usedByPriority"] = json!([{"priority": -5, "used": {"cpu": "1", "memory": "1Gi", "pods": 4}}]);
    let mut document = document();
    document["workloads"][0]["offloadAllowed"] = false.into();
    document["workloads"][0]["priority"] = 10.into();
    document["workloads"][0]["serviceMs"] = 300_000.into();
    let scenario = read(&fleet, &document).unwrap();
    let outcome = outcome(&scenario, Policy::EdgeOnly);
    // Four victims of 250m each. The priority of the other pods, on both nodes, is unknown.
    assert_eq!((outcome.preempted, outcome.pods.deleted), (4, 4));
}

#[test]
fn placeholders_are_headroom() {
    let mut fleet = dumped("fleet-overloaded.yaml");
    let gated = json!({"cpu": "3", "memory": "1Gi", "pods": 3});
    fleet["nodes"][0]["usedByPriority"] = json!([{"priority": -5, "used": gated}]);
    let cloud_fraction = |fleet: &Value| {
        let scenario = read(fleet, &document()).unwrap();
        outcome(&scenario, Policy::Edgeward).cloud_fraction().unwrap()
    };
    // All pods go to the cloud, unless the WAN is degraded. Then a pod is evicted instead.
    let all = cloud_fraction(&fleet);
    assert!(all > 0.8, "{all}");
    fleet["nodes"][0]["placeholders"] = json!([{"priority": -5, "graceSeconds": 0, "used": gated}]);
    assert_eq!(cloud_fraction(&fleet), 0.0);
}

/// Values that a fleet file cannot hold come from the scenario; all others come from the fleet file.
#[test]
fn scenario_site_adds_cost_speed_and_wan_to_fleet() {
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
    let cpu = |node: &Node| (node.allocatable.cpu.0, node.charges.used.cpu.0, node.charges.pods);
    assert_eq!(cloud.nodes.iter().map(cpu).collect::<Vec<_>>(), [(64_000, 0, 0)]);
    let alone = read(&fleet, &self::document()).unwrap();
    assert_eq!(rtt(&alone).map(|rtt| rtt.0), Some(22_000));
}

#[test]
fn fleet_and_scenario_faults_are_listed() {
    let faults = |fleet: &Value, document: &Value| read(fleet, document).map(|_| ()).unwrap_err();
    let mut fleet = dumped("fleet.yaml");
    let mut document = document();
    document["sites"] = json!([{"name": "clod", "wan": {"rttMs": 77}}, {"name": "edge", "wan": {"rttMs": 1}}]);
    assert_eq!(
        faults(&fleet, &document),
        [
            "sites[0].name: \"clod\" is not a site of fleet.yaml, which has edge, cloud",
            "sites[1].wan: is not for the edge site, which no WAN leads to",
        ]
    );
    fleet["sites"][1].as_object_mut().unwrap().remove("wan");
    assert_eq!(
        faults(&fleet, &self::document()),
        ["fleet.yaml: sites: states no RTT of \"cloud\", and the scenario states no wan for that site"]
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

/// The log of `edgeward serve` about these pods, as recorded by a test of the program: two pods of a service, three
/// pods each of two Jobs, one pod without a controller, a dry run, and a pod that passes through.
fn log() -> String {
    fs::read_to_string(file("tests/golden/log/decided.jsonl")).unwrap()
}

fn replayed(workloads: &Value, log: &str) -> Result<Scenario, String> {
    let mut document = document();
    document["workloads"] = workloads.clone();
    read(&dumped("fleet.yaml"), &document).unwrap().replaying(log)
}

/// Namespace, class, CPU (millicores), creation time (s) and service time (ms) of each pod.
fn tasks(scenario: &Scenario) -> Vec<(String, Option<&'static str>, i64, f64, f64)> {
    let load = Load::new(scenario, 1);
    let task = |task: &edgeward_lab::load::Task| {
        let workload = &scenario.workloads[task.workload];
        let class = workload.slo.map(|slo| slo.class.as_str());
        let at = task.at.as_millis_f64() / 1e3;
        (
            workload.name.clone(),
            class,
            workload.request.cpu.0,
            at,
            task.service.as_millis_f64(),
        )
    };
    load.tasks.iter().map(task).collect()
}

#[test]
fn log_replay_creates_logged_pods() {
    let workloads = json!([{
        "name": "reports", "requests": {"cpu": "1m"}, "serviceMs": 4_000,
        "jobs": {"poisson": {"perSecond": 100}},
    }]);
    let scenario = replayed(&workloads, &log()).unwrap();
    let found = tasks(&scenario);
    let expected = [
        ("shop", "latency", 200, 0.0, 120.0),
        ("shop", "latency", 200, 1.0, 120.0),
        ("reports", "batch", 1_500, 2.0, 4_000.0),
        ("reports", "batch", 1_500, 3.0, 4_000.0),
        ("reports", "batch", 1_500, 4.0, 4_000.0),
        ("reports", "batch", 1_500, 5.0, 4_000.0),
        ("reports", "batch", 1_500, 6.0, 4_000.0),
        ("reports", "batch", 1_500, 7.0, 4_000.0),
        ("alone", "throughput", 0, 8.0, 50.0),
    ];
    let expected = expected.map(|(name, class, cpu, at, service)| (name.to_owned(), Some(class), cpu, at, service));
    assert_eq!(found, expected);
    let jobs = Load::new(&scenario, 1)
        .tasks
        .iter()
        .map(|task| task.job)
        .collect::<Vec<_>>();
    assert_eq!(
        jobs.iter().collect::<BTreeSet<_>>().len(),
        4,
        "rs-1, job-1, job-2, and one alone: {jobs:?}"
    );
    assert!(jobs[0] == jobs[1] && jobs[2] == jobs[4] && jobs[5] == jobs[7] && jobs[4] != jobs[5]);
    let slo = scenario
        .workloads
        .iter()
        .rfind(|workload| workload.name == "reports")
        .unwrap()
        .slo
        .unwrap();
    assert_eq!(
        (slo.deadline.map(|time| time.0), slo.offload, slo.priority),
        (Some(60_000_000), false, 5)
    );

    for policy in Policy::ALL {
        let outcome = outcome(&scenario, policy);
        // The 20 other pods are already on the nodes.
        assert_eq!((outcome.decisions, outcome.pods.done), (9, 9), "{policy}");
    }
    // Twice the load doubles each pod, and both copies have the same controller.
    let twice = Load::new(&scenario.at_load(2.0), 1);
    assert_eq!(
        (
            twice.tasks.len(),
            twice.tasks.iter().map(|task| task.job).collect::<BTreeSet<_>>().len()
        ),
        (18, 4)
    );
}

#[test]
fn log_replay_takes_services_from_scenario() {
    let deployment = json!({"name": "shop", "class": "latency", "requests": {"cpu": "1m"}, "serviceMs": 7, "deployment": {"replicas": 3}});
    let job = json!({
        "name": "other", "class": "batch", "requests": {"cpu": "1m"}, "serviceMs": 9_000, "jobs": {"poisson": {"perSecond": 1}},
    });
    let scenario = replayed(&json!([deployment, job]), &log()).unwrap();
    let found: Vec<_> = tasks(&scenario)
        .into_iter()
        .map(|(name, .., service)| (name, service))
        .collect();
    let expected = [
        vec![("reports".to_owned(), 9_000.0); 6],
        vec![("alone".to_owned(), 50.0)],
    ]
    .concat();
    assert_eq!(found, expected);
    assert_eq!(Load::new(&scenario, 1).services.len(), 1);
}

#[test]
fn incomplete_log_line_is_refused_by_number() {
    let fault = |change: &dyn Fn(&mut Value)| {
        let mut lines: Vec<Value> = log().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        change(&mut lines[2]);
        let log: Vec<_> = lines.iter().map(ToString::to_string).collect();
        replayed(&json!([]), &log.join("\n")).map(|_| ()).unwrap_err()
    };
    let without = |name: &'static str| fault(&|line| drop(line.as_object_mut().unwrap().remove(name)));
    assert_eq!(without("cpu"), "line 3: missing field `cpu`");
    assert_eq!(without("timestamp"), "line 3: missing field `timestamp`");
    assert_eq!(
        without("proc_ms"),
        "line 3: namespace: no workload states the service time of pods of \"reports\" or of their class, and proc_ms has none"
    );
    assert_eq!(
        fault(&|line| line["class"] = "fast".into()),
        "line 3: class: \"fast\" is not one of latency, throughput, batch, none, invalid"
    );
    assert_eq!(
        fault(&|line| line["proc_ms"] = "edge=soon".into()),
        "line 3: proc_ms: \"soon\" is not a time in milliseconds"
    );
    let cut = replayed(&json!([]), "{}\n\nserving").map(|_| ()).unwrap_err();
    assert!(cut.starts_with("line 3: is not JSON: "), "{cut}");
}
