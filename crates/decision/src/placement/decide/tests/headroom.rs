//! Headroom that placeholders keep.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::config::Explain;
use crate::placement::decide::tests::capacity::with_reserved;
use crate::placement::explain::explain;
use edgeward_kube::node::{Placeholder, Termination};

/// A full edge node of 4 cores. One placeholder with this priority and grace period uses `millicores` of it.
pub(super) fn kept_warm(millicores: u32, priority: i32, grace: u32) -> Value {
    let used = json!({"cpu": format!("{millicores}m"), "pods": 1});
    let fleet = with(
        fleet(4000),
        "/nodes/0/placeholders",
        json!([{"priority": priority, "graceSeconds": grace, "used": used}]),
    );
    with(
        fleet,
        "/nodes/0/usedByPriority",
        json!([{"priority": priority, "used": used}]),
    )
}

#[test]
fn placeholder_room_is_given_only_once() {
    let outcome = |millicores: u32, reserved: &[(i64, i32)]| {
        with_reserved(&kept_warm(millicores, -10, 0), reserved, &pod(json!({})), |verdict| {
            (
                verdict.site().unwrap().name().to_owned(),
                verdict.node.map(|node| node.0),
            )
        })
    };
    assert_eq!(outcome(1000, &[(500, 0)]), ("edge".into(), Some(0)));
    assert_eq!(outcome(1000, &[(501, 0)]), ("cloud".into(), Some(1)));
    assert_eq!(outcome(1000, &[(500, 0), (500, 0)]), ("cloud".into(), Some(1)));
    // The refusal's numbers include the headroom.
    let numbers = with_reserved(&kept_warm(1000, -10, 0), &[(600, 0)], &pod(json!({})), |verdict| {
        Value::from(verdict.sites[0].refusals[0].numbers.clone())
    });
    assert_eq!(numbers["largestFree"]["cpu"], 400);
    assert_eq!(numbers["reserved"]["cpu"], 600);
    // A terminating placeholder does not count as headroom as well.
    let leaving = |placeholder, request: &str| {
        let fleet = with(
            kept_warm(1000, -10, 0),
            "/nodes/0/terminating",
            json!({"cpu": "1", "pods": 1}),
        );
        let mut snapshot = testkit::snapshot(&fleet);
        let termination = Termination {
            placeholder,
            ..Termination::default()
        };
        let nodes = &mut snapshot.sites[0].nodes;
        Arc::make_mut(&mut Arc::make_mut(nodes)[0]).charges.terminating[0].0 = termination;
        let pod = with(
            pod(json!({})),
            "/spec/containers/0/resources/requests/cpu",
            json!(request),
        );
        let config = Config::default();
        let workload = testkit::workload(&pod, &config.keys);
        decide(&workload, &Room::of(&snapshot), &config, NOW).reason.as_str()
    };
    let placeholder = |seconds| {
        Some(Placeholder {
            priority: -10,
            grace: Micros::from_secs(seconds),
        })
    };
    assert_eq!(leaving(placeholder(0), "1"), "edge_no_slo_target");
    assert_eq!(leaving(placeholder(0), "2"), "cloud_edge_no_capacity");
    assert_eq!(leaving(None, "2"), "held_no_capacity");
    // A placeholder that is no headroom for this pod counts as a terminating pod like any other.
    assert_eq!(leaving(placeholder(60), "2"), "held_no_capacity");
}

#[test]
fn placeholder_is_not_evicted_while_another_node_fits() {
    let free = json!({"name": "e2", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": 9},
                      "used": {"cpu": "3500m", "pods": 1}});
    let fleet = with(kept_warm(4000, -10, 0), "/nodes/-", free);
    let config = Config::default();
    let said = |fleet: &Value| {
        with_verdict(fleet, &pod(json!({})), &config, |verdict| {
            let node = verdict
                .site()
                .unwrap()
                .nodes()
                .find(|node| Some(node.id) == verdict.node);
            let explained = [Explain::Short, Explain::Full].map(|how| {
                let text = explain(verdict, how).unwrap();
                serde_json::from_str::<Value>(&text).unwrap()["edge"].clone()
            });
            (node.unwrap().name.to_string(), explained)
        })
    };
    let (node, [short, full]) = said(&fleet);
    assert_eq!(
        (&*node, &short["fit"], &short["headroom"]),
        ("e2", &json!(2), &json!(1))
    );
    assert_eq!((&full["fittingNodes"], &full["headroomNodes"]), (&json!(2), &json!(1)));
    let (node, [short, _]) = said(&kept_warm(4000, -10, 0));
    assert_eq!(
        (&*node, &short["fit"], &short["headroom"]),
        ("e1", &json!(1), &json!(1))
    );
    let (_, [short, full]) = said(&super::fleet(0));
    assert_eq!(
        (&short["headroom"], &full["headroomNodes"]),
        (&Value::Null, &Value::Null)
    );
}
