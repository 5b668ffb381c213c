use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fleet::{Free, Node, NodeId, Snapshot};
use crate::ledger::{DecisionId, Ledger, Owner, Reservation};
use crate::pod::Pod;
use crate::resources::Amounts;
use crate::testkit::{self, NOW};
use crate::units::{Bytes, Millicores};

/// Site and reason of a decision, or just the reason where the pod is not placed.
fn outcome(fleet: &Value, pod: &Value) -> String {
    outcome_with(fleet, pod, &Config::default())
}

fn outcome_with(fleet: &Value, pod: &Value, config: &Config) -> String {
    with_verdict(fleet, pod, config, |verdict| match verdict.site() {
        Some(site) => format!("{}: {}", site.name(), verdict.reason.as_str()),
        None => verdict.reason.as_str().to_owned(),
    })
}

fn warnings(fleet: &Value, pod: &Value) -> Vec<String> {
    with_verdict(fleet, pod, &Config::default(), |verdict| verdict.warnings.clone())
}

fn with_verdict<T>(fleet: &Value, pod: &Value, config: &Config, read: impl FnOnce(&Verdict<'_>) -> T) -> T {
    let snapshot = testkit::snapshot(fleet);
    let text = pod.to_string();
    let pod = Pod::from_json(&text).unwrap();
    let workload = pod.workload("shop".into(), &config.keys);
    read(&decide(&workload, &Room::of(&snapshot), config, NOW))
}

/// An edge node of 4 cores with `used` millicores taken, and a cloud node of 64 behind a WAN of 25 ms.
fn fleet(used_millicores: u32) -> Value {
    json!({
        "sites": [
            {"name": "edge", "kind": "edge"},
            {"name": "cloud", "kind": "cloud", "wan": {"rttMs": 25, "lossPct": 0.1}},
        ],
        "nodes": [
            {"name": "e1", "labels": {"node.role/edge": "true", "disk": "ssd"},
             "allocatable": {"cpu": "4", "memory": "8Gi", "pods": 110},
             "used": {"cpu": format!("{used_millicores}m"), "pods": 5}},
            {"name": "c1", "labels": {"node.role/cloud": "true"},
             "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}],
             "allocatable": {"cpu": "64", "memory": "256Gi", "pods": 500}},
        ],
    })
}

/// A pod of class latency that asks for 500 m: 270 ms by the model, 320 ms in the cloud behind 25 ms.
fn pod(slo: Value) -> Value {
    let mut annotations = json!({"slo.example.io/class": "latency"});
    for (name, value) in slo.as_object().unwrap() {
        annotations[format!("slo.example.io/{name}")] = value.clone();
    }
    json!({
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}]},
    })
}

fn with(mut document: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let key = key.replace("~1", "/");
    match document.pointer_mut(parent).unwrap() {
        Value::Object(map) => {
            map.insert(key, value);
        }
        Value::Array(list) if key == "-" => list.push(value),
        other => panic!("{other} at {parent}"),
    }
    document
}

#[test]
fn a_closed_site_takes_no_more_pods_of_the_controller() {
    let closed = with(
        fleet(0),
        "/sites/0/closed",
        json!([{"namespace": "shop", "controller": "rs-1", "pods": 2}]),
    );
    let of = |uid: &str| {
        let owners = json!([{"kind": "ReplicaSet", "uid": uid, "controller": true}]);
        with(pod(json!({"deadlineMs": "1000"})), "/metadata/ownerReferences", owners)
    };
    assert_eq!(outcome(&closed, &of("rs-1")), "cloud: cloud_edge_no_capacity");
    assert_eq!(outcome(&closed, &of("rs-2")), "edge: edge_feasible_slo_met");
    with_verdict(&closed, &of("rs-1"), &Config::default(), |verdict| {
        assert_eq!(verdict.sites[0].refusals[0].numbers["waitingPods"], 2);
    });

    // Where no cloud takes the pod either, the edge has no room for it although a node has.
    let alone = with(
        closed,
        "/sites/1/closed",
        json!([{"namespace": "shop", "controller": "rs-1"}]),
    );
    assert_eq!(outcome(&alone, &of("rs-1")), "edge: edge_no_capacity");
    let elsewhere = with(
        fleet(0),
        "/sites/0/closed",
        json!([{"namespace": "x", "controller": "rs-1"}]),
    );
    assert_eq!(outcome(&elsewhere, &of("rs-1")), "edge: edge_feasible_slo_met");
}

#[test]
fn a_site_has_no_more_room_than_was_measured() {
    // The pod asks for 500 m and 256 MiB, which the node has.
    let measured = |free: Value| with(fleet(0), "/sites/0/measuredFree", free);
    let hasty = || pod(json!({"deadlineMs": "1000"}));
    for (expected, free) in [
        ("edge: edge_feasible_slo_met", json!({})),
        ("edge: edge_feasible_slo_met", json!({"cpu": "500m", "memory": "256Mi"})),
        ("cloud: cloud_edge_no_capacity", json!({"cpu": "499m"})),
        ("cloud: cloud_edge_no_capacity", json!({"cpu": 4, "memory": "255Mi"})),
    ] {
        assert_eq!(outcome(&measured(free.clone()), &hasty()), expected, "{free}");
    }
    let frugal = with(hasty(), "/spec/containers", json!([{}]));
    assert_eq!(
        outcome(&measured(json!({"cpu": 0, "memory": 0})), &frugal),
        "edge: edge_feasible_slo_met"
    );

    let full = measured(json!({"cpu": "100m"}));
    with_verdict(&full, &hasty(), &Config::default(), |verdict| {
        let edge = &verdict.sites[0];
        assert_eq!(edge.fitting.len(), 1);
        assert_eq!(edge.refusals[0].code, RefusalCode::NoRoom);
        let numbers = json!({"request": {"cpu": 500}, "measuredFree": {"cpu": 100}});
        assert_eq!(Value::from(edge.refusals[0].numbers.clone()), numbers);
    });
    // kube-scheduler knows no measurement: it would not preempt for a pod that fits a node.
    let occupied = with(
        with(
            full,
            "/nodes/0/usedByPriority",
            json!([{"priority": -5, "used": {"pods": 1}}]),
        ),
        "/sites/1/wan/rttMs",
        json!(250),
    );
    assert_eq!(outcome(&occupied, &hasty()), "edge: edge_wan_degraded");
    let alone = with(occupied, "/sites/1/wan", json!({"rttMs": 25, "lossPct": 0.1}));
    let alone = with(alone, "/nodes/1/used", json!({"pods": 500}));
    assert_eq!(outcome(&alone, &hasty()), "edge: edge_no_capacity");
}

#[test]
fn the_order_of_choice() {
    let full = fleet(4000);
    let behind = with(
        fleet(0),
        "/sites/0/queues",
        json!([{"class": "latency", "waiting": 10, "sloPriority": 10}]),
    );
    let bad_wan = |fleet: Value| with(fleet, "/sites/1/wan", json!({"rttMs": 250, "lossPct": 0.1}));
    let slow_cloud = |fleet: Value| with(fleet, "/sites/1/speedFactor", json!(0.1));
    for (expected, fleet, pod) in [
        // (a)
        (
            "edge: edge_feasible_slo_met",
            fleet(0),
            pod(json!({"deadlineMs": "300"})),
        ),
        (
            "edge: edge_feasible_slo_met",
            fleet(0),
            pod(json!({"deadlineMs": "270", "latencyTargetMs": "270"})),
        ),
        ("edge: edge_no_slo_target", fleet(3500), pod(json!({}))),
        // (b)
        (
            "cloud: cloud_edge_no_capacity",
            full.clone(),
            pod(json!({"deadlineMs": "400"})),
        ),
        ("cloud: cloud_edge_no_capacity", fleet(3501), pod(json!({}))),
        (
            "cloud: cloud_edge_deadline_missed",
            behind.clone(),
            pod(json!({"deadlineMs": "400"})),
        ),
        (
            "cloud: cloud_edge_deadline_missed",
            behind.clone(),
            pod(json!({"deadlineMs": "320"})),
        ),
        // (c)
        ("edge: edge_fail_soft", fleet(0), pod(json!({"deadlineMs": "269"}))),
        (
            "edge: edge_fail_soft",
            behind.clone(),
            pod(json!({"deadlineMs": "319"})),
        ),
        (
            "cloud: cloud_best_effort",
            behind.clone(),
            pod(json!({"deadlineMs": "319", "priority": "7"})),
        ),
        (
            "edge: edge_best_effort",
            fleet(0),
            pod(json!({"deadlineMs": "269", "priority": "7"})),
        ),
        // (d)
        (
            "cloud: cloud_best_effort",
            full.clone(),
            pod(json!({"deadlineMs": "300", "priority": "9"})),
        ),
        (
            "cloud: cloud_best_effort",
            full.clone(),
            pod(json!({"deadlineMs": "269"})),
        ),
        // (e)
        (
            "edge: edge_no_capacity",
            full.clone(),
            pod(json!({"deadlineMs": "300"})),
        ),
        (
            "edge: edge_no_capacity",
            slow_cloud(full.clone()),
            pod(json!({"deadlineMs": "300", "priority": "6"})),
        ),
        (
            "edge: edge_wan_degraded",
            bad_wan(full.clone()),
            pod(json!({"deadlineMs": "300"})),
        ),
        (
            "edge: edge_wan_degraded",
            bad_wan(behind.clone()),
            pod(json!({"deadlineMs": "300", "priority": "10"})),
        ),
        // A degraded WAN never pushes onto a full edge what a healthy one would not, and never hides a good edge.
        (
            "edge: edge_feasible_slo_met",
            bad_wan(fleet(0)),
            pod(json!({"deadlineMs": "300"})),
        ),
    ] {
        assert_eq!(outcome(&fleet, &pod), expected, "{pod} on {fleet}");
    }
}

#[test]
fn why_the_edge_in_order_of_the_contract() {
    let full = fleet(4000);
    let web = pod(json!({"deadlineMs": "400"}));
    let wan = |wan: Value| with(full.clone(), "/sites/1/wan", wan);
    let big = |cpu: &str| with(web.clone(), "/spec/containers/0/resources/requests/cpu", json!(cpu));
    let preemptable = with(
        full.clone(),
        "/nodes/0/usedByPriority",
        json!([{"priority": 0, "used": {"cpu": 1, "pods": 2}}]),
    );
    let unreachable = json!({"reachable": false});
    for (expected, fleet, pod) in [
        (
            "edge: edge_telemetry_stale",
            with(fleet(0), "/ageSeconds", json!(60.001)),
            web.clone(),
        ),
        ("edge: edge_too_large", full.clone(), big("65")),
        ("cloud: cloud_best_effort", full.clone(), big("64")),
        (
            "edge: edge_offload_not_allowed",
            full.clone(),
            pod(json!({"deadlineMs": "400", "offloadAllowed": "false"})),
        ),
        ("edge: edge_too_large", full.clone(), pod_with_cpu_at_home("5")),
        (
            "edge: edge_not_offloadable",
            full.clone(),
            with(web.clone(), "/spec/hostNetwork", json!(true)),
        ),
        (
            "edge: edge_cloud_site_missing",
            with(full.clone(), "/nodes/1/labels", json!({})),
            web.clone(),
        ),
        (
            "edge: edge_cloud_site_missing",
            with(full.clone(), "/nodes/1/ready", json!(false)),
            web.clone(),
        ),
        (
            "edge: edge_cloud_site_missing",
            with(full.clone(), "/nodes/1/unschedulable", json!(true)),
            web.clone(),
        ),
        ("edge: edge_wan_unreachable", wan(unreachable.clone()), web.clone()),
        ("edge: edge_wan_unreachable", wan(json!(null)), web.clone()),
        ("edge: edge_wan_degraded", wan(json!({"rttMs": 100})), web.clone()),
        (
            "edge: edge_wan_degraded",
            wan(json!({"rttMs": 5, "lossPct": 2})),
            web.clone(),
        ),
        (
            "edge: edge_wan_degraded",
            wan(json!({"rttMs": 5, "ageSeconds": 61})),
            web.clone(),
        ),
        (
            "edge: edge_wan_degraded",
            wan(json!({"rttMs": 5, "health": "degraded"})),
            web.clone(),
        ),
        (
            "cloud: cloud_edge_no_capacity",
            wan(json!({"rttMs": 99.9, "lossPct": 1.9, "ageSeconds": 60})),
            pod(json!({})),
        ),
        (
            "edge: edge_no_capacity",
            with(preemptable.clone(), "/sites/1/speedFactor", json!(0.01)),
            web.clone(),
        ),
        (
            "edge: edge_preempts",
            with(preemptable.clone(), "/sites/1/speedFactor", json!(0.01)),
            with(web.clone(), "/spec/priority", json!(1)),
        ),
        (
            "edge: edge_no_capacity",
            with(preemptable, "/sites/1/speedFactor", json!(0.01)),
            with(
                with(web.clone(), "/spec/priority", json!(1)),
                "/spec/preemptionPolicy",
                json!("Never"),
            ),
        ),
    ] {
        assert_eq!(outcome(&fleet, &pod), expected, "{pod} on {fleet}");
    }

    let disabled = Config {
        enable_offload: false,
        ..Config::default()
    };
    assert_eq!(outcome_with(&full, &web, &disabled), "edge: edge_offload_disabled");
    // The best of several clouds names the reason.
    let two = with(
        wan(unreachable),
        "/sites/-",
        json!({"name": "b", "kind": "cloud", "nodeSelector": {"b": "b"}}),
    );
    assert_eq!(outcome(&two, &web), "edge: edge_wan_unreachable");
}

/// Fits the cloud only, and may not go there.
fn pod_with_cpu_at_home(cpu: &str) -> Value {
    let local = pod(json!({"offloadAllowed": "false"}));
    with(local, "/spec/containers/0/resources/requests/cpu", json!(cpu))
}

#[test]
fn the_pods_own_constraints_come_first() {
    let selector = |selector: Value| with(pod(json!({"deadlineMs": "1"})), "/spec/nodeSelector", selector);
    let on_edge = selector(json!({"disk": "ssd"}));
    let on_cloud = selector(json!({"node.role/cloud": "true"}));
    let bad_day = with(
        with(fleet(4000), "/sites/1/wan", json!(null)),
        "/ageSeconds",
        json!(999),
    );
    assert_eq!(outcome(&bad_day, &on_edge), "edge: edge_pinned_by_pod");
    assert_eq!(outcome(&bad_day, &on_cloud), "cloud: cloud_pinned_by_pod");
    assert_eq!(
        outcome(&fleet(0), &selector(json!({"node.role/edge": "false"}))),
        "passthrough_no_site_matches"
    );
    assert_eq!(
        outcome(&fleet(0), &selector(json!({"disk": "tape"}))),
        "passthrough_no_site_matches"
    );
    assert_eq!(
        warnings(&fleet(0), &selector(json!({"disk": "tape"})))[0],
        "not placed: no site for nodeSelector disk=tape"
    );
    let tied = with(on_cloud.clone(), "/spec/hostNetwork", json!(true));
    assert_eq!(outcome(&fleet(0), &tied), "passthrough_no_site_matches");
    assert_eq!(
        warnings(&fleet(0), &tied)[0],
        "not placed: cannot leave the edge (hostNetwork), and no edge node for nodeSelector node.role/cloud=true"
    );

    let local = with(
        on_cloud,
        "/metadata/annotations/slo.example.io~1offloadAllowed",
        json!("false"),
    );
    assert_eq!(outcome(&fleet(0), &local), "passthrough_no_site_matches");

    let by_name = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c1"]}]}
    ]}}});
    let named = with(pod(json!({})), "/spec/affinity", by_name);
    assert_eq!(outcome(&fleet(0), &named), "cloud: cloud_pinned_by_pod");
}

/// The edge, and two clouds whose nodes share the label `any: cloud`.
fn two_clouds() -> Value {
    let cloud = |name: &str, rtt: u32| json!({"name": name, "kind": "cloud", "nodeSelector": {"c": name}, "wan": {"rttMs": rtt, "lossPct": 0}});
    let node = |name: &str| json!({"name": name, "labels": {"c": name, "any": "cloud"}, "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}], "allocatable": {"cpu": 9, "memory": "9Gi", "pods": 9}});
    json!({
        "sites": [{"name": "edge", "kind": "edge"}, cloud("far", 80), cloud("near", 20)],
        "nodes": [fleet(0)["nodes"][0], node("far"), node("near")],
    })
}

#[test]
fn several_clouds_and_no_edge_are_still_a_choice() {
    let fleet = two_clouds();
    let anywhere_but_here = with(pod(json!({})), "/spec/nodeSelector", json!({"any": "cloud"}));
    assert_eq!(outcome(&fleet, &anywhere_but_here), "near: cloud_pinned_by_pod");
    let stale = with(fleet.clone(), "/ageSeconds", json!(99));
    assert_eq!(outcome(&stale, &anywhere_but_here), "near: cloud_pinned_by_pod");
    // Ties go to the first by name.
    let tie = with(fleet, "/sites/1/wan/rttMs", json!(20));
    assert_eq!(outcome(&tie, &anywhere_but_here), "far: cloud_pinned_by_pod");
}

#[test]
fn a_pod_that_leaves_only_clouds_goes_to_the_best_of_them_whatever_is_known() {
    let anywhere = |pod: Value| with(pod, "/spec/nodeSelector", json!({"any": "cloud"}));
    let slow = |site: usize, fleet: Value| with(fleet, &format!("/sites/{site}/wan/rttMs"), json!(200));
    let web = anywhere(pod(json!({})));
    assert_eq!(outcome(&slow(1, two_clouds()), &web), "near: cloud_pinned_by_pod");
    assert_eq!(outcome(&slow(2, two_clouds()), &web), "far: cloud_pinned_by_pod");
    assert_eq!(
        outcome(&slow(1, slow(2, two_clouds())), &web),
        "far: cloud_pinned_by_pod"
    );
    let full = with(
        with(two_clouds(), "/nodes/1/used", json!({"pods": 9})),
        "/nodes/2/used",
        json!({"pods": 9}),
    );
    assert_eq!(outcome(&full, &web), "near: cloud_pinned_by_pod");
    let at_home = anywhere(pod(json!({"offloadAllowed": "false"})));
    assert_eq!(outcome(&two_clouds(), &at_home), "passthrough_no_site_matches");
}

#[test]
fn an_unknown_loss_is_not_a_good_one() {
    let unmeasured = with(fleet(4000), "/sites/1/wan", json!({"rttMs": 5}));
    assert_eq!(outcome(&unmeasured, &pod(json!({}))), "edge: edge_wan_degraded");
    let stated = with(fleet(4000), "/sites/1/wan", json!({"rttMs": 5, "health": "healthy"}));
    assert_eq!(outcome(&stated, &pod(json!({}))), "cloud: cloud_edge_no_capacity");
}

#[test]
fn a_cloud_that_the_pod_cannot_go_to_does_not_hide_why_the_others_will_not_do() {
    let full_edge = |fleet: Value| with(fleet, "/nodes/0/used", json!({"cpu": "4"}));
    let fleet = with(full_edge(two_clouds()), "/sites/1/supports", json!(["hostIPC"]));
    let fleet = with(fleet, "/sites/1/wan", json!({"reachable": false}));
    let tied = with(pod(json!({})), "/spec/hostIPC", json!(true));
    assert_eq!(outcome(&fleet, &tied), "edge: edge_wan_unreachable");
}

#[test]
fn a_pod_that_would_keep_us_busy_is_passed_through() {
    let values: Vec<String> = (0..250_000).map(|i| i.to_string()).collect();
    let busy = |values: &[String]| {
        let requirement = json!({"key": "zone", "operator": "In", "values": values});
        let required = json!({"nodeSelectorTerms": [{"matchExpressions": [requirement]}]});
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
        with(pod(json!({})), "/spec/affinity", affinity)
    };
    // Two nodes: the requirement itself counts for one more.
    assert_eq!(
        outcome(&fleet(0), &busy(&values[..249_999])),
        "passthrough_no_site_matches"
    );
    assert_eq!(outcome(&fleet(0), &busy(&values)), "passthrough_deadline");
    assert_eq!(
        warnings(&fleet(0), &busy(&values)),
        ["not placed: 500002 comparisons of constraints with nodes, over 500000"]
    );
}

#[test]
fn a_refusal_names_only_so_many_resources() {
    let gpus: serde_json::Map<String, Value> = (0..100).map(|i| (format!("example.com/gpu-{i}"), json!("1"))).collect();
    let greedy = with(pod(json!({})), "/spec/containers/0/resources/requests", gpus.into());
    with_verdict(&fleet(0), &greedy, &Config::default(), |verdict| {
        let refusal = &verdict.sites[0].refusals[0];
        assert_eq!(
            refusal.numbers["request"].as_object().map(serde_json::Map::len),
            Some(16)
        );
    });
}

#[test]
fn a_pod_tied_to_the_edge_is_not_completed_for_the_cloud_it_asks_for() {
    let tied = with(pod(json!({})), "/spec/hostPID", json!(true));
    let tied = with(tied, "/spec/nodeSelector", json!({"node.role/cloud": "true"}));
    assert_eq!(outcome(&fleet(0), &tied), "passthrough_no_site_matches");
    let served = with(fleet(0), "/sites/1/supports", json!(["hostPID"]));
    assert_eq!(outcome(&served, &tied), "cloud: cloud_pinned_by_pod");
}

#[test]
fn the_rtt_is_on_every_cloud_decision_that_has_one() {
    let rtt = |wan: Value, selector: &str| {
        let pinned = with(pod(json!({})), "/spec/nodeSelector", json!({selector: "true"}));
        let fleet = with(fleet(0), "/sites/1/wan", wan);
        with_verdict(&fleet, &pinned, &Config::default(), |verdict| {
            verdict.rtt().map(|rtt| rtt.to_string())
        })
    };
    let stale = json!({"rttMs": 31, "ageSeconds": 999});
    assert_eq!(rtt(stale.clone(), "node.role/cloud").as_deref(), Some("31"));
    assert_eq!(
        rtt(json!({"reachable": false, "rttMs": 31}), "node.role/cloud").as_deref(),
        Some("31")
    );
    assert_eq!(rtt(json!(null), "node.role/cloud"), None);
    assert_eq!(rtt(stale, "node.role/edge"), None);
}

#[test]
fn a_fleet_without_clouds_is_a_fleet() {
    let mut alone = fleet(4000);
    alone["sites"].as_array_mut().unwrap().truncate(1);
    assert_eq!(outcome(&alone, &pod(json!({}))), "edge: edge_cloud_site_missing");
}

#[test]
fn a_missing_edge_label_makes_no_pod_unschedulable() {
    let unlabelled = with(fleet(0), "/nodes/0/labels", json!({"disk": "ssd"}));
    assert_eq!(outcome(&unlabelled, &pod(json!({}))), "passthrough_edge_site_missing");
    let pinned = with(pod(json!({})), "/spec/nodeSelector", json!({"node.role/cloud": "true"}));
    assert_eq!(outcome(&unlabelled, &pinned), "passthrough_edge_site_missing");
    assert_eq!(
        warnings(&unlabelled, &pod(json!({}))),
        ["not placed: no node carries the edge label node.role/edge=true"]
    );
}

#[test]
fn pods_that_are_not_ours() {
    let web = pod(json!({}));
    let owned = |kind: &str| {
        with(
            web.clone(),
            "/metadata/ownerReferences",
            json!([{"kind": kind, "controller": true}]),
        )
    };
    let labelled = |value: &str| {
        with(
            web.clone(),
            "/metadata/labels",
            json!({"scheduling.example.io/managed": value}),
        )
    };
    for (expected, pod) in [
        ("passthrough_not_managed", json!({"metadata": {}, "spec": {}})),
        ("passthrough_opted_out", labelled("false")),
        (
            "passthrough_node_name",
            with(web.clone(), "/spec/nodeName", json!("e1")),
        ),
        ("passthrough_daemonset", owned("DaemonSet")),
        ("edge: edge_no_slo_target", owned("ReplicaSet")),
        (
            "passthrough_mirror",
            with(
                web.clone(),
                "/metadata/annotations/kubernetes.io~1config.mirror",
                json!("x"),
            ),
        ),
        (
            "passthrough_shadow_pod",
            with(
                web.clone(),
                "/metadata/labels",
                json!({"liqo.io/managed-by": "shadowpod"}),
            ),
        ),
        (
            "passthrough_foreign_gate",
            with(
                web.clone(),
                "/spec/schedulingGates",
                json!([{"name": "scheduling.example.io/awaiting-capacity"}]),
            ),
        ),
        (
            "passthrough_foreign_gate",
            with(
                web.clone(),
                "/spec/schedulingGates",
                json!([{"name": "kueue.x-k8s.io/admission"}]),
            ),
        ),
        ("edge: edge_invalid_slo", labelled("true")),
    ] {
        assert_eq!(outcome(&fleet(0), &pod), expected, "{pod}");
    }
    let excluded = Config {
        excluded_namespaces: vec!["shop".into()],
        ..Config::default()
    };
    assert_eq!(
        outcome_with(&fleet(0), &web, &excluded),
        "passthrough_excluded_namespace"
    );
}

#[test]
fn an_invalid_slo_stays_at_the_edge_with_a_warning_or_is_denied() {
    let bad = pod(json!({"deadlineMs": "soon", "priority": "99"}));
    assert_eq!(outcome(&fleet(4000), &bad), "edge: edge_invalid_slo");
    assert_eq!(warnings(&fleet(0), &bad).len(), 2);
    let deny = Config {
        invalid_slo: InvalidSlo::Deny,
        ..Config::default()
    };
    assert_eq!(outcome_with(&fleet(0), &bad, &deny), "denied_invalid_slo");
    with_verdict(&fleet(0), &bad, &deny, |verdict| assert_eq!(verdict.faults.len(), 2));
    let misspelt = pod(json!({"deadlineMS": "5"}));
    assert_eq!(outcome_with(&fleet(0), &misspelt, &deny), "edge: edge_no_slo_target");
    assert_eq!(
        warnings(&fleet(0), &misspelt),
        ["slo.example.io/deadlineMS is not an annotation that edgeward reads"]
    );
}

#[test]
fn a_recent_placement_of_ours_is_repeated() {
    let placed = |at: &str, decision: &str, site: &str, spec: Value| {
        let mut pod = pod(json!({}));
        for (name, value) in [
            ("decision", decision),
            ("site", site),
            ("timestamp", at),
            ("decision-id", "x"),
        ] {
            pod["metadata"]["annotations"][format!("scheduling.example.io/{name}")] = json!(value);
        }
        with(pod, "/spec", spec)
    };
    let edge = json!({"nodeSelector": {"node.role/edge": "true"}});
    let half = json!({"nodeSelector": {"node.role/cloud": "true"}});
    let cloud = with(
        half.clone(),
        "/tolerations",
        json!([{"key": "cloud", "operator": "Exists"}]),
    );
    let (now, late) = ("2026-01-01T00:00:20Z", "2026-01-01T00:00:31Z");
    let is_ours = |pod: Value| outcome(&fleet(0), &pod) == "passthrough_reinvocation";
    // testkit::NOW is at midnight.
    assert!(is_ours(placed(now, "edge", "edge", edge.clone())));
    assert!(is_ours(placed(now, "cloud", "cloud", cloud)));
    assert!(!is_ours(placed(now, "cloud", "cloud", half)));
    assert!(!is_ours(placed(late, "edge", "edge", edge.clone())));
    assert!(!is_ours(placed("soon", "edge", "edge", edge.clone())));
    assert!(!is_ours(placed(now, "cloud", "edge", edge.clone())));
    assert!(!is_ours(placed(now, "edge", "moon", edge)));
    assert!(!is_ours(placed(now, "edge", "edge", json!({}))));
}

#[test]
fn queues_count_the_pods_that_stand_ahead() {
    let queue = |group: Value| with(fleet(0), "/sites/0/queues", json!([group]));
    let tight = pod(json!({"deadlineMs": "300"}));
    let is_behind = |group: Value| outcome(&queue(group), &tight) != "edge: edge_feasible_slo_met";
    assert!(is_behind(json!({"class": "latency", "waiting": 1})));
    assert!(is_behind(
        json!({"class": "latency", "waiting": 1, "priority": 1, "sloPriority": 0})
    ));
    assert!(!is_behind(json!({"class": "latency", "waiting": 1, "sloPriority": 4})));
    assert!(!is_behind(
        json!({"class": "latency", "waiting": 1, "priority": -1, "sloPriority": 10})
    ));
    assert!(!is_behind(json!({"class": "batch", "waiting": 9})));
    assert!(!is_behind(json!({"class": "latency", "pending": 9})));
    let pending = Config {
        queue_model: crate::config::QueueModel::Pending,
        ..Config::default()
    };
    let pending_queue = queue(json!({"class": "latency", "pending": 9, "sloPriority": 0}));
    assert_eq!(outcome_with(&pending_queue, &tight, &pending), "edge: edge_fail_soft");
}

#[test]
fn processing_time_is_stated_observed_or_modelled() {
    let eta = |fleet: Value, pod: Value| {
        with_verdict(&fleet, &pod, &Config::default(), |verdict| {
            let etas = verdict
                .sites
                .iter()
                .map(|site| site.estimate.eta().unwrap().to_string());
            etas.collect::<Vec<_>>().join(" ")
        })
    };
    let observed = with(fleet(0), "/sites/1/observedProcMs", json!({"latency": 7}));
    let fast = with(fleet(0), "/sites/1/speedFactor", json!(2));
    assert_eq!(eta(fleet(0), pod(json!({}))), "270 320");
    assert_eq!(eta(observed.clone(), pod(json!({}))), "270 57");
    assert_eq!(eta(fast.clone(), pod(json!({}))), "270 185");
    assert_eq!(eta(fast, pod(json!({"processingMs": "40"}))), "40 70");
    assert_eq!(eta(observed, pod(json!({"processingMs": "40"}))), "40 90");
    let slow_edge = with(fleet(0), "/sites/0/speedFactor", json!(0.5));
    assert_eq!(eta(slow_edge.clone(), pod(json!({}))), "540 320");
    // What the team states is the time at the edge, whatever its speed.
    assert_eq!(eta(slow_edge, pod(json!({"processingMs": "40"}))), "40 70");
    let observed = with(
        with(fleet(0), "/sites/1/observedProcMs", json!({"latency": 7})),
        "/sites/1/speedFactor",
        json!(2),
    );
    assert_eq!(eta(observed, pod(json!({}))), "270 57");
    let of_controllers =
        json!([{"namespace": "shop", "controller": "a", "ms": 5}, {"namespace": "x", "controller": "b", "ms": 5}]);
    let observed = with(
        with(fleet(0), "/sites/1/observedProcMs", json!({"latency": 7})),
        "/sites/1/observedControllerProcMs",
        of_controllers,
    );
    let of = |uid: &str, pod: Value| {
        let owners = json!([{"kind": "Job", "uid": uid, "controller": true}]);
        with(pod, "/metadata/ownerReferences", owners)
    };
    // A controller knows better than its class, in its own namespace.
    assert_eq!(eta(observed.clone(), of("a", pod(json!({})))), "270 55");
    assert_eq!(eta(observed.clone(), of("b", pod(json!({})))), "270 57");
    assert_eq!(
        eta(observed.clone(), of("a", pod(json!({"processingMs": "40"})))),
        "40 90"
    );
    // The pods ahead are of any controller.
    let queue = with(observed, "/sites/1/queues", json!([{"class": "latency", "waiting": 1}]));
    assert_eq!(eta(queue, of("a", pod(json!({})))), "270 62");
    let batch = |pod: Value| with(pod, "/metadata/annotations/slo.example.io~1class", json!("batch"));
    assert_eq!(eta(fleet(0), batch(pod(json!({})))), "1100 1125");
}

#[test]
fn a_target_no_site_can_meet_is_told() {
    assert_eq!(
        warnings(&fleet(0), &pod(json!({"latencyTargetMs": "100"}))),
        ["latency target 100 ms is below the processing time 270 ms of every site"]
    );
}

#[test]
fn refusals_carry_their_numbers() {
    let fleet = with(fleet(3900), "/sites/1/wan", json!({"rttMs": 120, "lossPct": 3}));
    let refusals = with_verdict(
        &fleet,
        &pod(json!({"deadlineMs": "100"})),
        &Config::default(),
        |verdict| {
            let all = verdict.sites.iter().flat_map(|site| &site.refusals);
            all.map(|refusal| format!("{} {}", refusal.code.as_str(), Value::from(refusal.numbers.clone())))
                .collect::<Vec<_>>()
        },
    );
    assert_eq!(
        refusals,
        [
            r#"no_room {"largestFree":{"cpu":100,"memory":8589934592,"pods":105},"request":{"cpu":500,"memory":268435456,"pods":1},"usableNodes":1}"#,
            r#"deadline {"boundMs":100,"etaMs":270}"#,
            r#"degraded {"lossPct":3,"lossThresholdPct":2,"rttMs":120,"rttThresholdMs":100}"#,
            r#"deadline {"boundMs":100,"etaMs":510}"#,
        ]
    );
}

/// What a decision says while pods of these millicores and priorities are promised node 0, the edge's only one.
fn with_reserved<T>(fleet: &Value, reserved: &[(i64, i32)], pod: &Value, read: impl FnOnce(&Verdict<'_>) -> T) -> T {
    let mut ledger = Ledger::new(Config::default().reservation_ttl);
    for (id, &(millicores, priority)) in (0..).zip(reserved) {
        let reservation = Reservation {
            id: DecisionId(id),
            owner: Owner::new("shop", None),
            site: "edge".into(),
            node: NodeId(0),
            amount: Amounts {
                cpu: Millicores(millicores),
                ..Amounts::default()
            },
            priority,
        };
        assert!(ledger.reserve(reservation, NOW.moment));
    }
    let snapshot = testkit::snapshot(fleet);
    let config = Config::default();
    let text = pod.to_string();
    let pod = Pod::from_json(&text).unwrap();
    let room = Room {
        snapshot: &snapshot,
        ledger: &ledger,
    };
    read(&decide(&pod.workload("shop".into(), &config.keys), &room, &config, NOW))
}

#[test]
fn what_is_promised_is_not_free() {
    let said = |reserved: &[(i64, i32)]| {
        with_reserved(&fleet(3000), reserved, &pod(json!({})), |verdict| {
            let refusals = verdict.sites[0].refusals.iter();
            let numbers: Vec<_> = refusals.map(|refusal| Value::from(refusal.numbers.clone())).collect();
            (verdict.site().unwrap().name().to_owned(), verdict.node, numbers)
        })
    };
    assert_eq!(said(&[(500, 0)]), ("edge".into(), Some(NodeId(0)), vec![]));
    let no_room = json!({
        "usableNodes": 1,
        "request": {"cpu": 500, "memory": 268_435_456, "pods": 1},
        "largestFree": {"cpu": 400, "memory": 8_589_934_592_i64, "pods": 103},
        "reserved": {"cpu": 600, "memory": 0, "pods": 2},
    });
    assert_eq!(
        said(&[(500, 0), (100, 0)]),
        ("cloud".into(), Some(NodeId(1)), vec![no_room])
    );
    // What was measured to be free is promised too.
    let measured = with(fleet(0), "/sites/0/measuredFree", json!({"cpu": 1}));
    let numbers = |reserved: &[(i64, i32)]| {
        with_reserved(&measured, reserved, &pod(json!({})), |verdict| {
            let refusal = verdict.sites[0].refusals.first();
            refusal.map(|refusal| refusal.numbers["measuredFree"].clone())
        })
    };
    assert_eq!(numbers(&[(500, 0)]), None);
    assert_eq!(numbers(&[(500, 0), (100, 0)]), Some(json!({"cpu": 400})));
    // Pod slots are promised too.
    let slots = with(fleet(0), "/nodes/0/used/pods", json!(109));
    let site = |reserved: &[(i64, i32)]| with_reserved(&slots, reserved, &pod(json!({})), |verdict| verdict.node);
    assert_eq!(site(&[]), Some(NodeId(0)));
    assert_eq!(site(&[(0, 0)]), Some(NodeId(1)));
}

#[test]
fn a_promise_holds_wherever_the_scheduler_puts_the_others() {
    let node = |name: &str| json!({"name": name, "labels": {"node.role/edge": "true", "zone": name}, "allocatable": {"cpu": 2, "memory": "8Gi", "pods": 9}});
    let nodes = json!([node("a"), node("b"), fleet(0)["nodes"][1]]);
    let fleet = with(fleet(0), "/nodes", nodes);
    let large = with(
        pod(json!({})),
        "/spec/containers/0/resources/requests/cpu",
        json!("1500m"),
    );
    let refusals = |reserved: &[(i64, i32)], pod: &Value| {
        with_reserved(&fleet, reserved, pod, |verdict| {
            let refusals = verdict.sites[0].refusals.iter();
            let numbers: Vec<_> = refusals.map(|refusal| Value::from(refusal.numbers.clone())).collect();
            (
                verdict.site().unwrap().name().to_owned(),
                verdict.sites[0].fitting.len(),
                numbers,
            )
        })
    };
    // Both are charged to node a; kube-scheduler may put one on each.
    assert_eq!(refusals(&[(600, 0)], &large), ("edge".into(), 1, vec![]));
    let crowded = json!({
        "request": {"cpu": 1500, "memory": 268_435_456, "pods": 1},
        "onTheirWay": {"cpu": 1200, "memory": 0, "pods": 2},
    });
    assert_eq!(
        refusals(&[(600, 0), (600, 0)], &large),
        ("cloud".into(), 1, vec![crowded])
    );
    // It may use node b alone, and nobody is expected there.
    let elsewhere = with(large, "/spec/nodeSelector", json!({"zone": "b"}));
    assert_eq!(refusals(&[(600, 0), (600, 0)], &elsewhere).2, Vec::<Value>::new());
}

#[test]
fn a_pod_that_is_promised_room_can_be_preempted_by_its_priority() {
    // A cloud that would not do.
    let fleet = with(fleet(3000), "/sites/1/speedFactor", json!(0.01));
    let important = with(pod(json!({"deadlineMs": "300"})), "/spec/priority", json!(10));
    let reason = |reserved: &[(i64, i32)]| {
        with_reserved(&fleet, reserved, &important, |verdict| {
            (verdict.reason.as_str(), verdict.node)
        })
    };
    assert_eq!(reason(&[]), ("edge_feasible_slo_met", Some(NodeId(0))));
    assert_eq!(reason(&[(1000, 10)]), ("edge_no_capacity", None));
    assert_eq!(reason(&[(1000, 9)]), ("edge_preempts", None));
}

#[test]
fn the_node_of_a_verdict_is_the_one_that_kube_scheduler_would_take() {
    let node = |name: &str, used: u32| {
        json!({"name": name, "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 4, "memory": "8Gi", "pods": 9},
               "used": {"cpu": format!("{used}m")}})
    };
    let nodes = json!([node("a", 4000), node("c", 1000), node("b", 1000), node("d", 2000)]);
    let fleet = with(fleet(0), "/nodes", nodes);
    let chosen = |fleet: &Value, pod: &Value| {
        with_verdict(fleet, pod, &Config::default(), |verdict| {
            let node = verdict.site()?.nodes().find(|node| Some(node.id) == verdict.node)?;
            Some(node.name.to_string())
        })
    };
    assert_eq!(chosen(&fleet, &pod(json!({}))).as_deref(), Some("b"));
    let fleet = with(fleet, "/nodes/2/unschedulable", json!(true));
    assert_eq!(chosen(&fleet, &pod(json!({}))).as_deref(), Some("c"));
    let large = with(pod(json!({})), "/spec/containers/0/resources/requests/cpu", json!("5"));
    assert_eq!(outcome(&fleet, &large), "edge: edge_too_large");
    assert_eq!(chosen(&fleet, &large), None);
    // Of many, the first hundred are compared.
    let last_is_best = |nodes: u32| {
        let used = |i: u32| if i + 1 == nodes { 0 } else { 1000 };
        let nodes: Vec<_> = (0..nodes).map(|i| node(&format!("n{i:03}"), used(i))).collect();
        chosen(&with(fleet.clone(), "/nodes", nodes.into()), &pod(json!({})))
    };
    assert_eq!(last_is_best(100).as_deref(), Some("n099"));
    assert_eq!(last_is_best(101).as_deref(), Some("n000"));
}

#[test]
fn explanations_stay_short_and_name_no_node() {
    let short = |fleet: &Value| {
        with_verdict(fleet, &pod(json!({})), &Config::default(), |verdict| {
            explain::explain(verdict, crate::config::Explain::Short).unwrap()
        })
    };
    assert_eq!(
        short(&fleet(4000)),
        r#"{"cloud":{"eta":320,"fit":1},"edge":{"eta":270,"fit":0,"no":["no_room"]}}"#
    );
    let sites = (0..30).map(|i| json!({"name": format!("cloud-with-a-long-name-{i}"), "kind": "cloud", "nodeSelector": {"c": i.to_string()}}));
    let crowd = with(
        fleet(0),
        "/sites",
        [json!({"name": "edge", "kind": "edge"})]
            .into_iter()
            .chain(sites)
            .collect(),
    );
    let text = short(&crowd);
    assert!(
        text.len() <= explain::SHORT_BYTES && text.starts_with(r#"{"edge":"#),
        "{text}"
    );
    assert!(serde_json::from_str::<Value>(&text).is_ok());
}

#[test]
fn taints_cordon_and_slots_as_the_scheduler_reads_them() {
    let fits = |node: Value, tolerations: Value| {
        let mut fleet = fleet(0);
        for (key, value) in node.as_object().unwrap() {
            fleet["nodes"][0][key] = value.clone();
        }
        let pod = with(pod(json!({})), "/spec/tolerations", tolerations);
        with_verdict(&fleet, &pod, &Config::default(), |verdict| verdict.sites[0].fits())
    };
    let none = json!([]);
    let taint = |effect: &str| json!({"taints": [{"key": "k", "value": "v", "effect": effect}]});
    assert!(!fits(taint("NoSchedule"), none.clone()));
    assert!(!fits(taint("NoExecute"), none.clone()));
    assert!(fits(taint("PreferNoSchedule"), none.clone()));
    assert!(fits(taint("NoSchedule"), json!([{"key": "k", "value": "v"}])));
    assert!(!fits(json!({"unschedulable": true}), none.clone()));
    assert!(fits(
        json!({"unschedulable": true}),
        json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}])
    ));
    assert!(!fits(json!({"ready": false}), json!([{"operator": "Exists"}])));
    assert!(fits(json!({"used": {"pods": 109}}), none.clone()));
    assert!(!fits(json!({"used": {"pods": 110}}), none));
}

/// Whether the first verdict says edge and the second cloud.
fn flips(before: &Snapshot, after: &Snapshot, pod: &Value, config: &Config) -> bool {
    let text = pod.to_string();
    let pod = Pod::from_json(&text).unwrap();
    let workload = pod.workload("shop".into(), &config.keys);
    let kind = |snapshot: &Snapshot| {
        let verdict = decide(&workload, &Room::of(snapshot), config, NOW);
        verdict.site().map(|site| site.kind())
    };
    kind(before) == Some(SiteKind::Edge) && kind(after) == Some(SiteKind::Cloud)
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
        reliefs in prop::collection::vec(relief(), 1..4),
        is_measured_anew: bool,
    ) {
        let before = testkit::snapshot(&fleet);
        let mut after = before.clone();
        let nodes = std::sync::Arc::make_mut(&mut after.sites[0].nodes);
        reliefs.iter().for_each(|relief| relieve(nodes, relief));
        if is_measured_anew {
            after.sites[0].free = Free::default();
        }
        prop_assert!(!flips(&before, &after, &pod, &Config::default()));
    }

    #[test]
    fn the_same_inputs_give_the_same_verdict(fleet in testkit::fleet(), pod in testkit::pod()) {
        // From the documents on, apart from each other: nothing may depend on where, or in which thread, it is read.
        let shown = || with_verdict(&fleet, &pod, &Config::default(), |verdict| format!("{verdict:?}"));
        let [one, other] = std::thread::scope(|scope| [scope.spawn(shown), scope.spawn(shown)].map(|thread| thread.join().unwrap()));
        prop_assert_eq!(one, other);
    }
}
