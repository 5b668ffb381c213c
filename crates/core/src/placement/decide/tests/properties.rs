//! What holds for every pod and every fleet.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::model::node::Node;
use crate::model::snapshot::{Free, Snapshot};
use crate::units::{Bytes, Millicores};

/// Where a pod is placed.
fn placed(snapshot: &Snapshot, pod: &Value, config: &Config) -> Option<SiteKind> {
    let text = pod.to_string();
    let pod = Pod::from_json(&text).unwrap();
    let workload = pod.workload("shop".into(), &config.keys);
    let verdict = decide(&workload, &Room::of(snapshot), config, NOW);
    verdict.site().map(|site| site.kind())
}

/// What happens to one node that gets more room, or to none.
#[derive(Debug, Clone)]
struct Relief {
    node: prop::sample::Index,
    /// Added to what the node has: millicores, as many MiB, and pod slots.
    grown: i64,
    slots: i64,
    /// Whether the pods of known priority leave, and how much of what the others use goes with them.
    evicts: bool,
    freed_percent: i64,
    freed_pods: i64,
}

fn relief() -> impl Strategy<Value = Relief> {
    let fields = (
        any::<prop::sample::Index>(),
        0_i64..8_000,
        0_i64..3,
        any::<bool>(),
        0_i64..=100,
        0_i64..3,
    );
    fields.prop_map(|(node, grown, slots, evicts, freed_percent, freed_pods)| Relief {
        node,
        grown: if grown < 4_000 { 0 } else { grown },
        slots,
        evicts,
        freed_percent,
        freed_pods,
    })
}

fn relieve(nodes: &mut [std::sync::Arc<Node>], relief: &Relief) {
    if nodes.is_empty() {
        return;
    }
    let node = std::sync::Arc::make_mut(relief.node.get_mut(nodes));
    node.allocatable.cpu = node.allocatable.cpu + Millicores(relief.grown);
    node.allocatable.memory = node.allocatable.memory + Bytes(relief.grown << 20);
    node.slots += relief.slots;
    if relief.evicts {
        node.placeholders.clear();
        for part in std::mem::take(&mut node.by_priority) {
            node.used = node.used.less(&part.used);
            node.pods -= part.pods;
        }
    }
    let (mut others, mut pods) = (node.used.clone(), node.pods);
    for part in &node.by_priority {
        others = others.less(&part.used);
        pods -= part.pods;
    }
    node.used.cpu = node.used.cpu - Millicores(others.cpu.0 * relief.freed_percent / 100);
    node.used.memory = node.used.memory - Bytes(others.memory.0 * relief.freed_percent / 100);
    node.pods -= relief.freed_pods.min(pods);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn more_room_at_the_edge_never_sends_a_pod_away(
        fleet in testkit::fleet(),
        pod in testkit::pod(),
        reliefs in prop::collection::vec((relief(), any::<bool>()), 1..8),
    ) {
        let config = Config::default();
        let mut snapshot = testkit::snapshot(&fleet);
        let mut was_at_the_edge = placed(&snapshot, &pod, &config) == Some(SiteKind::Edge);
        for (relief, is_measured_again) in reliefs {
            let edge = &mut snapshot.sites[0];
            let nodes = std::sync::Arc::make_mut(&mut edge.nodes);
            relieve(nodes, &relief);
            if is_measured_again {
                edge.free = Free::default();
            }
            let site = placed(&snapshot, &pod, &config);
            prop_assert!(!(was_at_the_edge && site == Some(SiteKind::Cloud)));
            was_at_the_edge |= site == Some(SiteKind::Edge);
        }
    }

    #[test]
    fn the_same_inputs_give_the_same_verdict(fleet in testkit::fleet(), pod in testkit::pod()) {
        // From the documents on, apart from each other: nothing may depend on where, or in which thread, it is read.
        let shown = || with_verdict(&fleet, &pod, &Config::default(), |verdict| format!("{verdict:?}"));
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(shown);
            (shown(), other.join().unwrap())
        });
        prop_assert_eq!(one, other);
    }
}
