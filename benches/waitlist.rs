//! What gated pods cost: a plan, a publication that changes nothing for them, and a review beside their claims.
//! `cargo bench --bench waitlist`; docs/performance.md has the result.

// A measurement that cannot be set up should stop.
#![allow(clippy::unwrap_used)]
#![allow(missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edgeward_core::cluster::cache::{Cache, Kind};
use edgeward_core::config::Config;
use edgeward_core::keys::Keys;
use edgeward_core::model::pod_record::GatedPod;
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::placement::decide::decide;
use edgeward_core::placement::ledger::Ledger;
use edgeward_core::placement::room::Room;
use edgeward_core::queue::Waitlist;
use edgeward_core::units::{Micros, Moment, Now};
use edgeward_core::wire::pod::Pod;
use edgeward_core::wire::{fleet_file, node};
use serde_json::{Value, json};

const POD: &str = include_str!("pod.json");
const NOW: Now = Now {
    moment: Moment(1_000_000_000),
    wall: jiff::Timestamp::constant(1_767_225_600, 0),
};
const NODES: usize = 200;
const HELD: usize = 10_000;

fn main() {
    println!("| {HELD} gated pods, {NODES} nodes | a plan |");
    println!("|---|---:|");
    for (what, kinds) in [("alike", 1), ("of 1,000 controllers", 1_000), ("all different", HELD)] {
        println!(
            "| full edge, no cloud, pods {what} | {:.1?} |",
            plan(fleet(false), HELD, kinds)
        );
    }
    println!(
        "| cloud back, 5,000 pods to one virtual node | {:.1?} |",
        plan(fleet(true), 5_000, 5)
    );
    println!("\n| | time |");
    println!("|---|---:|");
    println!(
        "| publication after a status update of a pod, {HELD} gated | {:.1?} |",
        publication()
    );
    println!("| a review, 5,000 claims on the virtual node | {:.1?} |", review(5_000));
    println!("| the same without claims | {:.1?} |", review(0));
}

fn plan(fleet: Snapshot, pods: usize, kinds: usize) -> Duration {
    let mut waitlist = waitlist(pods, kinds);
    median((0..3).map(|_| time(|| remake(&mut waitlist, &fleet))))
}

/// The observer's part in it: whatever is new, and a plan if that can help.
fn publication() -> Duration {
    let mut cache = Cache::new(&Config::default());
    let keys = Keys::new("example.io");
    cache.apply_namespace("shop", true);
    Kind::ALL.into_iter().for_each(|kind| cache.list_began(kind));
    for i in 0..NODES {
        cache.apply_node(node::from_json(&node_text(i)).unwrap());
    }
    let bound = |i: usize, ready: &str| {
        let mut pod: Value = serde_json::from_str(POD).unwrap();
        pod["metadata"]["uid"] = format!("bound-{i}").into();
        pod["metadata"]["namespace"] = "shop".into();
        pod["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        pod["spec"]["nodeName"] = format!("edge-{i}").into();
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "3900m"}});
        pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
        pod.to_string()
    };
    let apply = |cache: &mut Cache, text: &str| {
        let record = Pod::from_json(text).unwrap().record(&keys).unwrap().unwrap();
        cache.apply_pod(&record, None, NOW);
    };
    (0..NODES).for_each(|i| apply(&mut cache, &bound(i, "False")));
    for kind in Kind::ALL {
        cache.list_ended(kind);
        cache.record_event(kind, NOW.moment);
    }
    let mut waitlist = waitlist(HELD, 1_000);
    let snapshot = cache.publish(NOW.moment);
    cache.take_delta();
    remake(&mut waitlist, &snapshot);
    let ready = bound(7, "True");
    median((0..5).map(|_| {
        apply(&mut cache, &ready);
        time(|| {
            let mut snapshot = cache.publish(NOW.moment);
            let delta = cache.take_delta();
            waitlist.apply_delta(&delta.gained, &delta.lost, &snapshot, &Config::default(), NOW.moment);
            if waitlist.wants_plan(NOW.moment) {
                remake(&mut waitlist, &snapshot);
            }
            snapshot.queue_claims = waitlist.claims();
            black_box(snapshot);
        })
    }))
}

/// A decision about a pod that arrives last, where so many are about to go to the cloud.
fn review(claims: usize) -> Duration {
    let mut snapshot = fleet(true);
    let mut waitlist = waitlist(claims, 5);
    remake(&mut waitlist, &snapshot);
    snapshot.queue_claims = waitlist.claims();
    assert_eq!(snapshot.queue_claims.iter().count(), claims);
    let (config, ledger) = (Config::default(), Ledger::new(Micros::from_secs(3)));
    let pod = Pod::from_json(POD).unwrap();
    let workload = pod.workload("shop".into(), &config.keys);
    let room = Room::new(
        &snapshot,
        &ledger,
        workload.queue_key(&config.priority_caps, None),
        &workload.namespace,
    );
    assert_eq!(decide(&workload, &room, &config, NOW).site().unwrap().name(), "cloud");
    median((0..200).map(|_| {
        time(|| {
            let room = Room::new(
                &snapshot,
                &ledger,
                workload.queue_key(&config.priority_caps, None),
                &workload.namespace,
            );
            black_box(decide(&workload, &room, &config, NOW).node)
        })
    }))
}

fn remake(waitlist: &mut Waitlist, fleet: &Snapshot) {
    let ledger = Ledger::new(Micros::from_secs(3));
    black_box(waitlist.plan(fleet, &ledger, &Config::default(), |_| true, NOW));
}

/// Full edge nodes, and a cloud of one virtual node that answers or not.
fn fleet(cloud: bool) -> Snapshot {
    let nodes = (0..NODES).map(|i| {
        json!({
            "name": format!("edge-{i}"),
            "labels": {"node.role/edge": "true", "kubernetes.io/hostname": format!("edge-{i}")},
            "allocatable": {"cpu": "4", "memory": "64Gi", "pods": 110},
            "used": {"cpu": "3900m", "memory": "2Gi", "pods": 20},
        })
    });
    let virtual_node = json!({
        "name": "cloud", "labels": {"node.role/cloud": "true"},
        "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}],
        "allocatable": {"cpu": "64000", "memory": "256000Gi", "pods": 50_000},
    });
    let wan = match cloud {
        true => json!({"rttMs": 25, "lossPct": 0.1}),
        false => json!({"reachable": false}),
    };
    let document = json!({
        "sites": [{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud", "wan": wan}],
        "nodes": nodes.chain([virtual_node]).collect::<Vec<Value>>(),
    });
    fleet_file::read(&document, &Config::default(), NOW.moment).unwrap()
}

/// So many pods of so many controllers, gated between none and five minutes.
fn waitlist(pods: usize, kinds: usize) -> Waitlist {
    let mut waitlist = Waitlist::default();
    for i in 0..pods {
        waitlist.apply(gated(i, i % kinds.max(1)), NOW);
    }
    waitlist
}

fn gated(i: usize, controller: usize) -> Arc<GatedPod> {
    let at = (NOW.wall - jiff::SignedDuration::from_secs((i % 300) as i64)).to_string();
    let pod = json!({
        "metadata": {
            "name": format!("p{i}"), "namespace": "shop", "uid": format!("{i:08x}-1f2e-4d3c-8b4a-{i:012x}"),
            "resourceVersion": "1", "creationTimestamp": at,
            "ownerReferences": [{"kind": "ReplicaSet", "uid": format!("rs-{controller}"), "controller": true}],
            "annotations": {
                "slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000",
                "scheduling.example.io/timestamp": at, "scheduling.example.io/reason": "held_no_capacity",
            },
        },
        "spec": {
            "schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ],
            "containers": [{"resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}],
        },
    });
    let text = pod.to_string();
    let record = Pod::from_json(&text).unwrap().record(&Keys::new("example.io"));
    record.unwrap().unwrap().gated_pod.unwrap()
}

fn node_text(i: usize) -> String {
    json!({
        "metadata": {"name": format!("edge-{i}"), "labels": {"node.role/edge": "true"}},
        "status": {
            "allocatable": {"cpu": "4", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
    .to_string()
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
