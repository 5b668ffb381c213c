//! Properties that hold for every pod and every fleet.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::model::snapshot::{Free, Snapshot};
use edgeward_kube::node::Node;
use edgeward_kube::units::{Bytes, Millicores};

/// The kind of site where a pod is placed.
fn placed(snapshot: &Snapshot, pod: &Value, config: &Config) -> Option<SiteKind> {
    let workload = testkit::workload(pod, &config.keys);
    let verdict = decide(&workload, &Room::of(snapshot), config, NOW);
    verdict.site().map(|site| site.kind())
}

/// A change of one node: more room, less use, or none.
#[derive(Debug, Clone)]
struct Relief {
    node: prop::sample::Index,
    /// Added to the node's capacity: millicores, the same number of MiB, and pod slots.
    grown: i64,
    slots: i64,
    /// Whether the pods of known priority leave. The other pods' use shrinks with them.
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
        node.charges.placeholders.clear();
        for (_, part) in std::mem::take(&mut node.charges.by_priority) {
            node.charges.used = node.charges.used.less(&part.amounts);
            node.charges.pods -= part.pods;
        }
    }
    let (mut others, mut pods) = (node.charges.used.clone(), node.charges.pods);
    for (_, part) in &node.charges.by_priority {
        others = others.less(&part.amounts);
        pods -= part.pods;
    }
    node.charges.used.cpu = node.charges.used.cpu - Millicores(others.cpu.0 * relief.freed_percent / 100);
    node.charges.used.memory = node.charges.used.memory - Bytes(others.memory.0 * relief.freed_percent / 100);
    node.charges.pods -= relief.freed_pods.min(pods);
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
            relieve(std::sync::Arc::<Vec<_>>::make_mut(&mut edge.nodes), &relief);
            if is_measured_again {
                edge.free = Free::default();
            }
            let site = placed(&snapshot, &pod, &config);
            prop_assert!(!(was_at_the_edge && site == Some(SiteKind::Cloud)));
            was_at_the_edge |= site == Some(SiteKind::Edge);
        }
    }

    #[test]
    fn equal_inputs_give_equal_verdicts(fleet in testkit::fleet(), pod in testkit::pod()) {
        // Each run parses the documents itself, in another thread. The result must not depend on addresses or on the thread.
        let shown = || with_verdict(&fleet, &pod, &Config::default(), |verdict| format!("{verdict:?}"));
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(shown);
            (shown(), other.join().unwrap())
        });
        prop_assert_eq!(one, other);
    }
}

/// A demand on sites, and a predicate for the sites of [`labelled`] that it selects.
type Demand = (&'static str, fn(&str) -> bool);

fn demands() -> impl Strategy<Value = Demand> {
    let all: Vec<Demand> = vec![
        ("edge", |site| site == "edge"),
        ("cloud", |site| site == "cloud"),
        ("far, virtual", |site| site == "far" || site == "virtual"),
        ("edge,far", |site| site == "edge" || site == "far"),
        ("nowhere", |_| false),
        ("region=eu", |site| site == "edge" || site == "far"),
        ("region in (us, asia)", |site| site == "cloud" || site == "virtual"),
        ("region notin (us),tier!=spot", |site| site == "edge"),
        ("tier", |_| false),
        ("tier,region", |site| site == "far" || site == "virtual"),
        ("!tier", |site| site == "edge" || site == "cloud"),
        ("region in (eu", |_| false),
        ("", |_| false),
    ];
    prop::sample::select(all)
}

/// The fleet with labels on its sites.
fn labelled(mut fleet: Value) -> Value {
    for site in fleet["sites"].as_array_mut().unwrap() {
        site["labels"] = match site["name"].as_str().unwrap() {
            "edge" => json!({"region": "eu"}),
            "cloud" => json!({"region": "us"}),
            "far" => json!({"region": "eu", "tier": "spot"}),
            _ => json!({"region": "asia", "tier": "spot"}),
        };
    }
    fleet
}

/// Configurations that may change the decision for a pod with stated sites.
fn configs() -> impl Strategy<Value = Config> {
    use crate::config::{Gating, InvalidSlo, OnNoCapacity, SitePolicy};
    let flags = (
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        prop::bool::weighted(0.8),
    );
    (flags, prop::sample::select(SitePolicy::ALL.to_vec()), 0_u32..11).prop_map(
        |((holds, can_release, is_denied, has_limits, enable_offload), site_policy, headroom)| Config {
            gating: Gating {
                on_no_capacity: if holds { OnNoCapacity::Hold } else { OnNoCapacity::Edge },
                can_release,
                limits: match has_limits {
                    true => Gating::default().limits,
                    false => crate::model::slo::PerClass::default(),
                },
                ..Gating::default()
            },
            invalid_slo: if is_denied { InvalidSlo::Deny } else { InvalidSlo::Warn },
            headroom_below: crate::config::PodPriority(headroom as i32 - 5),
            site_policy,
            enable_offload,
            ..Config::default()
        },
    )
}

/// The pod with these sites of its own, and of its policy.
fn with_sites(mut pod: Value, own: Option<&str>, policy: Option<&str>) -> Value {
    if !pod["metadata"].is_object() {
        pod["metadata"] = json!({});
    }
    if !pod["metadata"]["annotations"].is_object() {
        pod["metadata"]["annotations"] = json!({});
    }
    for (key, value) in [("sites", own), ("policySites", policy)] {
        if let Some(value) = value {
            pod["metadata"]["annotations"][format!("slo.example.io/{key}")] = json!(value);
        }
    }
    pod
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn no_verdict_is_outside_the_sites_of_the_pod(
        fleet in testkit::fleet(),
        pod in testkit::pod(),
        own in demands(),
        policy in prop::option::weighted(0.3, demands()),
        config in configs(),
        gated in prop::option::of(0_u64..700),
    ) {
        use crate::placement::verdict::Reason;
        let is_allowed = |site: &str| own.1(site) && policy.is_none_or(|(_, allows)| allows(site));
        let is_unreadable = [Some(own.0), policy.map(|(text, _)| text)].into_iter().flatten().any(|text| text.is_empty() || text == "region in (eu");
        let snapshot = testkit::snapshot(&labelled(fleet));
        let text = with_sites(pod, Some(own.0), policy.map(|(text, _)| text)).to_string();
        let pod = Pod::from_json(&text).unwrap();
        let mut workload = pod.workload("shop".into(), &config.keys);
        workload.gated_for = gated.map(Micros::from_secs);
        if gated.is_some() {
            workload.gates = vec![(*config.keys.gate).into()];
        }
        let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);
        let reason = verdict.reason;
        match verdict.action {
            Action::Place(site) => prop_assert!(is_allowed(site.name()), "{} {reason:?}", site.name()),
            Action::Gate => prop_assert!(reason.is_gate()),
            Action::PassThrough if reason == Reason::Reinvocation => {
                let site = workload.placement.as_ref().map(|placement| placement.site.to_string());
                prop_assert!(site.is_some_and(|site| is_allowed(&site)));
            }
            // edgeward may not place such a pod, whatever sites it states.
            Action::PassThrough => prop_assert!(matches!(reason, Reason::NodeName | Reason::OptedOut), "{reason:?}"),
            Action::Deny => prop_assert!(gated.is_none() && !verdict.faults.is_empty()),
        }
        if is_unreadable && gated.is_none() {
            prop_assert!(matches!(verdict.action, Action::Deny | Action::PassThrough), "{reason:?}");
        }
    }
}
