//! Traits that a pod requires of its site or node, and traits that it prefers.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::OnNoCapacity;
use crate::model::traits::{Bound, Measured};
use crate::placement::room::Room;

/// Two edge nodes, a far cloud and a near one. The listed nodes have these traits.
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

fn labels(fleet: &Value, pod: &Value) -> Vec<String> {
    with_verdict(fleet, pod, &Config::default(), |verdict| {
        verdict.trait_labels.iter().map(ToString::to_string).collect()
    })
}

#[test]
fn placement_names_traits_that_only_some_nodes_have() {
    let label = ["traits.edgeward.io/Secure".to_owned()];
    for (added, fleet) in [
        // Only one edge node has the trait, so the placement names its label.
        (&label[..], fleet(&[(0, "Secure")])),
        (&[], of_site(fleet(&[]), 0, &["Secure", "Other"])),
        (&[], of_site(fleet(&[]), 2, &["Secure"])),
        (&[], of_site(fleet(&[(2, "Secure")]), 1, &["Secure"])),
    ] {
        assert_eq!(labels(&fleet, &asking("Secure")), added, "{fleet}");
    }
}

/// The verdict for a pod that requires `Fresh`, whose value at each site (edge, far, near) is at most 60 or unknown.
fn measured(values: [Option<i64>; 3], slo: &str, gated_for: Option<u64>) -> String {
    let mut snapshot = testkit::snapshot(&fleet(&[]));
    for (site, value) in snapshot.sites.iter_mut().zip(values) {
        let measured = Measured {
            name: "Fresh".into(),
            bound: Bound::AtMost(60_000),
            value: value.map(|value| 1_000 * value),
            holds: value.is_some_and(|value| value <= 60),
        };
        std::sync::Arc::make_mut(&mut site.definition).measured = vec![measured];
    }
    let mut workload = workload(&asking(slo));
    workload.gated_for = gated_for.map(Micros::from_secs);
    let verdict = decide(&workload, &Room::of(&snapshot), &Config::default(), NOW);
    let site = verdict.site().map_or("gate", Site::name);
    let refusals = verdict.sites.iter().flat_map(|site| &site.refusals);
    let refusals = refusals.filter(|refusal| refusal.code != RefusalCode::Deadline);
    let numbers = refusals.map(|refusal| format!(" {}{}", refusal.code.as_str(), Value::from(refusal.numbers.clone())));
    format!("{site}: {}{}", verdict.reason.as_str(), numbers.collect::<String>())
}

#[test]
fn measured_trait_holds_while_its_value_is_within_the_bound() {
    let (fresh, old, unknown) = (Some(30), Some(83), None);
    let lost = |value: &str| format!(r#" lost_trait{{"atMost":60,"trait":"Fresh","value":{value}}}"#);
    let says = |values, slo, gated_for| measured(values, slo, gated_for);
    assert_eq!(says([fresh; 3], "Fresh", None), "edge: edge_feasible_slo_met");
    let refused = lost("83") + &lost("null");
    assert_eq!(
        says([old, unknown, fresh], "Fresh", None),
        format!("near: cloud_edge_no_capacity{refused}")
    );
    // Without it the pod waits beyond its limit, and goes nowhere.
    for gated_for in [None, Some(1), Some(1_000)] {
        let waits = format!("gate: held_site_away{refused}{}", lost("61"));
        assert_eq!(
            says([old, unknown, Some(61)], "Fresh", gated_for),
            waits,
            "{gated_for:?}"
        );
    }
    // Of two required traits, the one that no site has counts, and the other is kept.
    for gated_for in [None, Some(1), Some(1_000)] {
        let found = says([old; 3], "Fresh, Secure", gated_for);
        assert!(found.starts_with("gate") && found.contains("missing_trait"), "{found}");
    }
}

#[test]
fn pod_takes_another_site_at_its_limit_in_place_of_one_that_lost_its_trait() {
    // The edge has lost it, the clouds are full.
    let full = |fleet, node| with(fleet, &format!("/nodes/{node}/used"), json!({"cpu": 100}));
    let clouds_full = full(full(fleet(&[]), 1), 2);
    let large = with(
        asking("Fresh"),
        "/spec/containers/0/resources/requests/cpu",
        json!("1000"),
    );
    let mut without_nodes = fleet(&[]);
    without_nodes["nodes"]
        .as_array_mut()
        .unwrap()
        .retain(|node| node["labels"]["node.role/edge"].is_null());
    for (fleet, pod, lost, expected) in [
        (
            &clouds_full,
            asking("Fresh"),
            [true, false, false],
            "near: released_timeout",
        ),
        (&clouds_full, asking("Fresh"), [true; 3], "gate: held_site_away"),
        // Only its size excludes the edge, where a node may be added.
        (&fleet(&[]), large, [true; 3], "gate: held_site_away"),
        // Without edge nodes the pod does not pass through.
        (&without_nodes, asking("Fresh"), [true; 3], "gate: held_site_away"),
    ] {
        let mut snapshot = testkit::snapshot(fleet);
        for (site, lost) in snapshot.sites.iter_mut().zip(lost) {
            let measured = Measured {
                name: "Fresh".into(),
                bound: Bound::AtLeast(1_000),
                value: Some(i64::from(!lost) * 1_000),
                holds: !lost,
            };
            std::sync::Arc::make_mut(&mut site.definition).measured = vec![measured];
        }
        let mut workload = workload(&pod);
        workload.gated_for = Some(Micros::from_secs(1_000));
        let verdict = decide(&workload, &Room::of(&snapshot), &Config::default(), NOW);
        let site = verdict.site().map_or("gate", Site::name);
        assert_eq!(format!("{site}: {}", verdict.reason.as_str()), expected, "{lost:?}");
    }
}

#[test]
fn missing_trait_refuses_every_site_and_is_selected_at_edge() {
    let fleet = fleet(&[]);
    with_verdict(&fleet, &asking("Secure, Green?"), &Config::default(), |verdict| {
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
    let stays = pod(json!({"deadlineMs": "600", "traits": "Secure", "offloadAllowed": "false"}));
    with_verdict(&fleet, &stays, &edge, |verdict| {
        assert_eq!(verdict.trait_labels, [Box::from("traits.edgeward.io/Secure")]);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    /// A pod is never placed on a site without its required traits. The exception is an edge where no node has them; the
    /// placement then selects them.
    #[test]
    fn placement_is_never_on_a_node_without_required_traits(fleet in testkit::fleet(), pod in testkit::pod(), gated in any::<bool>()) {
        let config = Config::default();
        let snapshot = testkit::snapshot(&fleet);
        let mut workload = testkit::workload(&pod, &config.keys);
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
