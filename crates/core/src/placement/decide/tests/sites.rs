//! Pods that may run at some sites alone, and the choice among several clouds.

use serde_json::{Value, json};

use super::*;
use crate::config::{OnNoCapacity, SitePolicy};
use crate::placement::explain::{FULL_BYTES, SHORT_BYTES, explain};

/// The edge in `eu`, a near cloud in `us` and a far one in `eu`.
fn fleet() -> Value {
    let mut fleet = two_clouds();
    for (at, labels) in [
        json!({"region": "eu", "tier": "edge"}),
        json!({"region": "eu"}),
        json!({"region": "us", "tier": "spot"}),
    ]
    .into_iter()
    .enumerate()
    {
        fleet["sites"][at]["labels"] = labels;
    }
    fleet
}

/// The same, and nothing is free at this node.
fn full(mut fleet: Value, nodes: &[usize]) -> Value {
    for &at in nodes {
        let all = fleet["nodes"][at]["allocatable"].clone();
        fleet["nodes"][at]["used"] = all;
    }
    fleet
}

fn without_node(mut fleet: Value, at: usize) -> Value {
    fleet["nodes"].as_array_mut().unwrap().remove(at);
    fleet
}

fn pod_for(sites: &str) -> Value {
    pod(json!({"deadlineMs": "600", "sites": sites}))
}

/// What becomes of the pod when it arrives, and when it has been gated past its limit.
fn fates(fleet: &Value, pod: &Value) -> [String; 2] {
    away::fates(fleet, pod, &Config::default())
}

/// What is said of it when it arrives.
fn said(fleet: &Value, pod: &Value) -> Vec<String> {
    with_verdict(fleet, pod, &Config::default(), |verdict| verdict.warnings.clone())
}

#[test]
fn sites_filter_the_edge_too() {
    let fleet = fleet();
    for (sites, first) in [
        ("region=eu", "edge: edge_feasible_slo_met"),
        ("edge", "edge: edge_pinned_by_pod"),
        ("near,far", "near: cloud_pinned_by_pod"),
        ("region=eu,tier!=edge", "far: cloud_pinned_by_pod"),
        ("tier=spot", "near: cloud_pinned_by_pod"),
    ] {
        assert_eq!(fates(&fleet, &pod_for(sites))[0], first, "{sites}");
    }
}

#[test]
fn what_its_sites_do_not_take_now_is_gated_for_them_and_placed_there_at_its_limit() {
    let never = Config {
        gating: Gating {
            on_no_capacity: OnNoCapacity::Edge,
            ..Gating::default()
        },
        ..Config::default()
    };
    // With room at the others.
    let edge_full = full(fleet(), &[0]);
    let far_full = full(fleet(), &[1]);
    for (fleet, sites, expected) in [
        (&edge_full, "edge", ["edge: edge_pinned_by_pod"; 2]),
        (&far_full, "far", ["far: cloud_pinned_by_pod"; 2]),
        (
            &full(fleet(), &[0, 1]),
            "region=eu",
            ["held_no_capacity", "edge: released_timeout"],
        ),
    ] {
        for config in [&Config::default(), &never] {
            assert_eq!(away::fates(fleet, &pod_for(sites), config), expected, "{sites}");
        }
    }
    let stale = with(fleet(), "/ageSeconds", json!(90));
    assert_eq!(fates(&stale, &pod_for("far")), ["far: cloud_pinned_by_pod"; 2]);
    assert_eq!(fates(&stale, &pod_for("edge,far"))[0], "edge: edge_telemetry_stale");
}

#[test]
fn a_pod_with_nowhere_to_go_is_gated_on_and_told_why() {
    let gated = ["held_site_away"; 2];
    let gpu_far = with(pod_for("far"), "/spec/nodeSelector", json!({"disk": "ssd"}));
    let pinned = with(pod_for("far"), "/spec/nodeSelector", json!({"c": "near"}));
    for (pod, why) in [
        (pod_for("nowhere"), "far (not_in_sites)"),
        (
            pod(json!({"sites": "far", "offloadAllowed": "false"})),
            "far (not_offloadable)",
        ),
        (gpu_far, "far (no_matching_node)"),
        (pinned, "far (no_matching_node)"),
    ] {
        assert_eq!(fates(&fleet(), &pod), gated, "{why}");
        let said = said(&fleet(), &pod);
        assert!(said[0].starts_with("gated until a site can run it: "), "{said:?}");
        assert!(said[0].contains(why), "{said:?} {why}");
    }
    let empty = without_node(fleet(), 1);
    assert_eq!(fates(&empty, &pod_for("far")), ["far: cloud_pinned_by_pod"; 2]);
    // What is wrong with its SLO keeps it at the edge, and its sites from there.
    let faulty = pod(json!({"sites": "far", "deadlineMs": "soon"}));
    assert_eq!(fates(&fleet(), &faulty), gated);
}

#[test]
fn sites_never_pin_but_the_pods_own_constraints_do() {
    // Full, and it could wait: its own constraints say that it does so there.
    let full = full(fleet(), &[1, 2]);
    let own = with(pod_for("far"), "/spec/nodeSelector", json!({"c": "far"}));
    assert_eq!(fates(&full, &own)[0], "far: cloud_pinned_by_pod");
    let any = with(pod_for("far"), "/spec/nodeSelector", json!({"any": "cloud"}));
    assert_eq!(fates(&full, &any)[0], "far: cloud_pinned_by_pod");
    let edge = with(pod_for("edge"), "/spec/nodeSelector", json!({"disk": "ssd"}));
    assert_eq!(fates(&full, &edge)[0], "edge: edge_pinned_by_pod");
}

#[test]
fn what_would_let_a_pod_go_undecided_does_not_where_it_has_sites() {
    let fleet = fleet();
    let gated = with(
        pod_for("far"),
        "/spec/schedulingGates",
        json!([{"name": "example.com/gate"}]),
    );
    assert_eq!(outcome_with(&fleet, &gated, &Config::default()), "held_foreign_gate");
    let no_edge = without_node(fleet.clone(), 0);
    assert_eq!(outcome(&no_edge, &pod_for("edge")), "edge: edge_pinned_by_pod");
    assert_eq!(outcome(&no_edge, &pod_for("edge,far")), "far: cloud_pinned_by_pod");
    let nowhere = with(pod_for("far"), "/spec/nodeSelector", json!({"no": "node"}));
    assert_eq!(outcome(&fleet, &nowhere), "held_site_away");
    // A placement that somebody has written, or that was made for others.
    let copied = with(
        with(pod_for("far"), "/spec/nodeSelector", json!({"c": "near"})),
        "/spec/tolerations",
        json!([{"operator": "Exists"}]),
    );
    let copied = ["decision", "site", "timestamp", "decision-id"]
        .into_iter()
        .zip([
            "cloud",
            "near",
            "2026-01-01T00:00:00Z",
            "00000000-0000-4000-8000-000000000000",
        ])
        .fold(copied, |pod, (key, value)| {
            with(
                pod,
                &format!("/metadata/annotations/scheduling.example.io~1{key}"),
                json!(value),
            )
        });
    assert_eq!(outcome(&fleet, &copied), "held_site_away");
    let there = with(copied, "/metadata/annotations/slo.example.io~1sites", json!("near"));
    assert_eq!(outcome(&fleet, &there), "passthrough_reinvocation");
    // More comparisons than a decision takes.
    let terms = json!([{"matchExpressions": [{"key": "k", "operator": "In", "values": vec!["v"; 200_000]}]}]);
    let affinity =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    let snapshot = testkit::snapshot(&fleet);
    let mut values = with(pod_for("far"), "/spec/affinity", affinity);
    values["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        [0]["matchExpressions"][0]["values"] = json!(vec!["v"; 9_000]);
    let tolerations = vec![json!({"operator": "Exists"}); 900];
    values["spec"]["tolerations"] = json!(tolerations);
    let text = values.to_string();
    let config = Config::default();
    let pod = Pod::from_json(&text).unwrap();
    let workload = pod.workload("shop".into(), &config.keys);
    let mut many = snapshot.clone();
    let node = many.sites[0].nodes[0].clone();
    let more = std::iter::repeat_n(node, 1_000);
    std::sync::Arc::make_mut(&mut many.sites[0].nodes).extend(more);
    let verdict = decide(&workload, &Room::of(&many), &config, NOW);
    assert_eq!(verdict.reason.as_str(), "held_no_capacity");
    assert!(verdict.warnings[0].contains("comparisons"), "{:?}", verdict.warnings);
}

#[test]
fn sites_that_cannot_be_read_are_refused_whatever_is_configured() {
    let verdict = |pod: &Value| {
        with_verdict(&fleet(), pod, &Config::default(), |verdict| {
            let faults: Vec<_> = verdict.faults.iter().map(ToString::to_string).collect();
            (verdict.action.as_str(), faults)
        })
    };
    assert_eq!(
        verdict(&pod(json!({"sites": "region in (eu"}))),
        (
            "deny",
            vec![
                r#"slo.example.io/sites: "region in (eu" is not site names or a selector of site labels, at most 1024 bytes"#
                    .to_owned()
            ]
        )
    );
    assert_eq!(verdict(&pod(json!({"sites": "far", "policySites": ""}))).0, "deny");
    // One that exists cannot be refused any more, and goes nowhere.
    assert_eq!(fates(&fleet(), &pod(json!({"sites": "a b"})))[1], "held_site_away");
}

#[test]
fn the_configuration_chooses_among_clouds_that_meet_the_time() {
    let fleet = full(fleet(), &[0]);
    let pod = pod(json!({"deadlineMs": "600"}));
    let with_policy = |fleet: &Value, policy| {
        let config = Config {
            site_policy: policy,
            ..Config::default()
        };
        outcome_with(fleet, &pod, &config)
    };
    assert_eq!(
        with_policy(&fleet, SitePolicy::LowestEta),
        "near: cloud_edge_no_capacity"
    );
    // One of which nobody says what it costs is last.
    assert_eq!(
        with_policy(&fleet, SitePolicy::LowestCost),
        "near: cloud_edge_no_capacity"
    );
    let priced = with(fleet.clone(), "/sites/1/costPerHour", json!(0.25));
    assert_eq!(
        with_policy(&priced, SitePolicy::LowestCost),
        "far: cloud_edge_no_capacity"
    );
    let cheaper = with(priced, "/sites/2/costPerHour", json!(0.249_999));
    assert_eq!(
        with_policy(&cheaper, SitePolicy::LowestCost),
        "near: cloud_edge_no_capacity"
    );
    let ordered = with(fleet.clone(), "/sites/2/order", json!(2));
    assert_eq!(
        with_policy(&ordered, SitePolicy::Ordered),
        "far: cloud_edge_no_capacity"
    );
    // It does not meet the time, however cheap it is.
    let mut late = with(fleet, "/sites/1/costPerHour", json!(0));
    late["sites"][1]["observedProcMs"] = json!({"latency": 900});
    assert_eq!(
        with_policy(&late, SitePolicy::LowestCost),
        "near: cloud_edge_no_capacity"
    );
}

#[test]
fn spread_counts_the_pods_of_a_controller_at_each_site() {
    let mut fleet = full(fleet(), &[0]);
    fleet["sites"][2]["controllerPods"] = json!({"shop": {"u": 1}, "other": {"v": 7}});
    let config = Config {
        site_policy: SitePolicy::Spread,
        ..Config::default()
    };
    let of = |uid: &str| {
        let owner =
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true}]);
        with(pod(json!({"deadlineMs": "600"})), "/metadata/ownerReferences", owner)
    };
    assert_eq!(outcome_with(&fleet, &of("u"), &config), "far: cloud_edge_no_capacity");
    // Another namespace's controller is another controller.
    assert_eq!(outcome_with(&fleet, &of("v"), &config), "near: cloud_edge_no_capacity");
    let single = pod(json!({"deadlineMs": "600"}));
    assert_eq!(outcome_with(&fleet, &single, &config), "near: cloud_edge_no_capacity");
}

#[test]
fn an_explanation_of_hundreds_of_sites_stays_within_its_size() {
    let mut fleet = fleet();
    let sites = fleet["sites"].as_array_mut().unwrap();
    for i in 0..400 {
        sites.push(json!({"name": format!("a-site-with-a-rather-long-name-{i:03}"), "kind": "cloud", "nodeSelector": {"c": format!("c{i}")}}));
    }
    let long = format!("region in (eu),tier notin ({})", vec!["x"; 60].join(","));
    for sites in ["far", &long] {
        with_verdict(&fleet, &pod_for(sites), &Config::default(), |verdict| {
            let short = explain(verdict, crate::config::Explain::Short).unwrap();
            let full = explain(verdict, crate::config::Explain::Full).unwrap();
            assert!(
                short.len() <= SHORT_BYTES && full.len() <= FULL_BYTES,
                "{short}\n{full}"
            );
            let chosen = verdict.site().unwrap().name();
            for text in [short, full] {
                let entries: Value = serde_json::from_str(&text).unwrap();
                assert!(entries[chosen].is_object(), "{text}");
            }
        });
    }
}
