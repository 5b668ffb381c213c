//! Cost of one review without HTTP and TLS: `cargo bench --bench decision`. docs/design/performance.md has the result.

// A measurement that cannot be set up should stop.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edgeward_cluster::engine::{Change, Engine};
use edgeward_cluster::pod_record::record;
use edgeward_cluster::queue::Waitlist;
use edgeward_cluster::telemetry::Telemetry;
use edgeward_decision::config::{Config, Input, ScorerMode};
use edgeward_decision::fleet_file;
use edgeward_decision::model::site::SiteDefinition;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::placement::decide::decide;
use edgeward_decision::placement::features::CloudScores;
use edgeward_decision::placement::ledger::Ledger;
use edgeward_decision::placement::patch::{Stamp, patch};
use edgeward_decision::placement::room::Room;
use edgeward_decision::pod::Pod;
use edgeward_decision::testkit::{scorer, workload};
use edgeward_kube::units::{Micros, Moment, Now};
use serde_json::{Value, json};

const POD: &str = include_str!("pod.json");
const NODES: [usize; 3] = [10, 1_000, 5_000];
const NOW: Now = Now {
    moment: Moment(0),
    wall: jiff::Timestamp::constant(1_767_225_600, 0),
};

/// A fleet of `nodes` edge nodes and one cloud node. All edge nodes but the last `free` are full.
fn fleet(nodes: usize, free: usize) -> Snapshot {
    let edge = (0..nodes).map(|i| {
        let used = if i + free >= nodes { "500m" } else { "3900m" };
        json!({
            "name": format!("edge-{i}"),
            "labels": {
                "node.role/edge": "true", "kubernetes.io/hostname": format!("edge-{i}"), "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": format!("zone-{}", i % 3), "disk": "ssd",
            },
            "taints": if i % 10 == 0 { json!([{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}]) } else { json!([]) },
            "allocatable": {"cpu": "4", "memory": "8Gi", "ephemeral-storage": "40Gi", "pods": 110},
            "used": {"cpu": used, "memory": "2Gi", "pods": 20},
        })
    });
    let cloud = json!({
        "name": "cloud", "labels": {"node.role/cloud": "true"},
        "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}],
        "allocatable": {"cpu": "640", "memory": "2560Gi", "pods": 5000},
    });
    let document = json!({
        "sites": [
            {"name": "edge", "kind": "edge", "queues": [{"class": "latency", "waiting": 2}]},
            {"name": "cloud", "kind": "cloud", "wan": {"rttMs": 25, "lossPct": 0.1}},
        ],
        "nodes": edge.chain([cloud]).collect::<Vec<Value>>(),
    });
    fleet_file::read(&document, &Config::default(), NOW.moment).unwrap()
}

fn main() {
    let config = Config::default();
    println!("| edge nodes | 10 | 1,000 | 5,000 |\n|---|---:|---:|---:|");
    row("whole review, one node has room", |nodes| review(fleet(nodes, 1)));
    let pod = Pod::from_json(POD).unwrap();
    let workload = pod.workload("shop".into(), &config.keys);
    for (what, free) in [
        ("one node has room", 1),
        ("every node has room", usize::MAX / 2),
        ("no node has room", 0),
    ] {
        row(&format!("decision, {what}"), |nodes| {
            let snapshot = fleet(nodes, free);
            let (config, workload) = (&config, &workload);
            move || drop(black_box(decide(workload, &Room::of(&snapshot), config, NOW)))
        });
    }
    println!("\n| clouds | 8 | 128 |\n|---|---:|---:|");
    let reviews = [8, 128].map(|clouds| format!(" {:.1?} |", median(review(fleet_of_clouds(clouds)))));
    println!("| whole review |{}", reviews.concat());
    let scores = [8, 128].map(|clouds| format!(" {:.1?} |", median(scored(clouds))));
    println!("| scores by the learned scorer |{}", scores.concat());
    let plans = [8, 128].map(|clouds| format!(" {:.1?} |", median(group_plan(clouds))));
    println!("| plan, a group of 16 components |{}", plans.concat());
    let links = [8, 128].map(|clouds| format!(" {:.1?} |", median(links_published(clouds))));
    println!("| RTTs between all clouds, published |{}", links.concat());
}

/// A review in this fleet, from the JSON of the pod to that of the patch.
fn review(snapshot: Snapshot) -> impl FnMut() {
    let config = Config::default();
    let stamp = Stamp {
        at: NOW.wall,
        id: "7c11a4a3-b9a6-4a9d-a920-4dc29bac5dcb".into(),
    };
    move || {
        let pod = Pod::from_json(black_box(POD)).unwrap();
        let workload = pod.workload("shop".into(), &config.keys);
        let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);
        black_box(serde_json::to_vec(&patch(&pod, &verdict, &config, &stamp)).unwrap());
    }
}

/// The features and scores of all clouds for one pod.
fn scored(clouds: usize) -> impl FnMut() {
    let mut snapshot = fleet_of_clouds(clouds);
    snapshot.scorer = Some(Arc::new(scorer("etaOverBound", -1)));
    let mut config = Config::default();
    config.scorer.mode = ScorerMode::Shadow;
    let pod: Value = serde_json::from_str(POD).unwrap();
    let workload = workload(&pod, &config.keys);
    move || drop(black_box(CloudScores::of(&workload, &snapshot, &config, NOW.moment)))
}

/// A new answer with the RTT of every pair of clouds, and the publication of it.
fn links_published(clouds: usize) -> impl FnMut() {
    let names: Vec<_> = (0..clouds).map(|i| format!("c{i:03}")).collect();
    let mut sites = vec![Arc::new(SiteDefinition::edge())];
    sites.extend(names.iter().map(|name| Arc::new(SiteDefinition::of_cluster(name))));
    let config = Config {
        sites,
        ..Config::default()
    };
    let mut engine = Engine::new(Arc::new(config), Arc::default());
    let mut telemetry = Telemetry::default();
    let mut rtt = 0;
    move || {
        rtt += 1;
        let pairs = names
            .iter()
            .flat_map(|from| names.iter().map(move |to| (&**from, &**to)));
        let values: Vec<_> = pairs.filter(|(from, to)| from != to).map(|pair| (pair, rtt)).collect();
        telemetry.record_links(Input::LinkRtt, &values, NOW.moment, Micros(0));
        engine.apply(&Change::Telemetry(Box::new(telemetry.clone())), NOW);
        black_box(engine.publish(NOW));
    }
}

/// An edge without room, and clouds of Liqo of which only one of the last has room for 16 cores.
fn fleet_of_clouds(clouds: usize) -> Snapshot {
    let sites = (0..clouds).map(|i| {
        json!({"name": format!("c{i:03}"), "kind": "liqo", "nodeSelector": {"c": format!("{i}")}, "wan": {"rttMs": 5 + i / 2, "lossPct": 0}})
    });
    // A search ends after 2,000 attempts to place a pod, which is 16 in 125 clouds.
    let last = clouds.min(120);
    let nodes = (0..clouds).map(|i| {
        json!({"name": format!("n{i}"), "labels": {"c": format!("{i}")},
               "taints": [{"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}],
               "allocatable": {"cpu": if i + 1 == last { "16" } else { "15" }, "memory": "64Gi", "pods": 110}})
    });
    let at_edge = json!({"name": "edge-0", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": "1", "memory": "1Gi", "pods": 1}});
    let nodes = nodes.chain([at_edge]);
    let edge = json!({"name": "edge", "kind": "edge"});
    let document =
        json!({"sites": std::iter::once(edge).chain(sites).collect::<Vec<_>>(), "nodes": nodes.collect::<Vec<_>>()});
    fleet_file::read(&document, &Config::default(), NOW.moment).unwrap()
}

/// The plan for a group of 16 components, each near the next.
fn group_plan(clouds: usize) -> impl FnMut() {
    let snapshot = fleet_of_clouds(clouds);
    let mut waitlist = Waitlist::default();
    for i in 0..16 {
        let pod = json!({
            "metadata": {
                "name": format!("p{i}"), "namespace": "shop", "uid": format!("p{i}"), "resourceVersion": "1",
                "creationTimestamp": NOW.wall.to_string(),
                "annotations": {
                    "slo.example.io/class": "batch", "slo.example.io/group": "g", "slo.example.io/groupSize": "16",
                    "slo.example.io/component": format!("c{i}"), "slo.example.io/near": format!("c{}=2ms", (i + 1) % 16),
                },
            },
            "spec": {
                "schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}],
                "containers": [{"resources": {"requests": {"cpu": "1"}}}],
            },
        });
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let record = record(&pod, &Config::default().keys).unwrap().unwrap();
        waitlist.apply(record.gated_pod.unwrap(), NOW);
    }
    move || {
        let plan = waitlist.plan(&snapshot, &Ledger::default(), &Config::default(), |_| true, NOW);
        let placed = plan.entries.iter().filter(|entry| entry.together.is_some());
        assert_eq!(placed.count(), 16);
    }
}

/// The median time of a run.
fn median(mut run: impl FnMut()) -> Duration {
    const RUNS: usize = 501;
    let mut times: Vec<_> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[RUNS / 2]
}

/// Prints the median time of a run for each number of nodes.
fn row<R: FnMut()>(name: &str, with: impl Fn(usize) -> R) {
    let cells = NODES.map(|nodes| format!(" {:.1?} |", median(with(nodes))));
    println!("| {name} |{}", cells.concat());
}
