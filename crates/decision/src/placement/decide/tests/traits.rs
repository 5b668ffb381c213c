//! Traits that a pod requires of its site or node, and traits that it prefers.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::OnNoCapacity;
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
