//! Property: for any events in any order, the incrementally updated state equals a full recount.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::*;
use crate::cache::entry::{PodEntry, Unbound};
use crate::cache::tests::{Fixture, edge_node, of, pod, unschedulable, with};
use crate::pod_record::Phase;
use edgeward_decision::model::remote_room::{Bound, Start};
use edgeward_kube::node::Share;
use edgeward_kube::resources::Amounts;

/// An event that a watch may deliver. Nodes and pods are named by their index.
#[derive(Debug, Clone)]
enum Event {
    Node(Value),
    NodeGone(usize),
    Pod(usize, Value),
    PodGone(usize),
    /// A list with the pods of these bits.
    Listed(usize),
    Managed(bool),
    /// Whether the edge and the cloud swap their labels.
    Sites(bool),
    Wait(i64),
    Publish,
}

const NODES: [&str; 4] = ["n0", "n1", "n2", "n3"];
const PODS: [&str; 8] = ["p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"];
const SCHEDULERS: [&str; 4] = ["default-scheduler", "default-scheduler", "other", "ghost"];

fn node() -> impl Strategy<Value = Event> {
    let labels = [
        json!({"node.role/edge": "true"}),
        json!({"node.role/cloud": "true"}),
        json!({"node.role/edge": "true", "node.role/cloud": "true"}),
        json!({}),
    ];
    let node = (
        prop::sample::select(NODES.to_vec()),
        prop::sample::select(vec![0_u32, 400, 1000, 1000, 2000]),
        prop::sample::select(labels.to_vec()),
        prop::bool::weighted(0.1),
        prop::sample::select(vec!["Unknown", "True", "True", "True", "True", "True"]),
    );
    node.prop_map(|(name, millicores, labels, cordoned, ready)| {
        let node = with(edge_node(name, millicores), "/metadata/labels", labels);
        let node = with(node, "/spec", json!({"unschedulable": cordoned}));
        let conditions = json!([{"type": "Ready", "status": ready}]);
        Event::Node(with(node, "/status/conditions", conditions))
    })
}

fn some_pod() -> impl Strategy<Value = Event> {
    let node = || prop::sample::select(NODES.to_vec());
    // Where the pod is: changes of its spec and status.
    let at = prop_oneof![
        4 => Just(vec![]),
        3 => node().prop_map(|node| vec![("/spec/nodeName", json!(node))]),
        1 => node().prop_map(|node| vec![("/status/nominatedNodeName", json!(node))]),
        1 => Just(vec![("/spec/schedulingGates", json!([{"name": "x"}]))]),
        1 => node().prop_map(|node| vec![("/spec/nodeName", json!(node)), ("/status/phase", json!("Failed"))]),
    ];
    let sites = [
        json!({"node.role/edge": "true"}),
        json!({"node.role/cloud": "true"}),
        json!({}),
    ];
    let messages = vec!["0/1 nodes are available: 1 Insufficient cpu.", "1"];
    let parts = (
        0..8_usize,
        prop::sample::select(vec![0_u32, 100, 300, 500, 900, 5000]),
        -1..2_i32,
        prop::sample::select(sites.to_vec()),
        at,
        prop::option::of(prop::sample::select(messages)),
        any::<bool>(),
        prop::sample::select(SCHEDULERS.to_vec()),
        any::<bool>(),
    );
    parts.prop_map(
        |(uid, millicores, priority, site, at, message, controlled, scheduler, is_placeholder)| {
            let pod = with(pod(PODS[uid], millicores), "/spec/nodeSelector", site);
            let mut pod = of(scheduler, with(pod, "/spec/priority", priority.into()));
            if is_placeholder && priority < 0 {
                pod["metadata"]["annotations"] = json!({});
            }
            if !controlled {
                pod["metadata"]["ownerReferences"] = Value::Null;
            }
            if let Some(message) = message {
                pod = unschedulable(pod, message);
            }
            let placed = at
                .into_iter()
                .fold(pod, |pod, (pointer, value)| with(pod, pointer, value));
            Event::Pod(uid, placed)
        },
    )
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => some_pod(),
        3 => node(),
        1 => (0..4_usize).prop_map(Event::NodeGone),
        2 => (0..8_usize).prop_map(Event::PodGone),
        1 => (0..256_usize).prop_map(Event::Listed),
        1 => any::<bool>().prop_map(Event::Managed),
        1 => any::<bool>().prop_map(Event::Sites),
        2 => (0..20_i64).prop_map(Event::Wait),
        4 => Just(Event::Publish),
    ]
}

fn cpu_of<K>(shares: &[(K, Share)]) -> i64 {
    shares.iter().map(|(_, share)| share.amounts.cpu.0).sum()
}

impl Fixture {
    fn happen(&mut self, event: &Event, seen: &mut BTreeMap<usize, Value>) {
        match event {
            Event::Node(node) => self.node(node),
            Event::NodeGone(name) => self.cache.delete_node(NODES[*name]),
            Event::Pod(uid, pod) => {
                self.pod(pod);
                seen.insert(*uid, pod.clone());
            }
            Event::PodGone(uid) => {
                self.cache.delete_pod(PODS[*uid]);
                seen.remove(uid);
            }
            Event::Listed(kept) => {
                self.cache.list_began(Kind::Pods);
                seen.retain(|uid, _| kept >> uid & 1 == 1);
                seen.values().for_each(|pod| self.pod(pod));
                self.cache.list_ended(Kind::Pods);
            }
            Event::Managed(managed) => {
                self.cache.apply_namespace("shop", *managed);
            }
            Event::Sites(are_swapped) => {
                let mut labels = ["node.role/edge", "node.role/cloud"];
                if *are_swapped {
                    labels.reverse();
                }
                let sites = json!([
                    {"name": "edge", "kind": "edge", "nodeSelector": {labels[0]: "true"}},
                    {"name": "cloud", "kind": "cloud", "nodeSelector": {labels[1]: "true"}},
                ]);
                self.configure(Config::read(&json!({ "sites": sites })).unwrap());
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
            let charging = || cache.pods.by_uid.values().filter(|pod| pod.charged == Some(node.id));
            let cpu: i64 = charging().map(|pod| pod.request.cpu.0).sum();
            assert_eq!(
                (node.charges.used.cpu.0, node.charges.pods),
                (cpu, charging().count() as i64),
                "{}",
                node.name
            );
            let headroom = charging().filter(|pod| pod.slo.is_none());
            let headroom: i64 = headroom.map(|pod| pod.request.cpu.0).sum();
            assert_eq!(cpu_of(&node.charges.placeholders), headroom);
            assert_eq!(cpu_of(&node.charges.by_priority), cpu);
            assert!(cache.nodes.by_id[&node.id].known);
        }
        let are_anywhere = cache.nodes.by_id.values();
        let are_anywhere = are_anywhere
            .filter(|entry| entry.site.is_some())
            .any(|entry| !entry.node.charges.placeholders.is_empty());
        assert_eq!(snapshot.has_placeholders, are_anywhere);
        for (at, entry) in cache.sites.iter().enumerate() {
            let members = cache.nodes.by_id.values().filter(|node| node.site == Some(at));
            let mut names: Vec<_> = members.map(|node| Arc::clone(&node.node.name)).collect();
            names.sort();
            let site = &snapshot.sites[at];
            let published: Vec<_> = site.nodes().map(|node| Arc::clone(&node.name)).collect();
            assert_eq!(published, names, "{}", entry.site.name());
        }
        let mut waiting = 0;
        let mut closing = 0;
        let mut witnesses = vec![];
        for (uid, pod) in &cache.pods.by_uid {
            let Some(unbound) = &pod.unbound else {
                let expected = pod.node.filter(|_| pod.phase != Phase::Finished);
                assert_eq!(pod.charged, expected, "{uid}");
                let site = pod.node.and_then(|node| cache.nodes.by_id.get(&node)?.site);
                if site == Some(1) && pod.is_pending() {
                    match &pod.start {
                        Start::Refused(Some(bound)) => {
                            waiting += u64::from(pod.slo.is_some());
                            witnesses.push(bound);
                        }
                        Start::Refused(None) => closing += u64::from(pod.controller.is_some()),
                        Start::Silent => assert!(pod.until > self.now, "{uid}"),
                        Start::Begun => panic!("{uid}"),
                    }
                }
                continue;
            };
            let fitting: Vec<_> = cache
                .nodes
                .by_id
                .keys()
                .copied()
                .filter(|id| self.fits(*id, uid))
                .collect();
            match (unbound.nominated, unbound.refusal) {
                (Some(_), _) => assert_eq!(pod.charged, unbound.nominated),
                (None, Some(_)) => {
                    let expected = (None, !fitting.is_empty());
                    assert_eq!((pod.charged, unbound.node.is_some()), expected, "{uid}");
                }
                (None, None) if unbound.is_expired => assert!(pod.charged.is_none(), "{uid}"),
                (None, None) => {
                    assert!(pod.until > self.now, "{uid}");
                    match pod.charged {
                        // The pod stays on a node without room for it only if it fits no other node.
                        Some(id) if cache.pods.unbound.idle.contains(&pod.key(uid)) => {
                            assert!(fitting.iter().all(|other| *other == id), "{uid}");
                        }
                        Some(id) => {
                            let node = &cache.nodes.by_id[&id].node;
                            let is_overfull = node.charges.used.cpu.0 > node.allocatable.cpu.0;
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
            waiting += u64::from(waits && cache.nodes.by_id.values().any(could_be_gated));
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
        let entry = &self.cache.nodes.by_id[&id];
        let pod = &self.cache.pods.by_uid[uid];
        let others = self.cache.pods.by_uid.iter().filter(|(other, _)| *other != uid);
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
        let entry = &self.cache.nodes.by_id[&id];
        let selector = unbound.site.is_none() || unbound.site == entry.site;
        entry.known && entry.node.state.ready && !entry.node.state.cordoned && selector
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
        prop_assert!(snapshot.sites.iter().flat_map(Site::nodes).all(|node| node.charges.pods == 0 && node.charges.used == Amounts::default()));
        prop_assert!(snapshot.sites.iter().all(|site| site.queues.is_empty() && site.closed.iter().all(|(_, _, pods)| *pods == 0)));
        for name in NODES {
            fixture.cache.delete_node(name);
        }
        fixture.publish();
        fixture.wait(600);
        let snapshot = fixture.publish();
        prop_assert!(snapshot.sites.iter().all(|site| site.full.is_empty() && site.closed.iter().next().is_none()));
        prop_assert!(fixture.cache.nodes.by_id.is_empty() && fixture.cache.nodes.ids.is_empty());
        prop_assert_eq!(fixture.cache.next_change(), None);
    }
}
