//! What the live view costs: memory per cached pod, an event of a pod, a publication; at 1,000 nodes with 10,000 pods and
//! 5,000 with 100,000. And a publication while many pods wait for room. `cargo bench --bench live_view`;
//! docs/performance.md has the result.
//!
//! Events are texts as watches bring them, read as `sources` reads them.

// A measurement that cannot be set up should stop.
#![allow(clippy::unwrap_used)]
#![allow(missing_docs)]

use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

use edgeward_core::cluster::cache::{Cache, Kind};
use edgeward_core::config::Config;
use edgeward_core::keys::Keys;
use edgeward_core::units::{Moment, Now};
use edgeward_core::wire::node;
use edgeward_core::wire::pod::Pod;
use serde_json::{Value, json};

const POD: &str = include_str!("pod.json");

fn main() {
    println!("| nodes | pods | bytes a pod | an event of a pod | publication after one event | after 100 |");
    println!("|---:|---:|---:|---:|---:|---:|");
    for (nodes, pods) in [(1_000, 10_000), (5_000, 100_000)] {
        measure(nodes, pods);
    }
    println!("\n| nodes | pods that wait for room | publication after one slot frees |");
    println!("|---:|---:|---:|");
    for (nodes, waiting) in [(1_000, 1_000), (1_000, 5_000)] {
        wait_for_room(nodes, waiting);
    }
}

/// Every node is full, and so many pods wait; a pod of one node after the other ends.
fn wait_for_room(nodes: usize, waiting: usize) {
    const ROUNDS: usize = 5;
    let keys = Keys::new("example.io");
    let mut cache = Cache::new(&Config::default());
    cache.apply_namespace("shop", true);
    let template: Value = serde_json::from_str(POD).unwrap();
    let full = |uid: usize, node: Option<usize>| {
        let mut pod: Value = serde_json::from_str(&pod_text(&template, uid, node.unwrap_or_default())).unwrap();
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "60"}});
        if node.is_none() {
            pod["spec"]["nodeSelector"]["node.role/edge"] = "true".into();
            drop(pod["spec"].as_object_mut().unwrap().remove("nodeName"));
            pod["status"] = json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0 nodes"},
            ]});
        }
        pod.to_string()
    };
    for i in 0..nodes {
        cache.apply_node(node::from_json(&node_text(i)).unwrap());
        apply(&mut cache, &full(i, Some(i)), &keys, Moment(0));
    }
    for i in 0..waiting {
        apply(&mut cache, &full(nodes + i, None), &keys, Moment(0));
    }
    let waits = |cache: &mut Cache, at| {
        cache.publish(at).sites[0]
            .queues
            .iter()
            .map(|group| group.waiting)
            .sum::<u64>()
    };
    let publication = median((0..ROUNDS).map(|round| {
        assert_eq!(waits(&mut cache, Moment(0)), waiting as u64);
        cache.delete_pod(&uid(round));
        let publication = time(|| black_box(cache.publish(Moment(1))));
        apply(&mut cache, &full(round, Some(round)), &keys, Moment(1));
        publication
    }));
    println!("| {nodes} | {waiting} | {publication:.1?} |");
}

fn measure(nodes: usize, pods: usize) {
    let keys = Keys::new("example.io");
    let mut cache = Cache::new(&Config::default());
    let mut clock = 0;
    let mut now = move || {
        clock += 1_000;
        Moment(clock)
    };
    cache.apply_namespace("shop", true);
    for kind in Kind::ALL {
        cache.list_began(kind);
    }
    for i in 0..nodes {
        cache.apply_node(node::from_json(&node_text(i)).unwrap());
    }
    cache.publish(now());

    let template: Value = serde_json::from_str(POD).unwrap();
    let before = resident();
    for i in 0..pods {
        apply(&mut cache, &pod_text(&template, i, i % nodes), &keys, now());
    }
    for kind in Kind::ALL {
        cache.list_ended(kind);
    }
    // Gated as a review would hold it.
    let mut snapshot = cache.publish(now());
    let bytes = (resident() - before) / pods;

    // Pods move to the next node, one event each: read, taken from one sum and added to another.
    let texts: Vec<String> = (0..1_000).map(|i| pod_text(&template, i, (i + 1) % nodes)).collect();
    let event = median(texts.iter().map(|text| {
        let at = now();
        time(|| apply(&mut cache, text, &keys, at))
    }));
    let mut publication = |events: usize| {
        let runs = (0..200).map(|run| {
            for i in 0..events {
                apply(&mut cache, &texts[(run * events + i) % texts.len()], &keys, Moment(0));
            }
            let at = now();
            time(|| snapshot = cache.publish(at))
        });
        median(runs)
    };
    let (one, hundred) = (publication(1), publication(100));
    black_box(&snapshot);
    println!("| {nodes} | {pods} | {bytes} | {event:.1?} | {one:.1?} | {hundred:.1?} |");
}

fn apply(cache: &mut Cache, text: &str, keys: &Keys, at: Moment) {
    let record = Pod::from_json(text).unwrap().record(keys).unwrap().unwrap();
    let wall = jiff::Timestamp::UNIX_EPOCH;
    cache.apply_pod(&record, None, Now { moment: at, wall });
}

fn node_text(i: usize) -> String {
    json!({
        "metadata": {"name": format!("edge-{i}"), "labels": {
            "node.role/edge": "true", "kubernetes.io/hostname": format!("edge-{i}"), "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": format!("zone-{}", i % 3),
        }},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "400Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
    .to_string()
}

fn pod_text(template: &Value, i: usize, node: usize) -> String {
    let mut pod = template.clone();
    pod["metadata"]["uid"] = uid(i).into();
    pod["metadata"]["name"] = format!("web-7d4b9c6f5-{i:05}").into();
    pod["metadata"]["namespace"] = "shop".into();
    pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    pod["spec"]["nodeName"] = format!("edge-{node}").into();
    pod["status"] = json!({"phase": "Running", "podIP": "10.0.0.1", "conditions": [
        {"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"},
    ]});
    pod.to_string()
}

fn uid(i: usize) -> String {
    format!("{i:08x}-1f2e-4d3c-8b4a-{i:012x}")
}

fn time<T>(run: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

fn median(times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times[times.len() / 2]
}

fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}
