use std::collections::BTreeMap;

use edgeward_decision::config::DegradedLinks;
use edgeward_decision::model::link::{Link, LinkState};
use edgeward_decision::model::scores::{Better, ProfileScores, Score, SiteScore};
use edgeward_decision::testkit;
use edgeward_decision::testkit::{NOW, with};
use edgeward_kube::node;
use edgeward_kube::units::Permille;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cache::{Cache, Kind as Watched};
use crate::pod_record;
use crate::testkit::node;
use edgeward_decision::keys::Keys;

const DWELL: u64 = 10;

/// An edge, a cloud, and the pods that the watch shows. A Deployment `web` has one revision.
struct Fixture {
    cache: Cache,
    memory: Memory,
    config: Arc<Config>,
    now: Now,
    scores: Option<[i64; 2]>,
    link: LinkState,
}

/// A Ready pod of `web` that was placed at this site.
fn pod(uid: &str, site: &str, on: &str) -> Value {
    let reason = if site == "edge" {
        "edge_feasible_slo_met"
    } else {
        "cloud_edge_no_capacity"
    };
    json!({
        "metadata": {
            "uid": uid, "namespace": "shop", "name": uid, "resourceVersion": "7", "creationTimestamp": "2025-12-31T00:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "5d4"},
            "annotations": {
                "slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000",
                "scheduling.example.io/decision-id": "00000000-0000-4000-8000-000000000001",
                "scheduling.example.io/reason": reason,
            },
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4", "uid": "rs-5d4", "controller": true}
            ],
        },
        "spec": {
            "nodeName": on,
            "nodeSelector": {format!("node.role/{site}"): "true"},
            "tolerations": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "500m"}}}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn of_cloud(uid: &str) -> Value {
    pod(uid, "cloud", "c")
}

/// A pod without an SLO that takes this much of the edge.
fn filler(cpu: &str) -> Value {
    json!({
        "metadata": {"uid": "filler", "namespace": "shop", "name": "filler", "creationTimestamp": "2025-12-31T00:00:00Z"},
        "spec": {"nodeName": "e", "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": "Running"},
    })
}

impl Fixture {
    /// An edge of 10 cores that is full of a filler, and these pods.
    fn new(pods: &[Value]) -> Self {
        Self::with(
            json!({"enabled": true, "dwell": format!("{DWELL}s"), "perMinute": 60}),
            pods,
        )
    }

    fn with(moves: Value, pods: &[Value]) -> Self {
        let config = Arc::new(Config::read(&json!({"moves": moves})).unwrap());
        let mut fixture = Self {
            cache: Cache::new(Arc::clone(&config)),
            memory: Memory::default(),
            config,
            now: NOW,
            scores: None,
            link: LinkState::Healthy,
        };
        fixture.cache.apply_namespace("shop", true);
        for node in [node("e", "edge", "10"), node("c", "cloud", "100")] {
            fixture.see_node(&node);
        }
        fixture.see(&filler("10"));
        pods.iter().for_each(|pod| fixture.see(pod));
        fixture
    }

    fn see_node(&mut self, node: &Value) {
        self.cache.apply_node(node::from_json(&node.to_string()).unwrap());
    }

    fn see(&mut self, pod: &Value) {
        let keys = Keys::new("example.io");
        let (text, names) = (pod.to_string(), Default::default());
        let record = pod_record::read_record(&text, &keys, &names, true).unwrap().unwrap();
        self.cache.apply_pod(&record, None, self.now);
    }

    fn gone(&mut self, uid: &str) {
        self.cache.pod_gone(uid, self.now.moment);
    }

    fn evaluate(&mut self) -> (MovesReport, Evaluation) {
        let link = Link {
            loss: Some(Permille(30)),
            ..testkit::link(self.link, 10, self.now.moment)
        };
        self.cache.apply_link("cloud", Some(link));
        Watched::REQUIRED
            .into_iter()
            .for_each(|kind| self.cache.record_event(kind, self.now.moment));
        let mut snapshot = self.cache.publish(self.now.moment);
        if let Some([edge, cloud]) = self.scores {
            let score = |score| SiteScore {
                by_missing: [Score(score)].into(),
                as_of: self.now.moment,
            };
            let scores = ProfileScores {
                better: Better::Lower,
                margin: Score(5),
                staleness: Micros::from_secs(60),
                preferred: None,
                sites: BTreeMap::from([("edge".into(), score(edge)), ("cloud".into(), score(cloud))]),
            };
            snapshot.profiles = Arc::new(BTreeMap::from([("green".into(), Arc::new(scores))]));
        }
        let report = MovesReport {
            pods: self.cache.members(),
        };
        let view = View {
            snapshot: &snapshot,
            ledger: &Ledger::default(),
            config: &self.config,
            now: self.now,
        };
        let evaluation = self.memory.evaluate(&report, view);
        (report, evaluation)
    }

    /// Lets a second pass. Evicts the pod whose turn it is, and returns its uid.
    fn second(&mut self) -> Option<String> {
        self.now = self.now.at(self.now.moment.after(Micros::from_secs(1)));
        let (report, evaluation) = self.evaluate();
        let outlook = &evaluation.outlooks[evaluation.next?];
        self.memory.evicted(outlook, &report, self.now.moment);
        let uid = outlook.pod.member.uid.to_string();
        self.gone(&uid);
        Some(uid)
    }

    fn seconds(&mut self, seconds: u64) -> Vec<String> {
        (0..seconds).filter_map(|_| self.second()).collect()
    }

    /// Lets seconds pass without an eviction.
    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now = self.now.at(self.now.moment.after(Micros::from_secs(1)));
            self.evaluate();
        }
    }

    fn outlook(&mut self) -> Option<(&'static str, Option<String>, Option<&'static str>)> {
        let (_, evaluation) = self.evaluate();
        let outlook = evaluation.outlooks.first()?;
        let blocker = outlook.blocker.map(Blocker::as_str);
        Some((outlook.why.as_str(), outlook.to.as_deref().map(str::to_owned), blocker))
    }

    fn blocker(&mut self) -> Option<&'static str> {
        self.outlook().unwrap().2
    }
}

/// The pod, created now.
fn young(pod: Value, now: Now) -> Value {
    with(pod, "/metadata/creationTimestamp", now.wall.to_string().into())
}

#[test]
fn pods_come_home_one_at_a_time_after_dwell() {
    let mut fixture = Fixture::new(&[of_cloud("a"), of_cloud("b")]);
    assert!(fixture.outlook().is_none());
    fixture.see(&filler("1"));
    assert_eq!(fixture.outlook(), Some(("home", Some("edge".into()), Some("dwell"))));
    assert!(fixture.seconds(DWELL - 1).is_empty());
    assert_eq!(fixture.seconds(1), ["a"]);
    // The successor has not come yet, and then is not Ready.
    assert!(fixture.seconds(2).is_empty());
    let next = young(pod("a2", "edge", "e"), fixture.now);
    fixture.see(&with(next.clone(), "/status/conditions", json!([])));
    assert!(fixture.seconds(DWELL).is_empty());
    fixture.see(&next);
    assert_eq!(fixture.seconds(1), ["b"]);
}

#[test]
fn interrupted_dwell_begins_again() {
    let mut fixture = Fixture::new(&[of_cloud("a"), of_cloud("b")]);
    for _ in 0..10 {
        fixture.see(&filler("1"));
        assert!(fixture.seconds(DWELL - 1).is_empty());
        fixture.see(&filler("10"));
        assert!(fixture.seconds(1).is_empty());
    }
}

#[test]
fn pod_is_never_moved_if_a_blocker_applies() {
    let claim = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let kind = "/metadata/ownerReferences/0/kind";
    let movable = "/metadata/annotations/slo.example.io~1movable";
    let safe = "/metadata/annotations/cluster-autoscaler.kubernetes.io~1safe-to-evict";
    for (changes, blocker) in [
        (vec![], None),
        (vec![(kind, json!("StatefulSet"))], Some("owner_kind")),
        (vec![(kind, json!("StatefulSet")), (movable, json!("true"))], None),
        (vec![(kind, json!("Job")), (movable, json!("true"))], Some("owner_kind")),
        (vec![("/metadata/ownerReferences", json!([]))], Some("no_owner")),
        (vec![(movable, json!("false"))], Some("movable_false")),
        (vec![(movable, json!("no"))], Some("movable_false")),
        (vec![(safe, json!("false"))], Some("safe_to_evict_false")),
        (vec![("/spec/volumes", claim)], Some("volume_claims")),
    ] {
        let change = |pod: Value| {
            let changes = changes.iter().cloned();
            changes.fold(pod, |pod, (pointer, value)| with(pod, pointer, value))
        };
        let mut fixture = Fixture::new(&[change(of_cloud("a")), change(of_cloud("b"))]);
        fixture.see(&filler("1"));
        assert_eq!(fixture.seconds(DWELL + 1).is_empty(), blocker.is_some(), "{changes:?}");
        let is_of_owner = |pod: &Seen| &*pod.member.uid != "filler";
        for pod in fixture.cache.members().into_iter().filter(is_of_owner) {
            assert_eq!(pod.member.blocker.map(Blocker::as_str), blocker, "{changes:?}");
        }
    }
}

#[test]
fn metrics_outage_moves_no_pod_of_a_profile() {
    let green = |uid| {
        with(
            of_cloud(uid),
            "/metadata/annotations/slo.example.io~1profile",
            "green".into(),
        )
    };
    let mut fixture = Fixture::new(&[green("a"), green("b")]);
    fixture.see(&filler("1"));
    assert!(fixture.outlook().is_none());
    // Neither site is better by the margin, so the edge comes first.
    fixture.scores = Some([10, 8]);
    assert_eq!(fixture.outlook(), Some(("home", Some("edge".into()), Some("dwell"))));
}

#[test]
fn owner_that_creates_no_other_pod_is_left_alone_for_long() {
    let mut fixture = Fixture::new(&["a", "b", "c", "d"].map(of_cloud));
    fixture.see(&filler("1"));
    assert_eq!(fixture.seconds(600), ["a"]);
    // Ten minutes without a successor, and a pause of two dwells.
    assert_eq!(fixture.seconds(640), ["b"]);
    // The next pause is twice as long.
    assert!(fixture.seconds(30).is_empty());
    assert_eq!(fixture.seconds(1), ["c"]);
}

#[test]
fn replicas_that_keep_apart_stay_apart() {
    let term = json!([{"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}]);
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    let apart = |pod: Value| with(pod, "/spec/affinity", affinity.clone());
    let mut fixture = Fixture::new(&[apart(pod("a", "edge", "e")), apart(of_cloud("b"))]);
    fixture.see(&filler("1"));
    assert!(fixture.outlook().is_none());
    fixture.gone("a");
    assert!(fixture.outlook().is_some());
}

#[test]
fn gap_between_evaluations_begins_dwell_again() {
    let mut fixture = Fixture::new(&[of_cloud("a"), of_cloud("b")]);
    fixture.see(&filler("1"));
    fixture.wait(DWELL - 1);
    fixture.now = fixture.now.at(fixture.now.moment.after(Micros::from_secs(100)));
    assert!(fixture.seconds(DWELL).is_empty());
    assert_eq!(fixture.seconds(1), ["a"]);
}

#[test]
fn owner_and_site_block_a_move() {
    let mut fixture = Fixture::new(&[of_cloud("a")]);
    fixture.see(&filler("1"));
    assert_eq!(fixture.blocker(), Some("one_replica"));
    fixture.see(&with(of_cloud("b"), "/status/conditions", json!([])));
    assert_eq!(fixture.blocker(), Some("owner_not_ready"));
    fixture.see(&of_cloud("b"));
    let other = with(of_cloud("c"), "/metadata/labels/pod-template-hash", "6f6".into());
    let other = with(other, "/metadata/ownerReferences/0/name", "web-6f6".into());
    fixture.see(&with(other, "/metadata/ownerReferences/0/uid", "rs-6f6".into()));
    assert_eq!(fixture.blocker(), Some("rollout"));
    fixture.gone("c");
    let now = fixture.now;
    fixture.see(&young(of_cloud("a"), now));
    assert_eq!(fixture.blocker(), Some("young"));
    fixture.see(&of_cloud("a"));
    let not_ready = with(
        node("c", "cloud", "100"),
        "/status/conditions/0/status",
        "Unknown".into(),
    );
    fixture.see_node(&not_ready);
    assert_eq!(fixture.blocker(), Some("site_away"));
    fixture.see_node(&node("c", "cloud", "100"));
    assert_eq!(fixture.blocker(), Some("dwell"));
    fixture.link = LinkState::Degraded;
    assert_eq!(fixture.blocker(), Some("site_away"));
    Arc::make_mut(&mut fixture.config).degraded_links = DegradedLinks::Estimate;
    fixture.cache.configure(Arc::clone(&fixture.config));
    assert_eq!(fixture.blocker(), Some("dwell"));
}

#[test]
fn keep_free_keeps_a_part_of_the_edge_free() {
    let mut fixture = Fixture::new(&[of_cloud("a"), of_cloud("b")]);
    // 1,400m are free, of which 10 % of 10 cores stay free after a move.
    fixture.see(&filler("8600m"));
    assert_eq!(fixture.blocker(), Some("keep_free"));
    fixture.see(&filler("8500m"));
    assert_eq!(fixture.blocker(), Some("dwell"));
    // A break of what stays free begins `dwell` again.
    fixture.wait(DWELL - 1);
    fixture.see(&filler("8600m"));
    fixture.wait(1);
    fixture.see(&filler("8500m"));
    assert!(fixture.seconds(DWELL).is_empty());
    assert_eq!(fixture.seconds(1), ["a"]);
}

#[test]
fn pod_that_is_still_there_was_not_evicted() {
    let mut fixture = Fixture::new(&[of_cloud("a"), of_cloud("b")]);
    fixture.see(&filler("1"));
    assert_eq!(fixture.seconds(DWELL + 1), ["a"]);
    fixture.see(&of_cloud("a"));
    assert_eq!(fixture.seconds(DWELL).len(), 1);
}

#[test]
fn refused_eviction_pauses_its_owner_twice_as_long() {
    let mut fixture = Fixture::new(&[of_cloud("a"), of_cloud("b")]);
    fixture.see(&filler("1"));
    fixture.wait(DWELL + 1);
    for pause in [60, 120, 240, 480, 960, 1_920, 3_600, 3_600] {
        let (_, evaluation) = fixture.evaluate();
        let outlook = &evaluation.outlooks[evaluation.next.unwrap()];
        fixture.memory.refused(outlook, fixture.now.moment);
        fixture.wait(pause - 1);
        assert_eq!(fixture.blocker(), Some("budget"), "{pause}");
        fixture.wait(1);
    }
}

#[test]
fn missed_move_pauses_its_owner_for_two_dwells() {
    let mut fixture = Fixture::new(&[of_cloud("a"), of_cloud("b")]);
    fixture.see(&filler("1"));
    assert_eq!(fixture.seconds(DWELL + 1), ["a"]);
    fixture.see(&young(of_cloud("a2"), fixture.now));
    let (_, evaluation) = fixture.evaluate();
    let missed: Vec<_> = evaluation.missed.iter().map(|missed| &*missed.pod.member.uid).collect();
    assert_eq!(missed, ["a2"]);
    assert!(fixture.seconds(2 * DWELL - 1).is_empty());
    assert_eq!(fixture.seconds(1).len(), 1);
}

#[test]
fn undecided_successor_stops_moves() {
    let mut fixture = Fixture::new(&[of_cloud("a"), of_cloud("b")]);
    fixture.see(&filler("1"));
    assert_eq!(fixture.seconds(DWELL + 1), ["a"]);
    // Its SLO is that of an SloPolicy, which a decision would have written.
    let undecided = with(pod("a2", "edge", "e"), "/metadata/annotations", json!({}));
    fixture.see(&undecided);
    assert!(fixture.seconds(5 * DWELL).is_empty());
    assert!(fixture.evaluate().1.is_stopped);
    fixture.gone("a2");
    fixture.see(&of_cloud("c"));
    assert_eq!(fixture.seconds(1).len(), 1);
    assert!(!fixture.evaluate().1.is_stopped);
}

#[test]
fn pod_without_node_is_replaced_after_a_minute() {
    let refused = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}]);
    let mut stuck = with(
        pod("a", "edge", ""),
        "/status",
        json!({"phase": "Pending", "conditions": refused}),
    );
    stuck["spec"].as_object_mut().unwrap().remove("nodeName");
    let mut fixture = Fixture::new(&[stuck]);
    assert!(fixture.seconds(59).is_empty());
    assert_eq!(fixture.seconds(1), ["a"]);
}

#[test]
fn pod_that_lost_its_trait_goes_where_it_is() {
    let needs = |uid: &str, on: &str| {
        with(
            pod(uid, "edge", on),
            "/metadata/annotations/slo.example.io~1traits",
            "Gpu".into(),
        )
    };
    let label = |name: &str| {
        with(
            node(name, "edge", "10"),
            "/metadata/labels/traits.edgeward.io~1Gpu",
            "true".into(),
        )
    };
    let mut fixture = Fixture::new(&[]);
    fixture.see_node(&label("e"));
    fixture.see_node(&label("f"));
    fixture.see(&needs("a", "e"));
    fixture.see(&needs("b", "f"));
    assert!(fixture.outlook().is_none());
    fixture.see_node(&node("e", "edge", "10"));
    assert_eq!(fixture.outlook(), Some(("trait", Some("edge".into()), Some("dwell"))));
    assert_eq!(fixture.seconds(DWELL), ["a"]);
    // No node has the trait any more.
    fixture.see_node(&node("f", "edge", "10"));
    assert_eq!(fixture.outlook(), Some(("trait", None, Some("one_replica"))));
}

#[test]
fn profile_moves_by_its_margin_and_not_back_within_two_dwells() {
    let green = |pod: Value| with(pod, "/metadata/annotations/slo.example.io~1profile", "green".into());
    let moves = json!({"enabled": true, "home": false, "dwell": format!("{DWELL}s"), "perMinute": 60});
    let mut fixture = Fixture::with(moves, &[green(of_cloud("a")), green(of_cloud("b"))]);
    fixture.see(&filler("1"));
    fixture.scores = Some([10, 14]);
    assert!(fixture.outlook().is_none());
    fixture.scores = Some([10, 15]);
    assert_eq!(fixture.seconds(DWELL + 1), ["a"]);
    let home = fixture.now;
    fixture.see(&young(green(pod("a2", "edge", "e")), home));
    fixture.gone("b");
    fixture.see(&young(green(pod("b2", "edge", "e")), home));
    fixture.scores = Some([15, 10]);
    let mut back = None;
    while back.is_none() {
        back = fixture.second();
    }
    assert_eq!(fixture.now.moment.since(home.moment), Micros::from_secs(2 * DWELL));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever fills the edge when, and whoever takes the room of a moved pod: no pod moves before it is as old as `dwell`, and
    /// in a constant world moves end.
    #[test]
    fn moves_are_rare_and_end(
        fills in proptest::collection::vec((0..11_u32, 1..40_u64, any::<bool>()), 1..8), pods in 2..6_usize,
    ) {
        let all: Vec<Value> = (0..pods).map(|number| of_cloud(&format!("p{number}"))).collect();
        let mut fixture = Fixture::new(&all);
        let mut created = BTreeMap::<String, Moment>::new();
        for (cpu, seconds, is_stolen) in fills.into_iter().chain([(1, 300, false)]) {
            fixture.see(&filler(&cpu.to_string()));
            let mut moved = 0;
            for _ in 0..seconds {
                let Some(uid) = fixture.second() else { continue };
                moved += 1;
                let at = fixture.now.moment;
                let age = created.get(&uid).map(|created| at.since(*created));
                prop_assert!(age.is_none_or(|age| age >= Micros::from_secs(DWELL)), "{uid} after {age:?}");
                let uid = format!("s{}", created.len());
                let next = if is_stolen { of_cloud(&uid) } else { pod(&uid, "edge", "e") };
                created.insert(uid, at);
                fixture.see(&young(next, fixture.now));
            }
            prop_assert!(is_stolen || moved <= pods, "{moved} moves of {pods} pods");
        }
    }
}
