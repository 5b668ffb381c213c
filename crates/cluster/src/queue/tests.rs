mod budget;
mod groups;
mod sites;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use edgeward_decision::keys::Keys;
use edgeward_decision::model::priority_caps::PriorityCaps;
use edgeward_decision::model::queue_claims::QueueClaim;
use edgeward_decision::placement::decide::decide;
use edgeward_decision::placement::ledger::Reservation;
use edgeward_decision::placement::room::Room;
use edgeward_decision::pod::Pod;
use edgeward_decision::testkit;
use edgeward_decision::testkit::{NOW, cpu};

const GATE: &str = "scheduling.example.io/awaiting-capacity";

/// Edge nodes of one core each, with these millicores used, and a cloud that does not answer.
fn fleet(used: &[i64]) -> Value {
    let node = |(i, used): (usize, &i64)| {
        json!({"name": format!("e{i}"), "labels": {"node.role/edge": "true"},
               "allocatable": {"cpu": "1", "memory": "8Gi", "pods": 110}, "used": {"cpu": format!("{used}m"), "pods": 1}})
    };
    json!({
        "sites": [{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud", "wan": {"reachable": false}}],
        "nodes": used.iter().enumerate().map(node).collect::<Vec<_>>(),
    })
}

/// A pod gated for this many seconds.
#[derive(Debug, Clone)]
struct Gated {
    name: String,
    millicores: i64,
    priority: i32,
    slo_priority: u8,
    seconds: i64,
}

fn gated(name: &str, millicores: i64, slo_priority: u8, seconds: i64) -> Gated {
    let (name, priority) = (name.to_owned(), 0);
    Gated {
        name,
        millicores,
        priority,
        slo_priority,
        seconds,
    }
}

impl Gated {
    fn document(&self) -> Value {
        let at = (NOW.wall - jiff::SignedDuration::from_secs(self.seconds)).to_string();
        json!({
            "metadata": {
                "name": self.name, "namespace": "shop", "uid": self.name, "resourceVersion": "1", "creationTimestamp": at,
                "annotations": {
                    "slo.example.io/class": "batch", "slo.example.io/priority": self.slo_priority.to_string(),
                    "scheduling.example.io/timestamp": at, "scheduling.example.io/reason": "held_no_capacity",
                },
            },
            "spec": {
                "priority": self.priority, "schedulingGates": [{"name": GATE}],
                "containers": [{"resources": {"requests": {"cpu": format!("{}m", self.millicores)}}}],
            },
        })
    }
}

fn read(document: &Value) -> Arc<GatedPod> {
    crate::testkit::record(document, &Keys::new("example.io"))
        .gated_pod
        .unwrap()
}

fn waitlist(pods: &[Gated]) -> Waitlist {
    let mut waitlist = Waitlist::default();
    pods.iter().for_each(|pod| waitlist.apply(read(&pod.document()), NOW));
    waitlist
}

/// The steps of a plan, in order: pod and action.
fn steps(plan: &Plan) -> Vec<(String, PlanAction)> {
    plan.entries
        .iter()
        .map(|step| (step.pod.name.to_string(), step.action))
        .collect()
}

fn plan_with(waitlist: &mut Waitlist, fleet: &Value, ledger: &Ledger) -> Plan {
    let snapshot = testkit::snapshot(fleet);
    waitlist.plan(
        &snapshot,
        ledger,
        &Config::default(),
        |namespace| namespace == "shop",
        NOW,
    )
}

fn plan(pods: &[Gated], fleet: &Value) -> (Waitlist, Plan) {
    let mut waitlist = waitlist(pods);
    let plan = plan_with(&mut waitlist, fleet, &Ledger::default());
    (waitlist, plan)
}

/// The queue claims by pod: the node, and whether there is room for the pod now.
fn claims(waitlist: &Waitlist) -> BTreeMap<String, (u32, bool)> {
    let claims = waitlist.claims();
    let claims = claims.iter();
    claims
        .map(|claim| (claim.uid.to_string(), (claim.node.0, claim.has_room)))
        .collect()
}

#[test]
fn placeholder_room_is_claimed_only_once() {
    let placeholder = json!([{"priority": -10, "graceSeconds": 0, "used": {"cpu": "600m", "pods": 1}}]);
    let mut fleet = fleet(&[1000]);
    let (_, plan_without) = plan(&[gated("a", 500, 5, 9)], &fleet);
    assert_eq!(steps(&plan_without), []);
    fleet["nodes"][0]["placeholders"] = placeholder;
    let (waitlist, plan) = plan(
        &[gated("a", 400, 5, 9), gated("b", 400, 5, 8), gated("c", 200, 5, 7)],
        &fleet,
    );
    let released = ["a", "c"].map(|name| (name.to_owned(), PlanAction::Release));
    assert_eq!(steps(&plan), released);
    assert_eq!(
        claims(&waitlist),
        [("a".into(), (0, true)), ("c".into(), (0, true))].into()
    );
    // An arriving pod finds nothing left of the room.
    let snapshot = testkit::snapshot(&fleet);
    let claims = waitlist.claims();
    let arriving = |millicores: i64| {
        let text = gated("d", millicores, 5, 0).document().to_string();
        let pod = Pod::from_json(&text).unwrap();
        let config = Config::default();
        let workload = Workload {
            gates: vec![],
            ..pod.workload("shop".into(), &config.keys)
        };
        let (ledger, queue_key) = (Ledger::default(), workload.queue_key(&config.priority_caps, None));
        let room = Room::beside(&snapshot, &ledger, &claims, queue_key, "shop");
        decide(&workload, &room, &config, NOW).reason.as_str()
    };
    assert_eq!(arriving(1), "held_no_capacity");
    assert_eq!(arriving(0), "edge_no_slo_target");
}

/// The pod with a deadline and a processing time at the edge, both in seconds.
fn with_times(pod: &Gated, deadline: i64, work: i64) -> Arc<GatedPod> {
    let mut document = pod.document();
    document["metadata"]["annotations"]["slo.example.io/deadlineMs"] = (1_000 * deadline).to_string().into();
    document["metadata"]["annotations"]["slo.example.io/processingMs"] = (1_000 * work).to_string().into();
    read(&document)
}

fn with_deadline(pod: &Gated, seconds: i64) -> Arc<GatedPod> {
    with_times(pod, seconds, 1)
}

#[test]
fn pod_too_late_for_a_cloud_does_not_block_younger_pods() {
    // Work of 5 s takes 20 s in the cloud.
    let mut fleet = fleet(&[1_000]);
    fleet["sites"][1] =
        json!({"name": "cloud", "kind": "cloud", "speedFactor": 0.25, "wan": {"rttMs": 20, "lossPct": 0}});
    let virtual_node =
        json!({"name": "v", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": "9", "pods": 9}});
    fleet["nodes"].as_array_mut().unwrap().push(virtual_node);
    let mut waitlist = Waitlist::default();
    for (name, seconds) in [("old", 42), ("young", 35)] {
        waitlist.apply(with_times(&gated(name, 400, 5, seconds), 60, 5), NOW);
    }
    let plan = plan_with(&mut waitlist, &fleet, &Ledger::default());
    assert_eq!(steps(&plan), [("young".to_owned(), PlanAction::Release)]);
}

#[test]
fn plan_is_due_when_cloud_is_away_as_long_as_pod_can_wait() {
    let mut snapshot = testkit::snapshot(&fleet(&[1_000]));
    let began = NOW.moment.before(Micros::from_secs(95));
    snapshot.sites[1].away_since = Some(began);
    let mut waitlist = Waitlist::default();
    // The pod may be gated for 99 s and has been for one second.
    waitlist.apply(with_deadline(&gated("pod", 400, 5, 1), 100), NOW);
    waitlist.plan(&snapshot, &Ledger::default(), &Config::default(), |_| true, NOW);
    assert_eq!(waitlist.due, Some(began.after(Micros::from_secs(99))));
}

#[test]
fn late_pod_is_released_after_equal_pods_in_time() {
    let late = with_deadline(&gated("late", 400, 5, 10), 10);
    let just = with_deadline(&gated("just", 400, 5, 9), 10);
    let without = read(&gated("without", 400, 5, 8).document());
    let important = with_deadline(&gated("important", 100, 6, 60), 10);
    let order = |pods: &[&Arc<GatedPod>], free: i64| {
        let mut waitlist = Waitlist::default();
        pods.iter().for_each(|pod| waitlist.apply(Arc::clone(pod), NOW));
        let plan = plan_with(&mut waitlist, &fleet(&[1_000 - free]), &Ledger::default());
        let released = plan.entries.iter().filter(|step| step.action == PlanAction::Release);
        let names = released.map(|step| step.pod.name.to_string()).collect::<Vec<_>>();
        (names, waitlist.due)
    };
    assert_eq!(
        order(&[&late, &just, &without, &important], 900).0,
        ["important", "just", "without"]
    );
    // One second later the second pod is late as well, so the next plan is due then.
    let (names, due) = order(&[&late, &just], 0);
    assert_eq!(names, [""; 0]);
    assert_eq!(due, Some(NOW.moment.after(Micros::from_secs(1))));
}

#[test]
fn room_goes_to_pods_by_priority_then_age() {
    let mut important = gated("important", 400, 0, 1);
    important.priority = 1;
    let pods = [
        gated("young", 400, 9, 1),
        gated("old", 400, 9, 2),
        gated("minor", 100, 8, 50),
        important,
    ];
    let (waitlist, plan) = plan(&pods, &fleet(&[0]));
    let released = |name: &str| (name.to_owned(), PlanAction::Release);
    assert_eq!(steps(&plan), ["important", "old", "minor"].map(released));
    assert_eq!(
        claims(&waitlist),
        ["important", "minor", "old"]
            .map(|name| (name.to_owned(), (0, true)))
            .into()
    );
    assert_eq!(
        (plan.gated, plan.oldest),
        (4, Some(NOW.moment.before(Micros::from_secs(50))))
    );
}

#[test]
fn wildcard_priority_cap_orders_unlisted_namespace_by_age() {
    let pods = [gated("young", 400, 9, 1), gated("old", 400, 5, 2)];
    let released = |caps: &[(&str, u8)]| {
        let caps = caps.iter().map(|(namespace, cap)| ((*namespace).into(), *cap));
        let config = Config {
            priority_caps: PriorityCaps(caps.collect()),
            ..Config::default()
        };
        let plan = waitlist(&pods).plan(
            &testkit::snapshot(&fleet(&[600])),
            &Ledger::default(),
            &config,
            |namespace| namespace == "shop",
            NOW,
        );
        steps(&plan)
    };
    let first = |name: &str| vec![(name.to_owned(), PlanAction::Release)];
    assert_eq!(released(&[]), first("young"));
    assert_eq!(released(&[("other", 3)]), first("young"));
    assert_eq!(released(&[("*", 3)]), first("old"));
    assert_eq!(released(&[("*", 3), ("shop", 10)]), first("young"));
}

#[test]
fn released_pod_is_not_released_again_and_counts_once() {
    let pods = [gated("first", 400, 9, 2), gated("second", 400, 9, 1)];
    let mut waitlist = waitlist(&pods);
    let mut ledger = Ledger::new(Micros::from_secs(3));
    ledger.set_replicas(3);
    assert!(ledger.reserve(
        Reservation {
            releases: Some("first".into()),
            ..testkit::reservation(1, 0, 400)
        },
        NOW.moment,
        |_| false,
    ));
    let plan = plan_with(&mut waitlist, &fleet(&[200]), &ledger);
    assert_eq!(steps(&plan), [("second".to_owned(), PlanAction::Release)]);
    // The release was never seen, so the room is claimed again.
    ledger.expire(NOW.moment.after(Micros::from_secs(3)));
    let plan = plan_with(&mut waitlist, &fleet(&[200]), &ledger);
    assert_eq!(
        steps(&plan),
        ["first", "second"].map(|name| (name.to_owned(), PlanAction::Release))
    );
}

#[test]
fn reservation_beyond_share_blocks_only_its_namespace() {
    let reserved = |namespace: &str, is_within_half: bool| {
        let mut ledger = Ledger::new(Micros::from_secs(3));
        let reservation = Reservation {
            namespace: namespace.into(),
            ..testkit::reservation(1, 0, 400)
        };
        assert!(ledger.reserve(reservation, NOW.moment, |_| is_within_half));
        ledger
    };
    let released = |ledger: &Ledger| {
        let plan = plan_with(&mut waitlist(&[gated("a", 400, 5, 9)]), &fleet(&[500]), ledger);
        !steps(&plan).is_empty()
    };
    assert!(released(&reserved("bank", false)));
    assert!(!released(&reserved("bank", true)));
    assert!(!released(&reserved("shop", false)));
}

#[test]
fn pod_gated_for_60_s_claims_the_closest_node() {
    let fleet = fleet(&[700, 500, 600]);
    let (waitlist, plan) = plan(&[gated("large", 900, 5, 59), gated("small", 300, 5, 1)], &fleet);
    assert_eq!(steps(&plan), [("small".to_owned(), PlanAction::Release)]);
    assert_eq!(claims(&waitlist).keys().collect::<Vec<_>>(), ["small"]);
    // There is one claim for the node, and the other pods get what is left.
    let (waitlist, plan) = self::plan(
        &[
            gated("large", 900, 5, 61),
            gated("larger", 950, 5, 60),
            gated("small", 300, 5, 1),
        ],
        &fleet,
    );
    assert_eq!(steps(&plan), [("small".to_owned(), PlanAction::Release)]);
    let expected = [("large", (1, false)), ("larger", (2, false)), ("small", (0, true))];
    assert_eq!(
        claims(&waitlist),
        expected.map(|(name, claim)| (name.to_owned(), claim)).into()
    );
    // The claim holds until the pod's class limit.
    let (waitlist, plan) = self::plan(&[gated("large", 900, 5, 300)], &fleet);
    assert_eq!(steps(&plan), [("large".to_owned(), PlanAction::Release)]);
    assert_eq!(claims(&waitlist), BTreeMap::new());
}

#[test]
fn anti_affinity_replicas_claim_one_node_each() {
    let term = json!({"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"});
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let plan = |used: &[i64]| {
        let mut waitlist = Waitlist::default();
        for replica in [gated("first", 100, 5, 70), gated("second", 100, 5, 65)] {
            let mut document = replica.document();
            document["metadata"]["labels"] = json!({"app": "web"});
            document["spec"]["affinity"] = affinity.clone();
            waitlist.apply(read(&document), NOW);
        }
        plan_with(&mut waitlist, &fleet(used), &Ledger::default());
        claims(&waitlist)
    };
    let claimed = |claims: &[(&str, (u32, bool))]| {
        claims
            .iter()
            .map(|(name, claim)| ((*name).to_owned(), *claim))
            .collect()
    };
    assert_eq!(plan(&[0, 0]), claimed(&[("first", (0, true)), ("second", (1, true))]));
    assert_eq!(
        plan(&[0, 1000]),
        claimed(&[("first", (0, true)), ("second", (1, false))])
    );
    assert_eq!(plan(&[0]), claimed(&[("first", (0, true))]));
}

#[test]
fn pod_whose_companions_leave_is_decided_again() {
    let mut document = gated("near", 100, 5, 9).document();
    let term = json!({"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"});
    document["spec"]["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    let mut waitlist = Waitlist::default();
    assert!(!waitlist.waits_for_pods());
    waitlist.apply(read(&document), NOW);
    assert!(waitlist.waits_for_pods());
    let mut fleet = fleet(&[0]);
    let sites = fleet["sites"].as_array_mut().unwrap();
    sites.push(json!({"name": "far", "kind": "cloud", "nodeSelector": {"no": "node"}}));
    let far = sites.len() - 1;
    sites[far]["labelledPods"] = json!({"shop": {"app=db": 1}});
    document["metadata"]["annotations"]["slo.example.io/offloadAllowed"] = json!("false");
    waitlist.apply(read(&document), NOW);
    let plan = plan_with(&mut waitlist, &fleet, &Ledger::default());
    assert!(
        plan.entries.iter().all(|step| step.action != PlanAction::Release),
        "{plan:?}"
    );
    fleet["sites"][far]["labelledPods"] = json!({});
    let plan = plan_with(&mut waitlist, &fleet, &Ledger::default());
    assert_eq!(steps(&plan), [("near".to_owned(), PlanAction::Release)]);
}

#[test]
fn unmanaged_gated_pod_loses_its_gate() {
    let mut waitlist = Waitlist::default();
    let mut elsewhere = gated("elsewhere", 100, 5, 9).document();
    elsewhere["metadata"]["namespace"] = json!("other");
    let mut opted_out = gated("opted-out", 100, 5, 9).document();
    opted_out["metadata"]["labels"] = json!({"scheduling.example.io/managed": "false"});
    let mut queued = gated("queued", 100, 5, 9).document();
    queued["spec"]["schedulingGates"] = json!([{"name": "queue"}, {"name": GATE}]);
    for document in [elsewhere, opted_out, queued] {
        waitlist.apply(read(&document), NOW);
    }
    let plan = |waitlist: &mut Waitlist, now| {
        let snapshot = testkit::snapshot(&fleet(&[0]));
        let plan = waitlist.plan(
            &snapshot,
            &Ledger::default(),
            &Config::default(),
            |name| name == "shop",
            now,
        );
        steps(&plan).into_iter().collect::<BTreeMap<_, _>>()
    };
    let of_shop = BTreeMap::from([
        ("opted-out".to_owned(), PlanAction::RemoveGate(Reason::OptedOut)),
        ("queued".to_owned(), PlanAction::UpdateReason(Reason::HeldForeignGate)),
    ]);
    // The namespace may have opted in a moment ago.
    assert_eq!(plan(&mut waitlist, NOW), of_shop);
    let later = Now {
        moment: NOW.moment.after(Micros::from_secs(5)),
        ..NOW
    };
    assert!(waitlist.wants_plan(later.moment));
    let mut all = of_shop;
    all.insert("elsewhere".to_owned(), PlanAction::RemoveGate(Reason::NotManaged));
    assert_eq!(plan(&mut waitlist, later), all);
}

/// The end of the pause after a small plan.
const SOON: Moment = Moment(NOW.moment.0 + 1_000);

/// Applies a change of the nodes that gained and lost room.
fn apply_delta(waitlist: &mut Waitlist, gained: &[u32], lost: &[u32], is_stale: bool) {
    let nodes = |ids: &[u32]| ids.iter().copied().map(NodeId).collect();
    let delta = RoomDelta {
        gained: nodes(gained),
        lost: nodes(lost),
        ..RoomDelta::default()
    };
    waitlist.apply_delta(&delta, 0, is_stale);
}

/// Whether a pod of 100 millicores with this queue key finds room on this node.
fn finds_room(waitlist: &Waitlist, fleet: &Value, node: usize, queue_key: QueueKey) -> bool {
    let (snapshot, ledger, claims) = (testkit::snapshot(fleet), Ledger::default(), waitlist.claims());
    let room = Room::beside(&snapshot, &ledger, &claims, queue_key, "shop");
    room.fits(&cpu(100), &snapshot.sites[0].nodes[node])
}

fn queue_key(waitlist: &Waitlist, name: &str) -> QueueKey {
    waitlist.pods[name].pod.queue_key(&Config::default()).unwrap()
}

#[test]
fn plan_stands_until_a_relevant_change() {
    let fleet = fleet(&[0]);
    let (mut waitlist, _) = plan(&[gated("fits", 400, 5, 1), gated("waits", 700, 5, 1)], &fleet);
    let due = waitlist.next_change().unwrap();
    assert_eq!(
        due,
        NOW.moment.after(Micros::from_secs(29)),
        "nobody terminates so long"
    );
    assert!(waitlist.wants_plan(due) && !waitlist.wants_plan(due.before(Micros(1))));
    apply_delta(&mut waitlist, &[], &[1], false);
    waitlist.retain(|_| true);
    waitlist.delete("nobody");
    assert!(!waitlist.wants_plan(SOON));
    let changes: [&dyn Fn(&mut Waitlist); 3] = [
        &|waitlist| apply_delta(waitlist, &[1], &[], false),
        &|waitlist| apply_delta(waitlist, &[], &[0], false),
        &|waitlist| waitlist.delete("fits"),
    ];
    for change in changes {
        change(&mut waitlist);
        assert!(waitlist.wants_plan(SOON));
        plan_with(&mut waitlist, &fleet, &Ledger::default());
        assert!(!waitlist.wants_plan(SOON));
    }
}

#[test]
fn plan_is_wanted_when_snapshot_turns_stale_or_fresh() {
    let fleet = fleet(&[500]);
    let (mut waitlist, plan) = plan(&[gated("waits", 700, 5, 1)], &fleet);
    assert_eq!(steps(&plan), []);
    let old = NOW.moment.after(Micros::from_secs(61));
    waitlist.due = None;
    apply_delta(&mut waitlist, &[], &[], true);
    assert!(waitlist.wants_plan(old));
    let snapshot = testkit::snapshot(&fleet);
    let later = NOW.at(old);
    waitlist.plan(&snapshot, &Ledger::default(), &Config::default(), |_| true, later);
    waitlist.due = None;
    apply_delta(&mut waitlist, &[], &[], true);
    let soon = old.after(Micros::from_millis(1));
    assert!(!waitlist.wants_plan(soon));
    apply_delta(&mut waitlist, &[], &[], false);
    assert!(waitlist.wants_plan(soon));
}

#[test]
fn plan_pauses_by_cost_and_new_room_keeps_queue_order() {
    let before = fleet(&[1_000, 500]);
    let pods = [gated("waits", 600, 5, 9), gated("later", 700, 5, 5)];
    let (mut waitlist, _) = plan(&pods, &before);
    apply_delta(&mut waitlist, &[0], &[], false);
    // Two pods, each compared with two nodes.
    let comparisons = 2 * (PER_POD + 2);
    let resumes = NOW
        .moment
        .after(Micros((comparisons * PAUSE_NANOSECONDS / 1_000) as u64));
    assert!(!waitlist.wants_plan(resumes.before(Micros(1))) && waitlist.wants_plan(resumes));
    assert_eq!(waitlist.next_change(), Some(resumes));
    let after = fleet(&[0, 500]);
    let may = |waitlist: &Waitlist, name: &str| {
        [0, 1].map(|node| finds_room(waitlist, &after, node, queue_key(waitlist, name)))
    };
    assert_eq!(may(&waitlist, "waits"), [true, true]);
    assert_eq!(may(&waitlist, "later"), [false, true], "it would pass who waits");
    plan_with(&mut waitlist, &after, &Ledger::default());
    assert_eq!(may(&waitlist, "later"), [true, true], "beside the claim");
}

#[test]
fn pods_with_different_runtime_class_are_decided_separately() {
    // The cloud adds its RuntimeClass to a pod without one. That cannot be done after creation, so such a pod is not gated.
    let mut fleet = fleet(&[1_000]);
    fleet["sites"][1]["runtimeClassName"] = json!("sandboxed");
    let virtual_node =
        json!({"name": "v", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": "9", "pods": 9}});
    fleet["nodes"].as_array_mut().unwrap().push(virtual_node);
    let mut own = gated("own", 400, 5, 40).document();
    own["spec"]["runtimeClassName"] = json!("own");
    let mut waitlist = waitlist(&[gated("none", 400, 5, 35)]);
    waitlist.apply(read(&own), NOW);
    let plan = plan_with(&mut waitlist, &fleet, &Ledger::default());
    assert_eq!(steps(&plan), [("none".to_owned(), PlanAction::Release)]);
}

#[test]
fn alike_pods_without_room_cost_a_decision_per_age_and_claim() {
    let pods: Vec<_> = (1..300)
        .map(|seconds| gated(&format!("p{seconds:03}"), 400, 5, seconds))
        .collect();
    let (waitlist, plan) = plan(&pods, &fleet(&[1_000, 1_000]));
    assert_eq!(steps(&plan), []);
    assert_eq!(claims(&waitlist).len(), 2, "one for each node");
    assert_eq!(plan.decisions, 2 + 3);
}

#[test]
fn pods_of_unknown_controllers_share_one_decision() {
    let of_job = |job: &str, seconds| {
        let mut pod = gated(&format!("{job}-{seconds}"), 400, 5, seconds).document();
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true}]);
        read(&pod)
    };
    let mut waitlist = Waitlist::default();
    for seconds in 31..60 {
        waitlist.apply(of_job(&format!("job{seconds}"), seconds), NOW);
    }
    let plan = plan_with(&mut waitlist, &fleet(&[1_000]), &Ledger::default());
    assert_eq!((plan.gated, plan.decisions), (29, 1));
    // The site may be closed to one of the controllers.
    let mut fleet = fleet(&[1_000]);
    fleet["sites"][0]["closed"] = json!({"shop": {"job40": 1}});
    let plan = plan_with(&mut waitlist, &fleet, &Ledger::default());
    assert_eq!((plan.gated, plan.decisions), (29, 2));
}

/// The pod with an affinity that is too long to keep.
fn with_long_affinity(mut document: Value) -> Value {
    let hosts: Vec<_> = (0..2_500).map(|i| format!("e{i}")).collect();
    document["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "host", "operator": "NotIn", "values": hosts}]}],
    }}});
    document
}

#[test]
fn pod_with_long_affinity_takes_no_room_and_leaves_at_limit() {
    let heavy = |seconds| read(&with_long_affinity(gated("heavy", 400, 9, seconds).document()));
    assert!(heavy(299).workload.is_none());
    let plan = |seconds| {
        let mut waitlist = waitlist(&[gated("first", 400, 9, 10), gated("last", 500, 5, 1)]);
        waitlist.apply(heavy(seconds), NOW);
        let plan = plan_with(&mut waitlist, &fleet(&[0]), &Ledger::default());
        assert_eq!((plan.gated, plan.decisions), (3, 2));
        assert_eq!(claims(&waitlist).keys().collect::<Vec<_>>(), ["first", "last"]);
        let is_soon = |due: Moment| due <= NOW.moment.after(Micros::from_secs(1));
        assert!(seconds > 299 || waitlist.due.is_some_and(is_soon), "{:?}", waitlist.due);
        steps(&plan).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(plan(299), ["first", "last"]);
    assert_eq!(plan(300), ["first", "last", "heavy"]);
}

#[test]
fn managed_long_affinity_pods_leave_first_oldest_first() {
    let mut waitlist = Waitlist::default();
    let mut apply = |name: &str, namespace: &str, created: i64, stated: i64| {
        let mut document = with_long_affinity(gated(name, 400, 9, stated).document());
        document["metadata"]["namespace"] = json!(namespace);
        document["metadata"]["creationTimestamp"] =
            json!((NOW.wall - jiff::SignedDuration::from_secs(created)).to_string());
        waitlist.apply(read(&document), NOW.at(NOW.moment.before(Micros::from_secs(10))));
    };
    apply("a", "elsewhere", 900, 9_000);
    apply("b", "shop", 310, 9_000);
    apply("c", "shop", 320, 310);
    let plan = plan_with(&mut waitlist, &fleet(&[0]), &Ledger::default());
    let names: Vec<_> = plan.entries.iter().map(|step| &*step.pod.name).collect();
    assert_eq!(names, ["c", "b", "a"]);
}

#[test]
fn gated_time_starts_as_stated_within_creation_and_now() {
    // Seconds ago: creation and the stated time, and then the start; negative in the future. The limit is 300 s later.
    for (created, stated, since) in [(20, -60, 20), (2, 300, 2), (300, 2, 2), (-60, 300, 0), (-60, -60, 0)] {
        let mut document = gated("clock", 2_000, 5, stated).document();
        let created_at = NOW.wall - jiff::SignedDuration::from_secs(created);
        document["metadata"]["creationTimestamp"] = json!(created_at.to_string());
        let mut waitlist = Waitlist::default();
        waitlist.apply(read(&document), NOW);
        // It does not begin again when the pod is seen again.
        waitlist.apply(read(&document), NOW.at(NOW.moment.after(Micros::from_secs(7))));
        let began = NOW.moment.before(Micros::from_secs(since));
        assert_eq!(waitlist.pods["clock"].since, began, "{created} {stated}");
        if created > 0 {
            let limit = NOW.wall + jiff::SignedDuration::from_secs(300 - since as i64);
            assert_eq!(read(&document).limit(&Config::default(), NOW.wall), Some(limit));
        }
    }
}

#[test]
fn rewritten_timestamp_does_not_extend_the_gated_time() {
    let mut waitlist = waitlist(&[gated("greedy", 2_000, 5, 400)]);
    let began = waitlist.pods["greedy"].since;
    waitlist.apply(read(&gated("greedy", 2_000, 5, 61).document()), NOW);
    assert_eq!(waitlist.pods["greedy"].since, began);
    let mut foreign = gated("greedy", 2_000, 5, 0).document();
    foreign["metadata"]["annotations"]["scheduling.example.io/reason"] = json!("held_foreign_gate");
    waitlist.apply(read(&foreign), NOW);
    assert_eq!(waitlist.pods["greedy"].since, began);
}

#[test]
fn gated_time_restarts_when_other_gates_are_removed() {
    let mut document = gated("queued", 2_000, 5, 400).document();
    document["metadata"]["annotations"]["scheduling.example.io/reason"] = json!("held_foreign_gate");
    let alone = document.clone();
    document["spec"]["schedulingGates"] = json!([{"name": "queue"}, {"name": GATE}]);
    let mut waitlist = Waitlist::default();
    waitlist.apply(read(&document), NOW);
    let later = Now {
        moment: NOW.moment.after(Micros::from_secs(7)),
        ..NOW
    };
    waitlist.apply(read(&alone), later);
    let mut fleet = fleet(&[0]);
    fleet["nodes"][0]["allocatable"]["cpu"] = json!("2");
    fleet["nodes"][0]["used"]["cpu"] = json!("1");
    let plan = plan_with(&mut waitlist, &fleet, &Ledger::default());
    assert_eq!(
        steps(&plan),
        [("queued".to_owned(), PlanAction::UpdateReason(Reason::HeldNoCapacity))]
    );
    assert_eq!(waitlist.pods["queued"].since, later.moment);
}

proptest! {
    #[test]
    fn releases_fit_their_nodes_and_keep_queue_order(
        used in prop::collection::vec(0_i64..=1_000, 1..4),
        pods in some_pods(),
    ) {
        let (waitlist, plan) = self::plan(&pods, &fleet(&used));
        let by_name = |name: &str| pods.iter().find(|pod| pod.name == name).unwrap();
        // Pods with immediate room fit the nodes that they charge.
        let claims = waitlist.claims();
        for (node, used) in used.iter().enumerate() {
            let coming = claims.iter().filter(|claim| claim.has_room && claim.node == NodeId(node as u32));
            let coming: i64 = coming.map(|claim| by_name(&claim.uid).millicores).sum();
            prop_assert!(coming == 0 || used + coming <= 1_000);
        }
        // Of two pods with equal requests, the one behind is never released alone.
        let released: BTreeSet<_> = plan.entries.iter().map(|step| step.pod.name.to_string()).collect();
        let queue_key = |pod: &Gated| (-pod.priority, -i32::from(pod.slo_priority), -pod.seconds);
        for pod in pods.iter().filter(|pod| released.contains(&pod.name) && pod.seconds < 300) {
            for other in pods.iter().filter(|other| other.millicores == pod.millicores && queue_key(other) < queue_key(pod)) {
                prop_assert!(released.contains(&other.name), "{:?} before {:?}", pod, other);
            }
        }
    }

    #[test]
    fn plan_in_parts_equals_plan_at_once(
        used in prop::collection::vec(0_i64..=1_000, 1..4),
        pods in some_pods(),
        budget in 0_usize..40,
    ) {
        // Pods past their limit have a budget of their own.
        let pods: Vec<_> = pods.into_iter().filter(|pod| pod.seconds < 300).collect();
        let fleet = fleet(&used);
        let (at_once, whole) = plan(&pods, &fleet);
        let mut waitlist = waitlist(&pods);
        waitlist.budget = Some(budget);
        let mut done = BTreeMap::new();
        for part in 0.. {
            prop_assert!(part <= pods.len(), "each plan comes further");
            done.extend(steps(&plan_with(&mut waitlist, &fleet, &Ledger::default())));
            if waitlist.unfinished.is_empty() {
                break;
            }
            prop_assert!(waitlist.wants_plan(SOON));
        }
        prop_assert_eq!(done, steps(&whole).into_iter().collect());
        prop_assert_eq!(claims(&waitlist), claims(&at_once));
    }

    #[test]
    fn claimed_amount_is_the_sum_of_claims_ahead(
        pods in some_pods(),
        places in prop::collection::vec((0_u32..2, any::<bool>(), any::<bool>()), 12),
        asking in 0_usize..12,
    ) {
        let config = Config::default();
        let snapshot = testkit::snapshot(&fleet(&[0, 0]));
        let (mut claims, mut ledger) = (QueueClaims::default(), Ledger::new(Micros::from_secs(3)));
        let mut all = vec![];
        for (i, (pod, (node, has_room, released))) in pods.iter().zip(places).enumerate() {
            let gated = read(&pod.document());
            let claim = QueueClaim {
                uid: gated.uid.clone(),
                queue_key: gated.queue_key(&config).unwrap(),
                node: NodeId(node),
                site: "edge".into(),
                amount: cpu(pod.millicores),
                membership: None,
                has_room,
            };
            claims.add(claim.clone());
            all.push((claim, released));
            // A released pod reserves nothing, on another node.
            if released {
                let reservation = Reservation {
                    site: "cloud".into(),
                    releases: Some(Arc::clone(&gated.uid)),
                    ..testkit::reservation(i as u128, 9, 0)
                };
                prop_assert!(ledger.reserve(reservation, NOW.moment, |_| true));
            }
        }
        let queue_key = all.get(asking).map_or(QueueKey::LAST, |(claim, _)| claim.queue_key);
        let room = Room::beside(&snapshot, &ledger, &claims, queue_key, "shop");
        for node in &*snapshot.sites[0].nodes {
            let ahead = all.iter().filter(|(claim, released)| claim.node == node.id && claim.queue_key < queue_key && !released);
            let mut taken = (0, 0);
            for (claim, _) in ahead {
                taken = (taken.0 + claim.amount.cpu.0, taken.1 + 1);
            }
            let found = room.taken(node);
            prop_assert_eq!((found.amounts.cpu.0, found.pods - node.charges.pods), taken);
        }
        let coming = all.iter().filter(|(claim, released)| claim.has_room && claim.queue_key < queue_key && !released);
        let coming: i64 = coming.map(|(claim, _)| claim.amount.cpu.0).sum();
        let measured = edgeward_decision::model::snapshot::Site {
            free: edgeward_decision::model::snapshot::Free {
                cpu: Some(edgeward_kube::units::Millicores(1_000)),
                memory: None,
            },
            ..snapshot.sites[0].clone()
        };
        prop_assert_eq!(room.free(&measured).cpu, Some(edgeward_kube::units::Millicores(1_000 - coming)));
    }
}

/// Pods gated for up to six minutes, with ten sizes and six priorities.
fn some_pods() -> impl Strategy<Value = Vec<Gated>> {
    let pods = prop::collection::vec((1_i64..=10, 0_i32..2, 0_u8..3, 0_i64..360), 0..12);
    pods.prop_map(|pods| {
        let gated = |(i, (tenths, priority, slo_priority, seconds)): (usize, (i64, i32, u8, i64))| Gated {
            name: format!("p{i:02}"),
            millicores: tenths * 100,
            priority,
            slo_priority,
            seconds,
        };
        pods.into_iter().enumerate().map(gated).collect()
    })
}
