//! What is found before the lock, and beside reservations under it, is what a pass over all nodes finds.

use proptest::prelude::*;

use super::*;
use crate::config::PodPriority;
use crate::model::claims::{Claim, Claims};
use crate::model::decision_id::DecisionId;
use crate::model::node::AssumedPods;
use crate::model::owner::Owner;
use crate::model::workload::QueueKey;
use crate::placement::ledger::{Ledger, Reservation};
use crate::placement::score;
use crate::resources::Amounts;
use crate::units::{Bytes, Millicores};

/// A reservation on one of the fleet's nodes.
#[derive(Debug, Clone)]
struct Promise {
    node: prop::sample::Index,
    /// Millicores, and as many MiB.
    size: i64,
    is_of_this_namespace: bool,
    is_within_share: bool,
    releases: bool,
    /// The revision that shows its pod.
    shown_in: Option<u64>,
}

fn promise() -> impl Strategy<Value = Promise> {
    let fields = (
        any::<prop::sample::Index>(),
        0_i64..3_000,
        any::<bool>(),
        prop::bool::weighted(0.7),
        prop::bool::weighted(0.2),
        prop::option::of(0_u64..3),
    );
    fields.prop_map(
        |(node, size, is_of_this_namespace, is_within_share, releases, shown_in)| Promise {
            node,
            size,
            is_of_this_namespace,
            is_within_share,
            releases,
            shown_in,
        },
    )
}

/// The testkit's fleet, or an edge of 150 nodes that differ little.
fn fleets() -> impl Strategy<Value = Value> {
    let wide = (0_u32..5).prop_map(|full| {
        let node = |i: u32| {
            json!({
                "name": format!("e{i}"), "labels": {"node.role/edge": "true"},
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": 5},
                "used": {"cpu": format!("{}m", 100 * (i % 40)), "pods": if i % 5 < full { 5 } else { 0 }},
            })
        };
        json!({"sites": [{"name": "edge", "kind": "edge"}], "nodes": (0..150).map(node).collect::<Vec<_>>()})
    });
    prop_oneof![3 => testkit::fleet(), 1 => wide]
}

/// The ledger after these, and after the publication of the first revision.
fn ledger(snapshot: &Snapshot, promises: &[Promise], replicas: u32) -> Ledger {
    let nodes: Vec<_> = snapshot
        .sites
        .iter()
        .flat_map(|site| site.nodes().map(move |node| (site, node)))
        .collect();
    let mut ledger = Ledger::new(Micros::from_secs(3));
    ledger.set_replicas(replicas);
    for (number, promise) in promises.iter().enumerate() {
        if nodes.is_empty() {
            break;
        }
        let (site, node) = promise.node.get(&nodes);
        let (id, namespace) = (
            DecisionId(number as u128),
            if promise.is_of_this_namespace { "shop" } else { "bank" },
        );
        let amount = Amounts {
            cpu: Millicores(promise.size),
            memory: Bytes(promise.size << 20),
            ..Amounts::default()
        };
        let reservation = Reservation {
            id,
            owner: Owner::new(namespace, None),
            site: site.name().into(),
            node: node.id,
            amount,
            priority: 0,
            releases: promise.releases.then(|| format!("uid-{number}").into()),
        };
        ledger.reserve(reservation, NOW.moment, |_| promise.is_within_share);
        if let Some(revision) = promise.shown_in {
            ledger.confirm(id, namespace, site.name(), revision);
        }
    }
    ledger.published(1);
    ledger
}

/// The place in the queue of a pod that arrives with this priority.
fn key(priority: i32) -> QueueKey {
    let text = json!({"spec": {"priority": priority}}).to_string();
    let (pod, config) = (Pod::from_json(&text).unwrap(), Config::default());
    pod.workload("shop".into(), &config.keys)
        .queue_key(&config.priority_caps, None)
}

/// What held pods claim: on which node, how much, whether there is room for it, and with which priority.
fn claimed(snapshot: &Snapshot, wanted: &[(prop::sample::Index, i64, bool, i32)]) -> Claims {
    let nodes: Vec<_> = snapshot
        .sites
        .iter()
        .flat_map(|site| site.nodes().map(move |node| (site, node)))
        .collect();
    let mut claims = Claims::default();
    for (number, (node, size, has_room, priority)) in wanted.iter().enumerate().filter(|_| !nodes.is_empty()) {
        let (site, node) = node.get(&nodes);
        let amount = Amounts {
            cpu: Millicores(*size),
            memory: Bytes(size << 20),
            ..Amounts::default()
        };
        claims.add(
            node.id,
            Claim {
                uid: format!("uid-{number}").into(),
                queue_key: key(*priority),
                site: site.name().into(),
                amount,
                has_room: *has_room,
            },
        );
    }
    claims
}

/// A reservation takes the same as its part of a sum.
fn is_the_sum(ledger: &Ledger, node: NodeId, revision: u64) {
    for namespace in ["shop", "bank", "another"] {
        let (mut charged, mut summed) = ((Amounts::default(), 0), (Amounts::default(), 0));
        for charge in ledger.charges(node, revision, namespace) {
            charged.0.add(charge.amount, charge.times);
            charged.1 += i64::from(charge.times);
        }
        for (share, times) in ledger.taken(node, revision, namespace) {
            summed.0.add(&share.amounts, times);
            summed.1 += share.pods * i64::from(times);
        }
        assert_eq!(summed, charged);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn nodes_scores_and_numbers_are_those_of_a_pass_over_all_nodes(
        fleet in fleets(),
        pod in testkit::pod(),
        promises in prop::collection::vec(promise(), 0..40),
        claims in prop::collection::vec((any::<prop::sample::Index>(), 0_i64..2_000, any::<bool>(), 0_i32..3), 0..4),
        replicas in 1_u32..4,
        revision in 0_u64..3,
        headroom in -5_i32..6,
        (gained, first_waiting, not_considered) in (
            prop::collection::vec(any::<prop::sample::Index>(), 0..3),
            prop::option::of(0_i32..3),
            prop::option::weighted(0.2, 0_i32..3),
        ),
    ) {
        let config = Config { headroom_below: PodPriority(headroom), ..Config::default() };
        let mut snapshot = testkit::snapshot(&fleet);
        snapshot.revision = revision;
        let mut claims = claimed(&snapshot, &claims);
        let nodes: Vec<_> = snapshot.sites.iter().flat_map(|site| site.nodes()).collect();
        gained.iter().filter(|_| !nodes.is_empty()).for_each(|node| claims.close_gained(node.get(&nodes).id));
        first_waiting.into_iter().for_each(|priority| claims.leave_waiting(key(priority)));
        claims.consider_up_to(not_considered.map(key));
        snapshot.claims = Arc::new(claims);
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let workload = pod.workload("shop".into(), &config.keys);
        let ledger = ledger(&snapshot, &promises, replicas);
        for node in snapshot.sites.iter().flat_map(|site| site.nodes()) {
            is_the_sum(&ledger, node.id, revision);
        }
        let found = candidates(&workload, &snapshot, &config);
        let room = Room::new(&snapshot, &ledger, key(1), "shop");
        let room = room.with_headroom(&workload, &config);
        let request = &workload.request;
        for site in &snapshot.sites {
            let mut all = AssumedPods::default();
            ledger.reserved(site.name(), revision, "shop").for_each(|charge| all.add(charge.amount, charge.times));
            prop_assert_eq!(ledger.assumed(site.name(), revision, "shop"), all);
        }
        for (site, candidates) in snapshot.sites.iter().zip(&found.sites).filter(|(_, found)| found.out.is_none()) {
            let fitting = room.fitting(request, &candidates.nodes);
            let all = site.nodes().filter(|node| feasibility::may_run(&workload, site, node));
            let all: Vec<&Node> = all.filter(|node| room.fits(request, node)).collect();
            let names = |nodes: &mut dyn Iterator<Item = &Node>| nodes.map(|node| node.name.clone()).collect::<Vec<_>>();
            prop_assert_eq!(names(&mut fitting.iter()), names(&mut all.iter().copied()));
            prop_assert_eq!(fitting.len(), all.len());

            let best = |nodes: &mut dyn Iterator<Item = &&'_ Node>| {
                let scored = nodes.take(score::SCORED).copied();
                let taken = scored.map(|node| (node, room.taken(node).amounts));
                score::best_node(request, taken).map(|node| node.name.clone())
            };
            let free = best(&mut all.iter().filter(|node| !room.needs_headroom(request, node)));
            let expected = free.or_else(|| best(&mut all.iter()));
            prop_assert_eq!(room.best_node(request, &fitting).map(|node| node.name.clone()), expected);

            let is_claimed = candidates.nodes.iter().any(|node| room.unclaimed().fits(request, node));
            prop_assert_eq!(room.is_claimed(request, &candidates.nodes), is_claimed && !snapshot.claims.is_empty());

            let shortage = Shortage::of(&workload, site, room.headroom());
            let Shortage::OfRoom(_) = &shortage else { continue };
            let refusal = shortage.refusal(&workload, &room, false);
            let usable = || site.nodes().filter(|node| {
                workload.constraints.allow(&node.name, &node.labels)
                    && feasibility::is_tolerated(&workload, site, node)
                    && feasibility::may_run(&workload, site, node)
            });
            let free = |name: &str, node: &Node| match name {
                "pods" => node.slots.saturating_sub(room.taken(node).pods),
                name => node.allocatable.get(name).saturating_sub(room.taken(node).amounts.get(name)),
            };
            let reserved = |name: &str, node: &Node| match name {
                "pods" => room.taken(node).pods - room.used(node).pods,
                name => room.taken(node).amounts.get(name) - room.used(node).amounts.get(name),
            };
            let numbers = Value::Object(refusal.numbers.clone());
            prop_assert_eq!(&numbers["usableNodes"], &json!(usable().count()));
            for (name, largest) in numbers["largestFree"].as_object().unwrap() {
                prop_assert_eq!(largest, &json!(usable().map(|node| free(name, node)).max().unwrap_or(0)));
            }
            for name in ["pods", "cpu", "memory"].iter().filter(|name| numbers["largestFree"].get(**name).is_some()) {
                let sum: i64 = usable().map(|node| reserved(name, node)).sum();
                prop_assert_eq!(numbers["reserved"][*name].as_i64().unwrap_or(0), sum);
            }
        }
    }
}
