//! Traits that a pod requires of its site or node, and those that it would rather have.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::OnNoCapacity;
use crate::placement::room::Room;

/// Two edge nodes, a far cloud and a near one, whose nodes have these traits.
fn fleet(of_nodes: &[(usize, &str)]) -> Value {
    let mut fleet = two_clouds();
    let mut second = fleet["nodes"][0].clone();
    second["name"] = json!("e2");
    fleet["nodes"].as_array_mut().unwrap().push(second);
    for (node, name) in of_nodes {
        fleet["nodes"][*node]["labels"][format!("traits.edgeward.io/{name}")] = json!("true");
    }
    fleet
}

fn of_site(mut fleet: Value, site: usize, names: &[&str]) -> Value {
    fleet["sites"][site]["traits"] = json!(names);
    fleet
}

fn asking(traits: &str) -> Value {
    pod(json!({"deadlineMs": "600", "traits": traits}))
}

fn fates(fleet: &Value, pod: &Value) -> [String; 2] {
    away::fates(fleet, pod, &Config::default())
}

fn labels(fleet: &Value, pod: &Value) -> Vec<String> {
    with_verdict(fleet, pod, &Config::default(), |verdict| {
        verdict.trait_labels.iter().map(ToString::to_string).collect()
    })
}

#[test]
fn a_pod_goes_where_its_traits_are() {
    let label = ["traits.edgeward.io/Secure".to_owned()];
    for (expected, added, fleet) in [
        // On one node of the edge, so that the placement names it.
        ("edge: edge_pinned_by_pod", &label[..], fleet(&[(0, "Secure")])),
        (
            "edge: edge_pinned_by_pod",
            &[],
            of_site(fleet(&[]), 0, &["Secure", "Other"]),
        ),
        ("near: cloud_pinned_by_pod", &[], of_site(fleet(&[]), 2, &["Secure"])),
        (
            "far: cloud_pinned_by_pod",
            &[],
            of_site(fleet(&[(2, "Secure")]), 1, &["Secure"]),
        ),
    ] {
        assert_eq!(fates(&fleet, &asking("Secure"))[0], expected, "{fleet}");
        assert_eq!(labels(&fleet, &asking("Secure")), added, "{fleet}");
    }
    // The node that has it is full, and the other does not count.
    let mut full = of_site(fleet(&[(0, "Secure")]), 2, &["Secure"]);
    full["nodes"][0]["used"] = full["nodes"][0]["allocatable"].clone();
    assert_eq!(fates(&full, &asking("Secure"))[0], "near: cloud_edge_no_capacity");
    // Each is somewhere, and all are nowhere.
    let spread = fleet(&[(0, "A"), (3, "B"), (2, "A"), (2, "B")]);
    assert_eq!(fates(&spread, &asking("A,B"))[0], "held_no_capacity");
    assert_eq!(
        fates(&fleet(&[(0, "A"), (0, "B")]), &asking("A,B"))[0],
        "edge: edge_pinned_by_pod"
    );
    // Any other value than true is none.
    let mut unsure = fleet(&[]);
    unsure["nodes"][0]["labels"]["traits.edgeward.io/Secure"] = json!("maybe");
    assert_eq!(fates(&unsure, &asking("Secure"))[0], "held_no_capacity");
}

#[test]
fn what_no_site_has_is_gated_and_then_waits_at_the_edge_for_a_node_that_has_it() {
    let fleet = fleet(&[]);
    assert_eq!(
        fates(&fleet, &asking("Secure, Green?")),
        ["held_no_capacity", "edge: released_timeout"]
    );
    with_verdict(&fleet, &asking("Secure, Green?"), &Config::default(), |verdict| {
        assert_eq!(
            verdict.warnings,
            ["no node has its traits (Secure): label some traits.edgeward.io/NAME=true"]
        );
        for site in &verdict.sites {
            let [refusal] = &site.refusals[..] else {
                panic!("{site:?}")
            };
            assert_eq!(
                (refusal.code, refusal.numbers["traits"].as_str()),
                (RefusalCode::MissingTrait, Some("Secure"))
            );
        }
    });
    let edge = Config {
        gating: Gating {
            on_no_capacity: OnNoCapacity::Edge,
            ..Gating::default()
        },
        ..Config::default()
    };
    assert_eq!(
        away::fates(&fleet, &asking("Secure"), &edge)[0],
        "edge: edge_no_capacity"
    );
    let stays = pod(json!({"deadlineMs": "600", "traits": "Secure", "offloadAllowed": "false"}));
    assert_eq!(away::fates(&fleet, &stays, &edge)[0], "edge: edge_offload_not_allowed");
    with_verdict(&fleet, &stays, &edge, |verdict| {
        assert_eq!(verdict.trait_labels, [Box::from("traits.edgeward.io/Secure")]);
    });
}

#[test]
fn a_cloud_that_has_them_is_waited_for_and_never_pinned() {
    let mut away = of_site(fleet(&[]), 2, &["Secure"]);
    away["sites"][2]["wan"] = json!({"reachable": false});
    assert_eq!(fates(&away, &asking("Secure")), ["near: cloud_pinned_by_pod"; 2]);
    let mut full = of_site(fleet(&[]), 2, &["Secure"]);
    full["nodes"][2]["used"] = full["nodes"][2]["allocatable"].clone();
    assert_eq!(fates(&full, &asking("Secure")), ["near: cloud_pinned_by_pod"; 2]);
}

#[test]
fn beside_sites_both_hold() {
    let fleet = of_site(of_site(fleet(&[]), 1, &["Secure"]), 2, &["Secure"]);
    let both = |sites: &str| pod(json!({"deadlineMs": "600", "traits": "Secure", "sites": sites}));
    assert_eq!(fates(&fleet, &both("far"))[0], "far: cloud_pinned_by_pod");
    assert_eq!(fates(&fleet, &both("edge")), ["held_site_away"; 2]);
    let by_policy = pod(json!({"deadlineMs": "600", "traits": "Secure", "policyTraits": "Other"}));
    assert_eq!(fates(&fleet, &by_policy)[0], "held_no_capacity");
}

#[test]
fn a_list_that_cannot_be_read_refuses_the_pod() {
    let bad = asking("Secure Green");
    with_verdict(&fleet(&[]), &bad, &Config::default(), |verdict| {
        assert_eq!(verdict.reason, Reason::DeniedInvalidSlo);
        assert_eq!(
            verdict.faults[0].to_string(),
            "slo.example.io/traits: \"Secure Green\" is not a list of at most 16 traits such as \"SecureRuntime, GreenEnergy?, SoftDistanceLimit=20ms\""
        );
    });
}

#[test]
fn optional_ones_count_in_a_profile() {
    let profile = |preferred: &str| {
        json!([{"name": "flocky", "better": "lower", "margin": 5, "preferred": preferred, "scores": [
            {"site": "edge", "score": [10, 110, 210]}, {"site": "near", "score": [20, 120, 220]}, {"site": "far", "score": [30, 130, 230]},
        ]}])
    };
    let asks = |traits: &str| pod(json!({"deadlineMs": "600", "traits": traits, "profile": "flocky"}));
    let mut fleet = of_site(fleet(&[]), 1, &["Green"]);
    fleet["profiles"] = profile("edge");
    assert_eq!(fates(&fleet, &asks("Other?"))[0], "edge: edge_feasible_slo_met");
    assert_eq!(fates(&fleet, &asks("Green?"))[0], "far: cloud_profile");
    assert_eq!(
        fates(&fleet, &asks("Green?, SoftDistanceLimit=50ms?"))[0],
        "edge: edge_feasible_slo_met"
    );
    // What is preferred stays so within the margin.
    fleet["profiles"] = profile("near");
    fleet["profiles"][0]["margin"] = json!(15);
    assert_eq!(fates(&fleet, &asks("Other?"))[0], "near: cloud_profile");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// Whatever else there is, no pod is placed on a site without its traits but on the edge where none has them, and then its selector
    /// asks for them.
    #[test]
    fn a_placement_is_never_on_a_node_without_its_traits(fleet in testkit::fleet(), pod in testkit::pod(), gated in any::<bool>()) {
        let config = Config::default();
        let snapshot = testkit::snapshot(&fleet);
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let mut workload = pod.workload("shop".into(), &config.keys);
        workload.gated_for = gated.then_some(Micros::from_secs(400));
        let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);
        let (Some(site), Some(traits)) = (verdict.site(), workload.traits()) else { return Ok(()) };
        let is_selected = |label: &str| verdict.trait_labels.iter().any(|added| **added == *label);
        prop_assert!(traits.of_nodes(&site.definition).all(is_selected));
        if let Some(node) = verdict.node {
            let node = site.nodes().find(|other| other.id == node).unwrap();
            prop_assert!(traits.are_at(node, &site.definition));
        }
    }
}
