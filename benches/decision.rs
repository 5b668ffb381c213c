//! What one review costs, part by part: a realistic pod of 4 KB, fleets of 10 to 5,000 nodes.
//!
//! Read the numbers against each other within one run; docs/performance.md keeps one with its machine.

// A benchmark that cannot be set up should stop.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use edgeward_core::config::Config;
use edgeward_core::model::decision_id::DecisionId;
use edgeward_core::model::node::NodeId;
use edgeward_core::model::owner::Owner;
use edgeward_core::model::queue_claims::QueueClaim;
use edgeward_core::model::scores::{Better, ProfileScores, Profiles, Score, SiteScore};
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::model::workload::{QueueKey, Workload};
use edgeward_core::placement::decide::decide;
use edgeward_core::placement::ledger::{Ledger, Reservation};
use edgeward_core::placement::patch::{Stamp, patch};
use edgeward_core::placement::room::Room;
use edgeward_core::resources::Amounts;
use edgeward_core::units::{Micros, Millicores, Moment, Now};
use edgeward_core::wire::fleet_file;
use edgeward_core::wire::pod::Pod;
use serde_json::{Value, json};

const POD: &str = include_str!("pod.json");
const NOW: Now = Now {
    moment: Moment(0),
    wall: jiff::Timestamp::constant(1_767_225_600, 0),
};

/// A fleet of `nodes` edge nodes, all but the last `free` of them full, and one cloud node.
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

/// What so many profiles say of the edge and the cloud.
fn profiles(count: usize) -> Arc<Profiles> {
    let score = |number: f64| SiteScore {
        by_missing: [Score::of(number).unwrap()].into(),
        as_of: NOW.moment,
    };
    let scores = Arc::new(ProfileScores {
        better: Better::Lower,
        margin: Score::of(0.05).unwrap(),
        staleness: Micros::from_secs(120),
        preferred: Some("edge".into()),
        sites: [("edge".into(), score(0.25)), ("cloud".into(), score(0.75))].into(),
    });
    let profiles = (0..count).map(|number| (format!("profile-{number}").into(), Arc::clone(&scores)));
    Arc::new(profiles.collect())
}

/// So many small reservations, spread over the edge nodes.
fn reserved(count: usize, nodes: usize, workload: &Workload<'_>) -> Ledger {
    let nodes: Vec<NodeId> = (0..nodes as u32).map(NodeId).collect();
    reserved_on(&nodes, count, workload, |_| 10)
}

/// The same, spread over these nodes, each of so many millicores.
fn reserved_on(nodes: &[NodeId], count: usize, workload: &Workload<'_>, millicores: impl Fn(usize) -> i64) -> Ledger {
    let config = Config::default();
    let mut ledger = Ledger::new(config.reservation_ttl);
    for id in 0..count {
        let reservation = Reservation {
            id: DecisionId(id as u128),
            owner: Owner::new(&workload.namespace, workload.controller.as_deref()),
            site: "edge".into(),
            node: nodes[id * 7 % nodes.len()],
            amount: Amounts {
                cpu: Millicores(millicores(id)),
                ..Amounts::default()
            },
            priority: 0,
            releases: None,
        };
        assert!(ledger.reserve(reservation, NOW.moment, |_| true));
    }
    ledger
}

fn review(c: &mut Criterion) {
    let config = Config::default();
    let mut group = c.benchmark_group("pod");
    group.bench_function("parse", |b| b.iter(|| Pod::from_json(black_box(POD)).unwrap()));
    let pod = Pod::from_json(POD).unwrap();
    group.bench_function("effective request", |b| b.iter(|| black_box(&pod).request().amounts()));
    group.bench_function("workload", |b| {
        b.iter(|| black_box(&pod).workload("shop".into(), &config.keys))
    });
    group.finish();

    let workload = pod.workload("shop".into(), &config.keys);
    let constrained = POD.replace("\"nodeSelector\": {}", "\"nodeSelector\": {\"disk\": \"ssd\"}");
    let constrained = Pod::from_json(&constrained)
        .unwrap()
        .workload("shop".into(), &config.keys);
    assert_eq!(constrained.constraints.selector.len(), 1);
    let mut group = c.benchmark_group("decide");
    for nodes in [10, 100, 1_000, 5_000] {
        let snapshot = fleet(nodes, 1);
        let room = Room::of(&snapshot);
        assert_eq!(decide(&workload, &room, &config, NOW).site().unwrap().name(), "edge");
        group.bench_with_input(BenchmarkId::new("plain", nodes), &room, |b, room| {
            b.iter(|| decide(black_box(&workload), room, &config, NOW));
        });
        group.bench_with_input(BenchmarkId::new("with nodeSelector", nodes), &room, |b, room| {
            b.iter(|| decide(black_box(&constrained), room, &config, NOW));
        });
        let free = fleet(nodes, nodes);
        let room = Room::of(&free);
        group.bench_with_input(BenchmarkId::new("free edge", nodes), &room, |b, room| {
            b.iter(|| decide(black_box(&workload), room, &config, NOW));
        });
        let ledger = reserved(100, nodes, &workload);
        let room = Room::new(&free, &ledger, QueueKey::LAST, &workload.namespace);
        assert_eq!(decide(&workload, &room, &config, NOW).site().unwrap().name(), "edge");
        group.bench_with_input(BenchmarkId::new("free edge, 100 reserved", nodes), &room, |b, room| {
            b.iter(|| decide(black_box(&workload), room, &config, NOW));
        });
        let full = fleet(nodes, 0);
        let room = Room::of(&full);
        assert_eq!(decide(&workload, &room, &config, NOW).site().unwrap().name(), "cloud");
        group.bench_with_input(BenchmarkId::new("full edge", nodes), &room, |b, room| {
            b.iter(|| decide(black_box(&workload), room, &config, NOW));
        });
    }
    group.finish();

    under_the_lock(c, &workload, &config);

    let mut group = c.benchmark_group("patch");
    let stamp = Stamp {
        at: NOW.wall,
        id: "7c11a4a3-b9a6-4a9d-a920-4dc29bac5dcb".into(),
    };
    let snapshot = fleet(100, 1);
    let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);
    group.bench_function("build", |b| {
        b.iter(|| patch(black_box(&pod), &verdict, &config, &stamp))
    });
    group.bench_function("build and serialise", |b| {
        b.iter(|| serde_json::to_vec(&patch(black_box(&pod), &verdict, &config, &stamp)).unwrap());
    });
    group.finish();

    let mut group = c.benchmark_group("whole review");
    for nodes in [10, 100, 1_000, 5_000] {
        let snapshot = fleet(nodes, 1);
        group.bench_with_input(BenchmarkId::from_parameter(nodes), &snapshot, |b, snapshot| {
            b.iter(|| {
                let pod = Pod::from_json(black_box(POD)).unwrap();
                let workload = pod.workload("shop".into(), &config.keys);
                let verdict = decide(&workload, &Room::of(snapshot), &config, NOW);
                serde_json::to_vec(&patch(&pod, &verdict, &config, &stamp)).unwrap()
            });
        });
    }
    group.finish();

    let mut group = c.benchmark_group("whole review, 1,000 nodes");
    const CLASS: &str = "\"slo.example.io/class\":\"latency\"";
    let named = POD.replace(CLASS, &format!("{CLASS},\"slo.example.io/profile\":\"profile-7\""));
    let plain = fleet(1_000, 1);
    let mut scored = plain.clone();
    scored.profiles = profiles(10);
    for (name, snapshot, body) in [
        ("no profiles", &plain, POD),
        ("ten profiles, the pod names one", &scored, &named),
    ] {
        let pod = Pod::from_json(body).unwrap().workload("shop".into(), &config.keys);
        let verdict = decide(&pod, &Room::of(snapshot), &config, NOW);
        assert_eq!(verdict.profile.is_some(), name != "no profiles");
        group.bench_with_input(name, snapshot, |b, snapshot| {
            b.iter(|| {
                let pod = Pod::from_json(black_box(body)).unwrap();
                let workload = pod.workload("shop".into(), &config.keys);
                let verdict = decide(&workload, &Room::of(snapshot), &config, NOW);
                serde_json::to_vec(&patch(&pod, &verdict, &config, &stamp)).unwrap()
            });
        });
    }
    group.finish();
}

/// What a review does under the ledger's lock, beside reservations of other pods on the nodes that are liked best. Its own reservation
/// is forgotten at once.
fn under_the_lock(c: &mut Criterion, workload: &Workload<'_>, config: &Config) {
    let mut group = c.benchmark_group("under the lock");
    for nodes in [1_000, 5_000] {
        let (free, full, nearly_full) = (fleet(nodes, nodes), fleet(nodes, 0), fleet(nodes, 1));
        let mut claimed = free.clone();
        let first: Vec<NodeId> = candidate_nodes(&free).take(100).collect();
        let claim = QueueClaim {
            uid: "gated".into(),
            queue_key: workload.queue_key(&config.priority_caps, Some((NOW.wall, "gated"))),
            site: "edge".into(),
            amount: workload.request.clone(),
            has_room: true,
        };
        Arc::make_mut(&mut claimed.queue_claims).add(first[0], claim);
        let alike = |count| reserved_on(&first, count, workload, |_| 10);
        let last: Vec<NodeId> = nearly_full.sites[0]
            .nodes()
            .filter(|node| node.used.cpu == Millicores(500))
            .map(|node| node.id)
            .collect();
        for (name, snapshot, mut ledger) in [
            ("free edge", &free, alike(0)),
            ("free edge, 1,000 reserved", &free, alike(1_000)),
            (
                "free edge, 1,000 different reserved",
                &free,
                reserved_on(&first, 1_000, workload, |id| 1 + id as i64 % 50),
            ),
            ("free edge, 1,000 reserved, one claim", &claimed, alike(1_000)),
            ("full edge, 1,000 reserved", &full, alike(1_000)),
            (
                "edge whose last node is reserved",
                &nearly_full,
                reserved_on(&last, 1, workload, |_| 1 << 20),
            ),
        ] {
            let mut id = 1_000_000_u128;
            group.bench_function(BenchmarkId::new(name, nodes), |b| {
                b.iter(|| {
                    ledger.expire(NOW.moment);
                    let queue_key = workload.queue_key(&config.priority_caps, None);
                    let room = Room::new(snapshot, &ledger, queue_key, &workload.namespace);
                    let verdict = decide(black_box(workload), &room, config, NOW);
                    let (site, node) = (verdict.site().unwrap().name(), verdict.node.unwrap());
                    let reservation = Reservation::new(DecisionId(id), workload, site, node);
                    ledger.reserve(reservation, NOW.moment, |_| true);
                    ledger.forget(DecisionId(id), &workload.namespace);
                    id += 1;
                    verdict
                });
            });
        }
    }
    group.finish();
}

/// The edge nodes that no taint keeps the pod from, in their order.
fn candidate_nodes(snapshot: &Snapshot) -> impl Iterator<Item = NodeId> {
    let nodes = snapshot.sites[0].nodes().filter(|node| node.taints.is_empty());
    nodes.map(|node| node.id)
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50);
    targets = review
}
criterion_main!(benches);
