//! Property test of a small cluster: the API server, kube-scheduler, the observer and reviews act in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::json;

use super::super::*;
use crate::config::Config;
use crate::model::snapshot::Snapshot;
use crate::model::workload::QueueKey;
use crate::placement::decide::{decide, is_within_half};
use crate::placement::ledger::tests::TTL;
use crate::placement::room::Room;
use crate::pod::Pod;
use crate::testkit;
use crate::testkit::NOW;
use edgeward_kube::node::Node;
use edgeward_kube::units::{Millicores, Now};

/// Millicores of each node.
const CORES: i64 = 1_000;
const SLOTS: i64 = 6;
const OWNERS: [(&str, Option<&str>); 3] = [("shop", Some("rs")), ("shop", None), ("bank", Some("rs"))];

#[derive(Debug, Clone)]
enum Step {
    /// The first review of a new pod.
    Review {
        owner: Index,
        millicores: i64,
    },
    /// Another review of an existing pod.
    Reinvoke {
        pod: Index,
        millicores: i64,
    },
    /// The API server stores the pod (`Create`) or rejects it (`Refuse`).
    Create(Index),
    Refuse(Index),
    /// The pod's event reaches the observer.
    Appear(Index),
    /// The observer sees the pod's binding, and its deletion.
    Bind {
        pod: Index,
        node: Option<Index>,
    },
    Delete(Index),
    /// The engine builds a snapshot, replaces the old one, and tells the ledger.
    Build,
    Store,
    Announce,
    Wait {
        ms: u64,
    },
    Replicas(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    let millicores = || 1..500_i64;
    prop_oneof![
        10 => (index(), millicores()).prop_map(|(owner, millicores)| Step::Review { owner, millicores }),
        1 => (index(), millicores()).prop_map(|(pod, millicores)| Step::Reinvoke { pod, millicores }),
        8 => index().prop_map(Step::Create),
        2 => index().prop_map(Step::Refuse),
        8 => index().prop_map(Step::Appear),
        2 => (index(), prop::option::weighted(0.3, index())).prop_map(|(pod, node)| Step::Bind { pod, node }),
        2 => index().prop_map(Step::Delete),
        4 => Just(Step::Build),
        4 => Just(Step::Store),
        4 => Just(Step::Announce),
        3 => (0..2_000_u64).prop_map(|ms| Step::Wait { ms }),
        1 => (0..4_u32).prop_map(Step::Replicas),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..120)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Life {
    Answered,
    Created,
    /// In the cache. The pod charges the node of this number there.
    Visible(usize),
    /// Rejected or deleted.
    Gone,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Promise {
    /// Nothing was reserved, or the reservation expired.
    None,
    Open {
        since: Moment,
    },
    /// The pod was seen, and snapshots show it from this revision on.
    Kept {
        shown_in: u64,
    },
}

#[derive(Debug, Clone)]
struct Model {
    owner: usize,
    request: Amounts,
    /// Node that the verdict chose.
    node: usize,
    promise: Promise,
    /// Reserved amounts: the request as the last review saw it.
    reserved: Amounts,
    /// Whether the reservation was within its namespace's share.
    is_within: bool,
    life: Life,
}

/// A snapshot, and the pods that the model expects in it: node and request by number.
#[derive(Clone)]
struct Published {
    snapshot: Snapshot,
    pods: BTreeMap<usize, (usize, Amounts)>,
}

/// Whether `kept` is within the share, given in millicores and slots.
fn is_within(kept: &Share, (cpu, slots): (i64, i64)) -> bool {
    kept.amounts.cpu.0 <= cpu && kept.pods <= slots
}

struct World {
    ledger: Ledger,
    now: Now,
    replicas: i64,
    pods: Vec<Model>,
    /// The snapshot that reviews load.
    stored: Published,
    /// A snapshot that is built and not yet stored.
    built: Option<Published>,
    /// Whether the ledger knows of the stored snapshot.
    announced: bool,
    /// By namespace: its share of the site in millicores and slots when it last kept more from others, and the number of
    /// replicas at that time.
    shares: BTreeMap<Box<str>, ((i64, i64), i64)>,
    /// False after an event that overcommits a node whatever the ledger does.
    orderly: bool,
    reached: BTreeSet<&'static str>,
}

impl World {
    fn new() -> Self {
        let nodes = ["n0", "n1", "n2"].map(|name| {
            json!({"name": name, "labels": {"node.role/edge": "true"},
                   "allocatable": {"cpu": format!("{CORES}m"), "memory": "8Ei", "pods": SLOTS}})
        });
        let fleet = json!({"sites": [{"name": "edge", "kind": "edge"}], "nodes": nodes});
        Self {
            ledger: Ledger::new(TTL),
            now: NOW,
            replicas: 1,
            pods: vec![],
            stored: Published {
                snapshot: testkit::snapshot(&fleet),
                pods: BTreeMap::new(),
            },
            built: None,
            announced: true,
            shares: BTreeMap::new(),
            orderly: true,
            reached: BTreeSet::new(),
        }
    }

    fn id(pod: usize) -> DecisionId {
        DecisionId(pod as u128 + 1)
    }

    /// Picks one of the pods that satisfy the predicate.
    fn pick(&self, index: Index, is: impl Fn(&Model) -> bool) -> Option<usize> {
        let some: Vec<usize> = (0..self.pods.len()).filter(|&pod| is(&self.pods[pod])).collect();
        (!some.is_empty()).then(|| some[index.index(some.len())])
    }

    /// The first revision that will show what the observer sees now.
    fn next(&self) -> u64 {
        let newest = self.built.as_ref().unwrap_or(&self.stored);
        newest.snapshot.revision + 1
    }

    /// Reviews a new pod with this CPU request. Its memory request is a power of two, so each sum of requests is unique.
    fn review(&mut self, owner: usize, millicores: i64) {
        if self.pods.len() == 60 {
            return;
        }
        self.expire();
        let (namespace, controller) = OWNERS[owner];
        let mut document = json!({
            "metadata": {"annotations": {"slo.example.io/class": "latency"}},
            "spec": {"containers": [{"resources": {"requests": {
                "cpu": format!("{millicores}m"), "memory": (1_u64 << self.pods.len()).to_string(),
            }}}]},
        });
        if let Some(uid) = controller {
            document["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "uid": uid, "controller": true}]);
        }
        let text = document.to_string();
        let config = Config::default();
        let workload = Pod::from_json(&text).unwrap().workload(namespace.into(), &config.keys);
        let room = Room::new(&self.stored.snapshot, &self.ledger, QueueKey::LAST, namespace);
        let verdict = decide(&workload, &room, &config, self.now);
        let Some(node) = verdict.node else {
            // The verdict found room on no node, so the model must agree.
            for at in 0..3 {
                let (taken, slots) = self.expected(at, namespace);
                assert!(
                    taken.cpu.0 + millicores > CORES || slots >= SLOTS,
                    "there was room on n{at}"
                );
            }
            self.reached.insert("a full edge");
            return;
        };
        let node_at = node.0 as usize;
        let (taken, slots) = self.expected(node_at, namespace);
        assert!(
            taken.cpu.0 + millicores <= CORES && slots < SLOTS,
            "promised {millicores}m beside {taken:?} and {slots} pods"
        );
        let reservation = Reservation::new(Self::id(self.pods.len()), &workload, "edge", node);
        let (kept, share) = self.kept_with(None, owner, &workload.request);
        let is_within = is_within(&kept, share);
        let snapshot = &self.stored.snapshot;
        assert_eq!(
            is_within_half(&kept, &workload, &snapshot.sites[0], snapshot, &config),
            is_within,
            "{kept:?}"
        );
        self.reached
            .insert(if is_within { "within a share" } else { "beyond a share" });
        self.reserve(reservation, self.now.moment, kept, share);
        self.pods.push(Model {
            owner,
            request: workload.request.clone(),
            node: node_at,
            promise: Promise::Open { since: self.now.moment },
            reserved: workload.request.clone(),
            is_within,
            life: Life::Answered,
        });
    }

    fn reserve(&mut self, reservation: Reservation, since: Moment, kept: Share, share: (i64, i64)) {
        let is_within = is_within(&kept, share);
        if is_within {
            let namespace = reservation.namespace.clone();
            self.shares.insert(namespace, (share, self.replicas));
        }
        let is_reserved = self.ledger.reserve(reservation, since, |expected| {
            assert_eq!(*expected, kept);
            is_within
        });
        assert!(is_reserved);
    }

    /// Returns what this owner's namespace keeps from others with one more pod of this request, which replaces the pod `again`.
    /// Also returns the namespace's share in millicores and slots. The share is half of the free capacity of the nodes that the
    /// pod fits in the snapshot.
    fn kept_with(&self, again: Option<usize>, owner: usize, request: &Amounts) -> (Share, (i64, i64)) {
        let mut kept = Share {
            amounts: request.clone(),
            pods: 1,
        };
        for (at, pod) in self.pods.iter().enumerate() {
            let is_same = OWNERS[pod.owner].0 == OWNERS[owner].0 && again != Some(at);
            if is_same && pod.is_within && matches!(pod.promise, Promise::Open { .. }) {
                kept.amounts.add(&pod.reserved, 1);
                kept.pods += 1;
            }
        }
        let mut all = Share::default();
        all.amounts.add(&kept.amounts, u32::try_from(self.replicas).unwrap());
        all.pods = kept.pods * self.replicas;
        let nodes = self.stored.snapshot.sites[0].nodes();
        let fitting =
            nodes.filter(|node| node.charges.used.cpu.0 + request.cpu.0 <= CORES && node.charges.pods < SLOTS);
        let free = fitting.fold((0, 0), |(cpu, slots), node| {
            (cpu + CORES - node.charges.used.cpu.0, slots + SLOTS - node.charges.pods)
        });
        (all, (free.0 / 2, free.1 / 2))
    }

    /// A review first drops expired reservations.
    fn expire(&mut self) {
        self.ledger.expire(self.now.moment);
        for pod in &mut self.pods {
            let Promise::Open { since } = pod.promise else {
                continue;
            };
            if self.now.moment.since(since) >= TTL {
                pod.promise = Promise::None;
                self.orderly &= pod.life == Life::Gone;
                self.reached.insert("an expired reservation");
            }
        }
    }

    fn appear(&mut self, at: usize) {
        let next = self.next();
        let Model {
            owner, node, promise, ..
        } = self.pods[at];
        let (namespace, _) = OWNERS[owner];
        // These carry the id, but are not the pod that the reservation was made for.
        assert_eq!(self.ledger.confirm(Self::id(at), "elsewhere", "edge", next), None);
        assert_eq!(self.ledger.confirm(Self::id(at), namespace, "cloud", next), None);
        let open = self.ledger.open();
        self.ledger.confirm(Self::id(at), namespace, "edge", next);
        assert_eq!(self.ledger.open() < open, promise != Promise::None);
        if promise != Promise::None {
            self.pods[at].promise = Promise::Kept { shown_in: next };
        }
        assert_eq!(
            self.ledger.confirm(Self::id(at), namespace, "edge", next),
            None,
            "a second time"
        );
        self.pods[at].life = Life::Visible(node);
    }

    fn build(&self) -> Published {
        let mut snapshot = self.stored.snapshot.clone();
        snapshot.revision += 1;
        let visible = self.pods.iter().enumerate().filter_map(|(at, pod)| match pod.life {
            Life::Visible(node) => Some((at, (node, pod.request.clone()))),
            _ => None,
        });
        let pods: BTreeMap<usize, (usize, Amounts)> = visible.collect();
        let charge = |node: &mut Arc<Node>| {
            let node = Arc::make_mut(node);
            (node.charges.used, node.charges.pods) = (Amounts::default(), 0);
            for (_, request) in pods.values().filter(|(at, _)| *at == node.id.0 as usize) {
                node.charges.used.add(request, 1);
                node.charges.pods += 1;
            }
        };
        Arc::make_mut(&mut snapshot.sites[0].nodes).iter_mut().for_each(charge);
        Published { snapshot, pods }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Review { owner, millicores } => self.review(owner.index(OWNERS.len()), millicores),
            Step::Reinvoke { pod, millicores } => {
                self.expire();
                let Some(at) = self.pick(pod, |pod| pod.life == Life::Answered) else {
                    return;
                };
                self.pods[at].request.cpu = Millicores(millicores);
                let (owner, request) = (self.pods[at].owner, self.pods[at].request.clone());
                let (kept, share) = self.kept_with(Some(at), owner, &request);
                let pod = &mut self.pods[at];
                let (namespace, controller) = OWNERS[owner];
                let again = match pod.promise {
                    Promise::Open { since } => {
                        pod.reserved = request;
                        pod.is_within = is_within(&kept, share);
                        let reservation = Reservation {
                            namespace: namespace.into(),
                            controller: controller.map(Into::into),
                            amount: pod.request.clone(),
                            ..testkit::reservation(at as u128 + 1, pod.node as u32, 0)
                        };
                        Some((reservation, since))
                    }
                    _ => None,
                };
                self.orderly = false;
                self.ledger.forget(Self::id(at), namespace);
                if let Some((reservation, since)) = again {
                    self.reserve(reservation, since, kept, share);
                }
            }
            Step::Create(pod) => {
                if let Some(at) = self.pick(pod, |pod| pod.life == Life::Answered) {
                    self.pods[at].life = Life::Created;
                }
            }
            Step::Refuse(pod) => {
                if let Some(at) = self.pick(pod, |pod| pod.life == Life::Answered) {
                    self.pods[at].life = Life::Gone;
                }
            }
            Step::Appear(pod) => {
                if let Some(at) = self.pick(pod, |pod| pod.life == Life::Created) {
                    self.appear(at);
                }
            }
            Step::Bind { pod, node } => {
                if let Some(at) = self.pick(pod, |pod| matches!(pod.life, Life::Visible(_))) {
                    let node = node.map_or(self.pods[at].node, |node| node.index(3));
                    self.orderly &= node == self.pods[at].node;
                    self.pods[at].life = Life::Visible(node);
                }
            }
            Step::Delete(pod) => {
                if let Some(at) = self.pick(pod, |pod| matches!(pod.life, Life::Visible(_))) {
                    self.pods[at].life = Life::Gone;
                }
            }
            Step::Build if self.built.is_none() => self.built = Some(self.build()),
            Step::Store => {
                if let Some(built) = self.built.take() {
                    self.stored = built;
                    self.announced = false;
                }
            }
            Step::Announce if !self.announced => {
                self.ledger.published(self.stored.snapshot.revision);
                self.announced = true;
            }
            Step::Wait { ms } => {
                let us = i64::try_from(ms).unwrap() * 1_000;
                self.now.moment.0 += us;
                self.now.wall += SignedDuration::from_micros(us);
            }
            Step::Replicas(ready) => {
                self.replicas = i64::from(ready.max(1));
                self.ledger.set_replicas(ready);
            }
            _ => {}
        }
    }

    /// How a review in this namespace counts the pod: its node, its amounts, and how many times. `None` if it does not count.
    fn counted(&self, at: usize, namespace: &str) -> Option<(usize, &Amounts, i64)> {
        let pod = &self.pods[at];
        if let Some((node, request)) = self.stored.pods.get(&at) {
            return Some((*node, request, 1));
        }
        match pod.promise {
            Promise::Open { .. } if pod.is_within || OWNERS[pod.owner].0 == namespace => {
                Some((pod.node, &pod.reserved, self.replicas))
            }
            Promise::Kept { shown_in } if shown_in > self.stored.snapshot.revision => {
                Some((pod.node, &pod.reserved, 1))
            }
            Promise::Open { .. } | Promise::Kept { .. } | Promise::None => None,
        }
    }

    /// Amounts and pod slots that a review in this namespace should find taken on a node.
    fn expected(&self, node: usize, namespace: &str) -> (Amounts, i64) {
        let (mut amounts, mut slots) = (Amounts::default(), 0);
        for (on, request, times) in (0..self.pods.len()).filter_map(|at| self.counted(at, namespace)) {
            if on == node {
                amounts.add(request, u32::try_from(times).unwrap());
                slots += times;
            }
        }
        (amounts, slots)
    }

    fn check(&mut self) {
        for namespace in ["shop", "bank", "another"] {
            let room = Room::new(&self.stored.snapshot, &self.ledger, QueueKey::LAST, namespace);
            for node in self.stored.snapshot.sites[0].nodes() {
                let taken = room.taken(node);
                let (amounts, slots) = self.expected(node.id.0 as usize, namespace);
                let found = (&*taken.amounts, taken.pods);
                assert_eq!(found, (&amounts, slots), "{} as {namespace} finds it", node.name);
            }
        }
        let is_open = |pod: &&Model| matches!(pod.promise, Promise::Open { .. });
        assert_eq!(self.ledger.open(), self.pods.iter().filter(is_open).count());
        self.check_shares();
        let (mut promised, mut to_all) = (BTreeMap::<&str, [i64; 3]>::new(), [0; 3]);
        for (at, pod) in self.pods.iter().enumerate() {
            // From its reservation until it is gone, a pod always counts somewhere.
            if pod.promise != Promise::None && pod.life != Life::Gone {
                let (namespace, _) = OWNERS[pod.owner];
                assert!(self.counted(at, namespace).is_some(), "pod {at} counts nowhere");
                promised.entry(namespace).or_default()[pod.node] += pod.request.cpu.0;
                to_all[pod.node] += if pod.is_within { pod.request.cpu.0 } else { 0 };
            }
            if let (Promise::Kept { shown_in }, false) = (pod.promise, self.announced) {
                if shown_in == self.stored.snapshot.revision {
                    self.reached.insert("a new snapshot of which the ledger does not know");
                }
            } else if matches!(pod.promise, Promise::Kept { shown_in } if shown_in > self.stored.snapshot.revision) {
                self.reached.insert("a seen pod that the snapshot does not show");
            }
        }
        // However often each replica counts a pod, the pods promised to one namespace fit the nodes. The pods promised to all
        // namespaces also fit, except those beyond a share.
        let fits = |cpu: &[i64; 3]| cpu.iter().all(|cpu| *cpu <= CORES);
        let is_kept = promised.values().all(fits) && fits(&to_all);
        assert!(!self.orderly || is_kept, "{promised:?} {to_all:?}");
        let all = promised
            .values()
            .fold([0; 3], |sum, cpu| [sum[0] + cpu[0], sum[1] + cpu[1], sum[2] + cpu[2]]);
        if self.orderly && !fits(&all) {
            self.reached.insert("room that two namespaces are promised");
        }
    }

    /// The unconfirmed reservations of a namespace keep no more from others than its share at the time it last kept more.
    fn check_shares(&self) {
        let mut kept = BTreeMap::<&str, (i64, i64)>::new();
        let open = self.ledger.unconfirmed().filter(|open| !open.is_beyond_half);
        for Entry { reservation, .. } in open {
            let (cpu, slots) = kept.entry(&reservation.namespace).or_default();
            *cpu += reservation.amount.cpu.0;
            *slots += 1;
        }
        for (namespace, (cpu, slots)) in kept {
            let (share, times) = self.shares[namespace];
            assert!(
                cpu * times <= share.0 && slots * times <= share.1,
                "{namespace}: {cpu}m in {slots}, of {share:?}"
            );
        }
    }
}

fn play(steps: &[Step]) -> World {
    let mut world = World::new();
    for step in steps {
        world.take(step);
        world.check();
    }
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn pod_and_its_reservation_count_once_in_any_event_order(steps in steps()) {
        play(&steps);
    }
}

#[test]
fn interleavings_reach_every_expected_state() {
    let mut runner = TestRunner::deterministic();
    let mut counts = BTreeMap::<&str, u32>::new();
    for _ in 0..500 {
        let world = play(&steps().new_tree(&mut runner).unwrap().current());
        for what in world
            .reached
            .into_iter()
            .chain(world.orderly.then_some("an orderly run"))
        {
            *counts.entry(what).or_default() += 1;
        }
    }
    for (what, least) in [
        ("a full edge", 20),
        ("an expired reservation", 150),
        ("within a share", 400),
        ("beyond a share", 150),
        ("room that two namespaces are promised", 5),
        ("a seen pod that the snapshot does not show", 150),
        ("a new snapshot of which the ledger does not know", 100),
        ("an orderly run", 30),
    ] {
        assert!(
            counts.get(what).is_some_and(|count| *count >= least),
            "{what}: {counts:#?}"
        );
    }
}
