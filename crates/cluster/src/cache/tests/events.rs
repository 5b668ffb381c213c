//! Property: for any events in any order, the incrementally updated state equals a full recount.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;
use crate::cache::entry::Unbound;
use crate::cache::tests::{Fixture, bound, edge_node, of, pod, unschedulable, with};
use crate::pod_record::Phase;
use edgeward_decision::model::remote_room::{Bound, Start};
use edgeward_kube::resources::Amounts;

/// An event that a watch may deliver.
#[derive(Debug, Clone)]
enum Event {
    Node {
        name: usize,
        millicores: u32,
        label: usize,
        cordoned: bool,
        ready: bool,
    },
    NodeGone {
        name: usize,
    },
    Pod {
        uid: usize,
        millicores: u32,
        priority: i32,
        site: usize,
        at: At,
        message: Option<u8>,
        controlled: bool,
        scheduler: usize,
        is_placeholder: bool,
    },
    PodGone {
        uid: usize,
    },
    Listed {
        kept: usize,
    },
    Managed(bool),
    /// Whether the edge and the cloud swap their labels.
    Sites(bool),
    Wait(i64),
    Publish,
}

#[derive(Debug, Clone)]
enum At {
    Nowhere,
    Bound(usize),
    Nominated(usize),
    Gated,
    Finished(usize),
}

const NODES: [&str; 4] = ["n0", "n1", "n2", "n3"];
const PODS: [&str; 8] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"];
const SCHEDULERS: [&str; 4] = ["default-scheduler", "default-scheduler", "other", "ghost"];

fn event() -> impl Strategy<Value = Event> {
    let at = prop_oneof![
        4 => Just(At::Nowhere),
        3 => (0..4_usize).prop_map(At::Bound),
        1 => (0..4_usize).prop_map(At::Nominated),
        1 => Just(At::Gated),
        1 => (0..4_usize).prop_map(At::Finished),
    ];
    let size = prop::sample::select(vec![0_u32, 100, 300, 500, 900, 5000]);
    let pod = (
        0..8_usize,
        size,
        -1..2_i32,
        0..3_usize,
        at,
        prop::option::of(0..2_u8),
        any::<bool>(),
        0..4_usize,
        any::<bool>(),
    );
    let pod = pod.prop_map(
        |(uid, millicores, priority, site, at, message, controlled, scheduler, is_placeholder)| Event::Pod {
            uid,
            millicores,
            priority,
            site,
            at,
            message,
            controlled,
            scheduler,
            is_placeholder: is_placeholder && priority < 0,
        },
    );
    let sizes = prop::sample::select(vec![0_u32, 400, 1000, 1000, 2000]);
    let node = (
        0..4_usize,
        sizes,
        0..4_usize,
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.9),
    );
    let node = node.prop_map(|(name, millicores, label, cordoned, ready)| Event::Node {
        name,
        millicores,
        label,
        cordoned,
        ready,
    });
    prop_oneof![
        6 => pod,
        3 => node,
        1 => (0..4_usize).prop_map(|name| Event::NodeGone { name }),
        2 => (0..8_usize).prop_map(|uid| Event::PodGone { uid }),
        1 => (0..256_usize).prop_map(|kept| Event::Listed { kept }),
        1 => any::<bool>().prop_map(Event::Managed),
        1 => any::<bool>().prop_map(Event::Sites),
        2 => (0..20_i64).prop_map(Event::Wait),
        4 => Just(Event::Publish),
    ]
}

impl Fixture {
    fn happen(&mut self, event: &Event, seen: &mut BTreeMap<usize, Value>) {
        match event {
            Event::Node {
                name,
                millicores,
                label,
                cordoned,
                ready,
            } => {
                let labels = [
                    json!({"node.role/edge": "true"}),
                    json!({"node.role/cloud": "true"}),
                    json!({"node.role/edge": "true", "node.role/cloud": "true"}),
                    json!({}),
                ];
                let node = with(
                    edge_node(NODES[*name], *millicores),
                    "/metadata/labels",
                    labels[*label].clone(),
                );
                let node = with(node, "/spec", json!({"unschedulable": cordoned}));
                let state = if *ready { "True" } else { "Unknown" };
                self.node(&with(
                    node,
                    "/status/conditions",
                    json!([{"type": "Ready", "status": state}]),
                ));
            }
            Event::NodeGone { name } => self.cache.delete_node(NODES[*name]),
            Event::Pod {
                uid,
                millicores,
                priority,
                site,
                at,
                message,
                controlled,
                scheduler,
                is_placeholder,
            } => {
                let selectors = [
                    json!({"node.role/edge": "true"}),
                    json!({"node.role/cloud": "true"}),
                    json!({}),
                ];
                let pod = pod(PODS[*uid], *millicores);
                let pod = with(pod, "/spec/nodeSelector", selectors[*site].clone());
                let pod = with(pod, "/spec/priority", (*priority).into());
                let pod = of(SCHEDULERS[*scheduler], pod);
                let pod = match is_placeholder {
                    true => with(pod, "/metadata/annotations", json!({})),
                    false => pod,
                };
                let pod = if *controlled {
                    pod
                } else {
                    with(pod, "/metadata/ownerReferences", Value::Null)
                };
                let pod = match message {
                    Some(0) => unschedulable(pod, "0/1 nodes are available: 1 Insufficient cpu."),
                    Some(message) => unschedulable(pod, &message.to_string()),
                    None => pod,
                };
                let pod = match at {
                    At::Nowhere => pod,
                    At::Bound(node) => bound(pod, NODES[*node]),
                    At::Nominated(node) => with(pod, "/status/nominatedNodeName", NODES[*node].into()),
                    At::Gated => with(pod, "/spec/schedulingGates", json!([{"name": "x"}])),
                    At::Finished(node) => with(bound(pod, NODES[*node]), "/status/phase", "Failed".into()),
                };
                self.pod(&pod);
                seen.insert(*uid, pod);
            }
            Event::PodGone { uid } => {
                self.cache.delete_pod(PODS[*uid]);
                seen.remove(uid);
            }
            Event::Listed { kept } => {
                self.cache.list_began(Kind::Pods);
                seen.retain(|uid, _| kept >> uid & 1 == 1);
                for pod in seen.values() {
                    self.pod(pod);
                }
                self.cache.list_ended(Kind::Pods);
            }
            Event::Managed(managed) => self.cache.apply_namespace("shop", *managed),
            Event::Sites(are_swapped) => {
                let mut labels = ["node.role/edge", "node.role/cloud"];
                if *are_swapped {
                    labels.reverse();
                }
                let sites = json!([
                    {"name": "edge", "kind": "edge", "nodeSelector": {labels[0]: "true"}},
                    {"name": "cloud", "kind": "cloud", "nodeSelector": {labels[1]: "true"}},
                ]);
                self.cache.configure(&Config::read(&json!({ "sites": sites })).unwrap());
            }
            Event::Wait(seconds) => self.wait(*seconds),
            Event::Publish => {
                let snapshot = self.publish();
                self.check(&snapshot);
            }
        }
    }

    /// Compares the incrementally updated state with a full recount.
    fn check(&self, snapshot: &Snapshot) {
        let cache = &self.cache;
        for node in snapshot.sites.iter().flat_map(Site::nodes) {
            let charging = || cache.pods.values().filter(|pod| pod.charged == Some(node.id));
            let cpu: i64 = charging().map(|pod| pod.request.cpu.0).sum();
            assert_eq!(
                (node.used.cpu.0, node.pods),
                (cpu, charging().count() as i64),
                "{}",
                node.name
            );
            let headroom = charging().filter(|pod| pod.slo.is_none());
            let headroom: i64 = headroom.map(|pod| pod.request.cpu.0).sum();
            let part: i64 = node.placeholders.iter().map(|(_, share)| share.amounts.cpu.0).sum();
            assert_eq!(part, headroom);
            let part: i64 = node.by_priority.iter().map(|(_, share)| share.amounts.cpu.0).sum();
            assert_eq!(part, cpu);
            assert!(cache.nodes[&node.id].known);
        }
        let are_anywhere = cache.nodes.values();
        let are_anywhere = are_anywhere
            .filter(|entry| entry.site.is_some())
            .any(|entry| !entry.placeholders.is_empty());
        assert_eq!(snapshot.has_placeholders, are_anywhere);
        for (at, entry) in cache.sites.iter().enumerate() {
            let members = cache.nodes.values().filter(|node| node.site == Some(at));
            let mut names: Vec<_> = members.map(|node| Arc::clone(&node.node.name)).collect();
            names.sort();
            let site = &snapshot.sites[at];
            let published: Vec<_> = site.nodes().map(|node| Arc::clone(&node.name)).collect();
            assert_eq!(published, names, "{}", entry.site.name());
        }
        let mut waiting = 0;
        let mut closing = 0;
        let mut witnesses = vec![];
        for (uid, pod) in &cache.pods {
            let Some(unbound) = &pod.unbound else {
                let expected = pod.node.filter(|_| pod.phase != Phase::Finished);
                assert_eq!(pod.charged, expected, "{uid}");
                let site = pod.node.and_then(|node| cache.nodes.get(&node)?.site);
                if site == Some(1) && pod.is_pending() {
                    match &pod.start {
                        Start::Refused(Some(bound)) => {
                            waiting += u64::from(pod.slo.is_some());
                            witnesses.push(bound);
                        }
                        Start::Refused(None) => closing += u64::from(pod.controller.is_some()),
                        Start::Silent => assert!(pod.silent_until > self.now, "{uid}"),
                        Start::Begun => panic!("{uid}"),
                    }
                }
                continue;
            };
            let fitting: Vec<_> = cache.nodes.keys().copied().filter(|id| self.fits(*id, uid)).collect();
            match (unbound.nominated, unbound.refusal) {
                (Some(_), _) => assert_eq!(pod.charged, unbound.nominated),
                (None, Some(_)) => {
                    let expected = (None, !fitting.is_empty());
                    assert_eq!((pod.charged, unbound.node.is_some()), expected, "{uid}");
                }
                (None, None) if unbound.is_expired => assert!(pod.charged.is_none(), "{uid}"),
                (None, None) => {
                    assert!(unbound.until > self.now, "{uid}");
                    match pod.charged {
                        // The pod stays on a node without room for it only if it fits no other node.
                        Some(id) if cache.unbound_pods.idle.contains(&pod.key(uid)) => {
                            assert!(fitting.iter().all(|other| *other == id), "{uid}");
                        }
                        Some(id) => {
                            let node = &cache.nodes[&id].node;
                            let is_overfull = node.used.cpu.0 > node.allocatable.cpu.0;
                            assert!(is_overfull || fitting.contains(&id), "{uid}");
                        }
                        None => assert!(fitting.is_empty(), "{uid}"),
                    }
                }
            }
            let is_refused = unbound.is_refused();
            let could_be_gated = |entry: &NodeEntry| {
                let cpu = pod.request.cpu.0;
                entry.known
                    && unbound.site.is_some()
                    && entry.site == unbound.site
                    && cpu <= entry.node.allocatable.cpu.0
            };
            let waits = is_refused && fitting.is_empty() && pod.slo.is_some();
            waiting += u64::from(waits && cache.nodes.values().any(could_be_gated));
            let closes = is_refused && !fitting.is_empty() && unbound.site.is_some();
            closing += u64::from(closes && pod.controller.is_some());
        }
        let full = &snapshot.sites[1].full;
        let pods: u64 = full.iter().map(|full| full.pods).sum();
        assert_eq!(pods, witnesses.len() as u64);
        let is_closed = |bound: &Arc<Bound>| full.iter().any(|full| full.bound.covers(bound));
        assert!(witnesses.into_iter().all(is_closed));
        assert!(snapshot.sites[0].full.is_empty());
        let counted: u64 = snapshot
            .sites
            .iter()
            .flat_map(|site| &site.queues)
            .map(|group| group.waiting)
            .sum();
        let managed = cache.managed.contains("shop");
        assert_eq!(counted, if managed { waiting } else { 0 });
        let closed: u64 = snapshot
            .sites
            .iter()
            .flat_map(|site| site.closed.iter())
            .map(|(_, _, pods)| pods)
            .sum();
        assert_eq!(closed, closing);
    }

    /// Whether the pod fits the node together with all other pods, computed from scratch.
    fn fits(&self, id: NodeId, uid: &Arc<str>) -> bool {
        let entry = &self.cache.nodes[&id];
        let pod = &self.cache.pods[uid];
        let others = self.cache.pods.iter().filter(|(other, _)| *other != uid);
        let charging: Vec<_> = others.filter(|(_, other)| other.charged == Some(id)).collect();
        // kube-scheduler evicts placeholders for this pod, so what they use counts as free.
        let is_room = |other: &PodEntry| pod.priority >= 0 && other.slo.is_none();
        let in_the_way = charging.iter().filter(|(_, other)| !is_room(other));
        let used: i64 = in_the_way.map(|(_, other)| other.request.cpu.0).sum();
        let free = entry.node.allocatable.cpu.0 - used;
        // A pod with a site considers only nodes of that site.
        self.is_open(id, pod.unbound.as_ref().unwrap()) && (pod.request.cpu.0 == 0 || pod.request.cpu.0 <= free)
    }

    /// Whether the node accepts pods like this one, apart from room.
    fn is_open(&self, id: NodeId, unbound: &Unbound) -> bool {
        let entry = &self.cache.nodes[&id];
        let selector = unbound.site.is_none() || unbound.site == entry.site;
        entry.known && entry.node.ready && !entry.node.cordoned && selector
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn incremental_cache_equals_a_full_recount(events in prop::collection::vec(event(), 1..60)) {
        let mut fixture = Fixture::new();
        let mut seen = BTreeMap::new();
        for event in &events {
            fixture.happen(event, &mut seen);
        }
        fixture.happen(&Event::Publish, &mut seen);

        // After all pods are gone, no state is left.
        for uid in PODS {
            fixture.cache.delete_pod(uid);
        }
        let snapshot = fixture.publish();
        prop_assert!(snapshot.sites.iter().flat_map(Site::nodes).all(|node| node.pods == 0 && node.used == Amounts::default()));
        prop_assert!(snapshot.sites.iter().all(|site| site.queues.is_empty() && site.closed.iter().all(|(_, _, pods)| *pods == 0)));
        for name in NODES {
            fixture.cache.delete_node(name);
        }
        fixture.publish();
        fixture.wait(600);
        let snapshot = fixture.publish();
        prop_assert!(snapshot.sites.iter().all(|site| site.full.is_empty() && site.closed.iter().next().is_none()));
        prop_assert!(fixture.cache.nodes.is_empty() && fixture.cache.names.is_empty());
        prop_assert_eq!(fixture.cache.next_change(), None);
    }
}
