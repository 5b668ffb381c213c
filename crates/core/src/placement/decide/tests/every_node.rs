//! The nodes that are found without a look at each are those that a look at each finds.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::config::PodPriority;
use crate::model::constraints::Taint;
use crate::model::node::Placeholder;
use crate::model::nodes::Nodes;
use crate::units::{Bytes, Millicores};

/// What happens to a node after the snapshot was made.
#[derive(Debug, Clone)]
enum Change {
    Cpu {
        allocatable: i64,
        used: i64,
    },
    Memory {
        allocatable: i64,
        used: i64,
    },
    EphemeralStorage {
        allocatable: i64,
        used: i64,
    },
    Slots {
        all: i64,
        taken: i64,
    },
    Gpus {
        all: i64,
        taken: i64,
    },
    Cordoned(bool),
    Ready(bool),
    Tainted(bool),
    /// So much of its CPU, and one of its pods, are a placeholder's of this priority.
    Placeholder {
        cpu: i64,
        priority: i32,
    },
}

fn change() -> impl Strategy<Value = Change> {
    let amount = || prop_oneof![4 => 0_i64..5_000, 1 => select(vec![i64::MIN, -1, 0, 1 << 40, i64::MAX])];
    let pods = || 0_i64..3;
    prop_oneof![
        (amount(), amount()).prop_map(|(allocatable, used)| Change::Cpu { allocatable, used }),
        (amount(), amount()).prop_map(|(mib, used)| Change::Memory {
            allocatable: mib.saturating_mul(1 << 20),
            used: used.saturating_mul(1 << 20),
        }),
        (amount(), amount()).prop_map(|(allocatable, used)| Change::EphemeralStorage { allocatable, used }),
        (pods(), pods()).prop_map(|(all, taken)| Change::Slots { all, taken }),
        (pods(), pods()).prop_map(|(all, taken)| Change::Gpus { all, taken }),
        any::<bool>().prop_map(Change::Cordoned),
        any::<bool>().prop_map(Change::Ready),
        any::<bool>().prop_map(Change::Tainted),
        (0_i64..4_000, -9_i32..6).prop_map(|(cpu, priority)| Change::Placeholder { cpu, priority }),
    ]
}

fn changed(node: &Node, change: &Change) -> Node {
    let mut node = node.clone();
    match *change {
        Change::Cpu { allocatable, used } => {
            (node.allocatable.cpu, node.used.cpu) = (Millicores(allocatable), Millicores(used));
        }
        Change::Memory { allocatable, used } => {
            (node.allocatable.memory, node.used.memory) = (Bytes(allocatable), Bytes(used));
        }
        Change::EphemeralStorage { allocatable, used } => {
            (node.allocatable.ephemeral_storage, node.used.ephemeral_storage) = (Bytes(allocatable), Bytes(used));
        }
        Change::Slots { all, taken } => (node.slots, node.pods) = (all, taken),
        Change::Gpus { all, taken } => {
            node.allocatable.scalars = vec![("nvidia.com/gpu".into(), all)];
            node.used.scalars = vec![("nvidia.com/gpu".into(), taken)];
        }
        Change::Cordoned(cordoned) => node.cordoned = cordoned,
        Change::Ready(ready) => node.ready = ready,
        Change::Tainted(false) => node.taints.clear(),
        Change::Tainted(true) => node.taints.push(Taint {
            key: "dedicated".into(),
            value: "ml".into(),
            effect: "NoSchedule".into(),
        }),
        Change::Placeholder { cpu, priority } => {
            let placeholder = Placeholder {
                priority,
                grace: Micros(0),
            };
            let mut share = Share {
                pods: 1,
                ..Share::default()
            };
            share.amounts.cpu = Millicores(cpu);
            node.used.cpu = node.used.cpu + share.amounts.cpu;
            node.pods += 1;
            node.placeholders = vec![(placeholder, share)];
        }
    }
    node
}

/// Each of the fleet's nodes, and so many more like them, that a set of them has several words.
fn widened(nodes: &Nodes, times: u32, first: u32) -> Nodes {
    let all = (0..times).flat_map(|_| nodes.iter()).zip(first..);
    let all = all.map(|(node, id)| {
        Arc::new(Node {
            id: NodeId(id),
            ..(**node).clone()
        })
    });
    all.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn the_nodes_that_are_found_are_those_that_a_look_at_each_finds(
        fleet in testkit::fleet(),
        pod in testkit::pod(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), change()), 0..30),
        times in select(vec![1_u32, 1, 40]),
        headroom in -5_i32..6,
    ) {
        let config = Config { headroom_below: PodPriority(headroom), ..Config::default() };
        let mut snapshot = testkit::snapshot(&fleet);
        for (number, site) in (0..).zip(&mut snapshot.sites) {
            site.nodes = widened(&site.nodes, times, number << 16);
        }
        for (index, change) in &changes {
            let sites = snapshot.sites.len();
            let nodes = &mut snapshot.sites[index.index(sites)].nodes;
            if !nodes.is_empty() {
                let node = changed(&nodes[index.index(nodes.len())], change);
                nodes.renew(Arc::new(node));
            }
        }
        snapshot.has_placeholders = snapshot.sites.iter().any(|site| site.nodes().any(|node| !node.placeholders.is_empty()));
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let workload = pod.workload("shop".into(), &config.keys);
        let headroom = Headroom::of(&workload, &snapshot, &config);
        let ids = |nodes: &mut dyn Iterator<Item = &Node>| nodes.map(|node| node.id).collect::<Vec<_>>();
        for site in &snapshot.sites {
            let usable = || site.nodes().filter(|node| feasibility::may_run(&workload, site, node));
            let found = feasibility::usable_nodes(&workload, site);
            prop_assert_eq!(ids(&mut site.nodes.of(&found)), ids(&mut usable()));
            let with_room = usable().filter(|node| Headroom::fits(headroom, &workload.request, node));
            let found = feasibility::candidate_nodes(&workload, site, headroom);
            prop_assert_eq!(ids(&mut site.nodes.of(&found)), ids(&mut { with_room }));
            for name in ["pods", "cpu", "memory", "ephemeral-storage", "nvidia.com/gpu"] {
                let free = site.nodes.free(name);
                for (position, node) in site.nodes().enumerate() {
                    let expected = match name {
                        "pods" => node.slots.saturating_sub(node.pods),
                        name => node.allocatable.get(name).saturating_sub(node.used.get(name)),
                    };
                    prop_assert_eq!((free(position), site.nodes.position(node.id)), (expected, Some(position)));
                }
            }
        }
    }
}
