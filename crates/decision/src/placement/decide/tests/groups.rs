//! Groups: distances between components, pods that start together, and the spread over sites.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::model::decision_id::DecisionId;
use crate::model::link::{LinkState, Links};
use crate::model::site::SiteDefinition;
use crate::model::workload::QueueKey;
use crate::placement::ledger::{Ledger, Reservation};

/// A pod of group `shop`.
fn member(component: &str, others: Value) -> Value {
    let mut slo = json!({"group": "shop", "component": component});
    slo.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
    pod(slo)
}

/// The edge, `near` at 20 ms and `far` at 80 ms, with these live pods of the group: site, component and `near`.
fn peopled(pods: &[(&str, &str, &str)]) -> Value {
    let mut fleet = two_clouds();
    for site in fleet["sites"].as_array_mut().unwrap() {
        let here = pods.iter().filter(|(at, ..)| site["name"] == *at);
        let entry = |(_, component, near): &(&str, &str, &str)| {
            let near = (!near.is_empty()).then_some(*near);
            json!({"namespace": "shop", "group": "shop", "component": component, "near": near, "class": "latency"})
        };
        site["groupPods"] = here.map(entry).collect();
    }
    fleet
}

fn at(fleet: &Value, pod: &Value) -> String {
    outcome_with(fleet, pod, &Config::default())
}

fn gated_for(fleet: &Value, pod: &Value, seconds: u64) -> String {
    let snapshot = testkit::snapshot(fleet);
    let workload = Workload {
        gated_for: Some(Micros::from_secs(seconds)),
        ..workload(pod)
    };
    let verdict = decide(&workload, &Room::of(&snapshot), &Config::default(), NOW);
    match verdict.site() {
        Some(site) => format!("{}: {}", site.name(), verdict.reason.as_str()),
        None => verdict.reason.as_str().to_owned(),
    }
}

#[test]
fn pod_is_placed_near_the_components_that_it_names() {
    // RTT of the link and 1 ms inside each site.
    for (peer, near, expected) in [
        ("near", "db=22ms", "edge: edge_no_slo_target"),
        ("near", "db=21ms", "near: cloud_edge_no_capacity"),
        ("near", "db=site", "near: cloud_edge_no_capacity"),
        ("near", "cache=1ms", "edge: edge_no_slo_target"),
        ("edge", "db=2ms", "edge: edge_no_slo_target"),
        ("edge", "db=1ms", "held_group"),
        // The RTT between these clouds is unknown.
        ("far", "db=200ms", "edge: edge_no_slo_target"),
    ] {
        let fleet = peopled(&[(peer, "db", "")]);
        assert_eq!(
            at(&fleet, &member("web", json!({"near": near}))),
            expected,
            "{peer} {near}"
        );
        // The reverse: the live pod names the new one.
        let fleet = peopled(&[(peer, "db", &near.replace("db", "web"))]);
        let expected = if near.starts_with("cache") {
            "edge: edge_no_slo_target"
        } else {
            expected
        };
        assert_eq!(
            at(&fleet, &member("web", json!({}))),
            expected,
            "{peer} {near}, reversed"
        );
    }
    let other_group = member("web", json!({"near": "db=site", "group": "other"}));
    assert_eq!(
        at(&peopled(&[("near", "db", "")]), &other_group),
        "edge: edge_no_slo_target"
    );
}

#[test]
fn optional_distance_only_ranks() {
    let fleet = peopled(&[("near", "db", ""), ("far", "logs", "")]);
    let at = |near: &str| at(&fleet, &member("web", json!({"near": near})));
    assert_eq!(at("db=site?"), "near: cloud_profile");
    assert_eq!(at("db=site?, logs=site?"), "near: cloud_profile");
    assert_eq!(at("db=30ms, logs=site?"), "edge: edge_no_slo_target");
    assert_eq!(at("db=1ms?"), "edge: edge_no_slo_target");
}

#[test]
fn far_pod_waits_until_its_limit_and_then_takes_the_least_excess() {
    let fleet = with(peopled(&[("edge", "web", "")]), "/nodes/0/used", json!({"cpu": 4}));
    let db = member("db", json!({"near": "web=10ms"}));
    assert_eq!(at(&fleet, &db), "held_group");
    assert_eq!(gated_for(&fleet, &db, 29), "held_group");
    assert_eq!(gated_for(&fleet, &db, 30), "near: released_timeout");
    let snapshot = testkit::snapshot(&fleet);
    let overdue = Workload {
        gated_for: Some(Micros::from_secs(30)),
        ..workload(&db)
    };
    let verdict = decide(&overdue, &Room::of(&snapshot), &Config::default(), NOW);
    let far = verdict.chosen().unwrap().far.as_ref().unwrap();
    let numbers = json!({"component": "web", "at": "edge", "rttMs": 22, "limitMs": 10});
    assert_eq!((Value::Object(far.numbers()), far.excess()), (numbers, Micros(12_000)));
    // Without a gate, the distance only ranks.
    assert_eq!(outcome(&fleet, &db), "near: cloud_edge_no_capacity");
}

#[test]
fn far_pod_waits_for_the_longest_limit_of_its_group() {
    let fleet = with(peopled(&[("edge", "web", "")]), "/nodes/0/used", json!({"cpu": 4}));
    let with_class = |class: &str| with(fleet.clone(), "/sites/0/groupPods/0/class", json!(class));
    let db = member("db", json!({"near": "web=10ms"}));
    for (class, last) in [("latency", 29), ("throughput", 119), ("batch", 299)] {
        let fleet = with_class(class);
        assert_eq!(gated_for(&fleet, &db, last), "held_group", "{class}");
        assert_eq!(gated_for(&fleet, &db, last + 1), "near: released_timeout", "{class}");
    }
    // Another group does not count.
    let fleet = with(with_class("batch"), "/sites/0/groupPods/0/group", json!("other"));
    assert_eq!(gated_for(&fleet, &db, 30), "near: cloud_edge_no_capacity");
    // A pod that is near enough everywhere waits for room no longer than its own limit.
    let full = |fleet, node| with(fleet, &format!("/nodes/{node}/used"), json!({"cpu": 100}));
    let fleet = (0..3).fold(with_class("batch"), full);
    assert_eq!(
        gated_for(&fleet, &member("db", json!({})), 30),
        "edge: released_timeout"
    );
}

#[test]
fn sole_possible_site_is_not_taken_while_it_is_too_far() {
    let fleet = peopled(&[("far", "db", "")]);
    let web = member("web", json!({"near": "db=10ms", "offloadAllowed": "false"}));
    assert_eq!(at(&fleet, &web), "held_group");
    assert_eq!(gated_for(&fleet, &web, 30), "edge: released_timeout");
}

#[test]
fn just_decided_member_counts() {
    let snapshot = testkit::snapshot(&two_clouds());
    let mut ledger = Ledger::new(Config::default().reservation_ttl);
    let db = workload(&member("db", json!({})));
    let reservation = Reservation::new(DecisionId(1), &db, "near", snapshot.sites[2].nodes[0].id);
    assert!(ledger.reserve(reservation, NOW.moment, |_| true));
    let web = workload(&member("web", json!({"near": "db=site"})));
    let room = Room::new(&snapshot, &ledger, QueueKey::LAST, "shop");
    let verdict = decide(&web, &room, &Config::default(), NOW);
    assert_eq!(verdict.site().map(Site::name), Some("near"));
}

#[test]
fn distance_of_clouds_is_measured_or_leads_through_the_edge_of_liqo() {
    let mut snapshot = testkit::snapshot(&two_clouds());
    let delay = |snapshot: &Snapshot| {
        let [near, far] = [2, 1].map(|i| &snapshot.sites[i]);
        snapshot.delay(near, far, Config::default().telemetry_ttl, NOW.moment)
    };
    assert_eq!(delay(&snapshot), None);
    for site in &mut snapshot.sites[1..] {
        let definition = SiteDefinition::of_cluster(site.name());
        site.definition = std::sync::Arc::new(definition);
    }
    assert_eq!(delay(&snapshot), Some(Micros::from_millis(102)));
    let link = snapshot.sites[1].link.as_mut().unwrap();
    link.state = LinkState::Unreachable;
    assert_eq!(delay(&snapshot), None);
    // A measured RTT comes first, in either direction.
    for (source, target) in [("near", "far"), ("far", "near")] {
        let links = std::sync::Arc::make_mut(&mut snapshot.links);
        *links = Links::default();
        links.entry(source, target).or_default().rtt = Some(Micros::from_millis(5));
        assert_eq!(delay(&snapshot), Some(Micros::from_millis(7)));
    }
}

#[test]
fn member_waits_until_enough_pods_have_a_place() {
    let (web, lone) = (json!({"groupSize": "3"}), json!({"groupSize": "1"}));
    let members = |fleet: &Value, slo: &Value| {
        with_verdict(fleet, &member("web", slo.clone()), &Config::default(), |verdict| {
            (verdict.reason.as_str(), verdict.members)
        })
    };
    assert_eq!(members(&two_clouds(), &web), ("held_group", Some((1, 3))));
    assert_eq!(members(&two_clouds(), &lone), ("edge_no_slo_target", None));
    // A replacement does not wait.
    let fleet = peopled(&[("edge", "web", ""), ("edge", "db", "")]);
    assert_eq!(members(&fleet, &web), ("edge_no_slo_target", None));
    assert_eq!(outcome(&two_clouds(), &member("web", web)), "edge: edge_no_slo_target");
}

#[test]
fn controller_spreads_its_pods_over_sites() {
    let owner = json!([{"kind": "ReplicaSet", "name": "web", "uid": "u1", "controller": true}]);
    let spread = with(pod(json!({"spread": "sites"})), "/metadata/ownerReferences", owner);
    let mut fleet = two_clouds();
    let mut sites = vec![];
    for _ in 0..4 {
        let site = with_verdict(&fleet, &spread, &Config::default(), |verdict| {
            verdict.site().map(|site| site.name().to_owned())
        });
        let site = site.unwrap();
        let there = fleet["sites"]
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .find(|entry| entry["name"] == *site)
            .unwrap();
        let before = there["controllerPods"]["shop"]["u1"].as_u64().unwrap_or(0);
        there["controllerPods"] = json!({"shop": {"u1": before + 1}});
        sites.push(site);
    }
    assert_eq!(sites, ["edge", "near", "far", "edge"]);
    // The cloud that is lost has the fewest, so the pod waits for it, and at its limit goes to a site with few.
    fleet["sites"][1]["controllerPods"] = json!({});
    fleet["sites"][1]["wan"] = json!({"reachable": false});
    assert_eq!(at(&fleet, &spread), "held_no_capacity");
    assert_eq!(gated_for(&fleet, &spread, 30), "near: cloud_profile");
    fleet["sites"][1]["wan"] = json!({"rttMs": 80, "lossPct": 0});
    assert_eq!(gated_for(&fleet, &spread, 29), "far: cloud_edge_no_capacity");
}

#[test]
fn constraint_that_cannot_spread_over_sites_warns() {
    let constraint =
        |key: &str, otherwise: &str| json!([{"topologyKey": key, "whenUnsatisfiable": otherwise, "maxSkew": 1}]);
    let warned = |constraints| {
        let pod = with(pod(json!({})), "/spec/topologySpreadConstraints", constraints);
        warnings(&two_clouds(), &pod)
    };
    let warning = "not spread over sites: all nodes of edge have one disk; use slo.example.io/spread";
    assert_eq!(warned(constraint("disk", "DoNotSchedule")), [warning]);
    assert!(warned(constraint("disk", "ScheduleAnyway")).is_empty());
    assert!(warned(constraint("zone", "DoNotSchedule")).is_empty());
}

#[test]
fn gang_stays_at_the_site_of_its_pods() {
    let mut fleet = two_clouds();
    let gang = json!([{"namespace": "shop", "group": "kueue.x-k8s.io/train", "gang": true}]);
    fleet["sites"][2]["groupPods"] = gang;
    let marked = with(
        pod(json!({})),
        "/metadata/labels",
        json!({"kueue.x-k8s.io/pod-group-name": "train"}),
    );
    assert_eq!(at(&fleet, &marked), "near: cloud_edge_no_capacity");
    fleet["sites"][2]["wan"] = json!({"reachable": false});
    assert_eq!(at(&fleet, &marked), "held_group");
    assert_eq!(gated_for(&fleet, &marked, 100_000), "held_group");
    // Without a gate, a gang is decided as its pods come.
    assert_eq!(outcome(&fleet, &marked), "edge: edge_no_slo_target");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// While the pod may wait, no verdict breaks a required distance.
    #[test]
    fn required_distance_holds(fleet in testkit::fleet(), pod in testkit::pod(), component in prop::sample::select(vec!["web", "db"]), near in prop::sample::select(vec!["db=site", "web=3ms", "db=40ms", "web=site"]), home in 0usize..4) {
        let mut fleet = fleet;
        let sites = fleet["sites"].as_array_mut().unwrap();
        let home = home % sites.len();
        sites[home]["groupPods"] = json!([{"namespace": "shop", "group": "g", "component": "db"}, {"namespace": "shop", "group": "g", "component": "web"}]);
        let mut pod = pod;
        if !pod["metadata"]["annotations"].is_object() {
            pod["metadata"]["annotations"] = json!({});
        }
        for (name, value) in [("class", "latency"), ("group", "g"), ("component", component), ("near", near)] {
            pod["metadata"]["annotations"][format!("slo.example.io/{name}")] = json!(value);
        }
        with_verdict(&fleet, &pod, &Config::default(), |verdict| {
            let far = verdict.chosen().is_some_and(|chosen| chosen.far.is_some());
            let gets_class = verdict.sites.iter().any(|site| site.site.definition.runtime_class.is_some());
            assert!(!far || gets_class, "{verdict:?}");
        });
    }
}
