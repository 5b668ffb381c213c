//! Cost of one review without HTTP and TLS: `cargo bench --bench decision`. docs/design/performance.md has the result.

// A measurement that cannot be set up should stop.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;

use edgeward_decision::config::Config;
use edgeward_decision::fleet_file;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::placement::decide::decide;
use edgeward_decision::placement::patch::{Stamp, patch};
use edgeward_decision::placement::room::Room;
use edgeward_decision::pod::Pod;
use edgeward_kube::units::{Moment, Now};
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
    let stamp = Stamp {
        at: NOW.wall,
        id: "7c11a4a3-b9a6-4a9d-a920-4dc29bac5dcb".into(),
    };
    println!("| edge nodes | 10 | 1,000 | 5,000 |\n|---|---:|---:|---:|");
    row("whole review, one node has room", |nodes| {
        let snapshot = fleet(nodes, 1);
        let (config, stamp) = (&config, &stamp);
        move || {
            let pod = Pod::from_json(black_box(POD)).unwrap();
            let workload = pod.workload("shop".into(), &config.keys);
            let verdict = decide(&workload, &Room::of(&snapshot), config, NOW);
            black_box(serde_json::to_vec(&patch(&pod, &verdict, config, stamp)).unwrap());
        }
    });
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
}

/// Prints the median time of a run for each number of nodes.
fn row<R: FnMut()>(name: &str, with: impl Fn(usize) -> R) {
    const RUNS: usize = 501;
    let cells = NODES.map(|nodes| {
        let mut run = with(nodes);
        let mut times: Vec<_> = (0..RUNS)
            .map(|_| {
                let start = Instant::now();
                run();
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        format!(" {:.1?} |", times[RUNS / 2])
    });
    println!("| {name} |{}", cells.concat());
}
