//! Pods with more constraints or resources than edgeward keeps.

use proptest::prelude::*;

use super::*;
use crate::pod_record::read_record;
use edgeward_decision::model::remote_room::Start;
use edgeward_decision::testkit;
use edgeward_kube::resources::{Amounts, ResourceNames};

/// A node affinity term with this many label values, none of which a node has.
fn affinity(values: usize) -> Value {
    let values: Vec<_> = (0..values).map(|i| format!("value-{i}")).collect();
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "NotIn", "values": values}]}],
    }}})
}

/// The requested resource with the last name.
const DEVICE: &str = "example.com/z-device";

/// The resources that the nodes have.
fn names() -> ResourceNames {
    let mut names = ResourceNames::default();
    let amounts = Amounts {
        scalars: vec![(DEVICE.into(), 1)],
        ..Amounts::default()
    };
    names.set("a", &amounts);
    names
}

fn apply(fixture: &mut Fixture, pod: &Value) {
    let text = pod.to_string();
    let record = read_record(&text, &Keys::new("example.io"), &names(), false)
        .unwrap()
        .unwrap();
    fixture.cache.apply_pod(&record, None, NOW.at(fixture.now));
}

#[test]
fn pod_with_long_constraints_charges_a_node_until_refused() {
    for values in [500, 340_000] {
        let huge = |pod| with(pod, "/spec/affinity", affinity(values));
        let mut fixture = Fixture::new();
        fixture.node(&edge_node("a", 1000));
        fixture.node(&edge_node("b", 4000));
        let elsewhere = with(pod("other", 300), "/spec/nodeSelector", json!({"zone": "nowhere"}));
        apply(&mut fixture, &huge(elsewhere));
        assert_eq!(fixture.used(), [0, 0]);
        apply(&mut fixture, &huge(pod("1", 500)));
        assert_eq!(fixture.used(), [0, 500], "as any pod that nobody has spoken of");
        apply(&mut fixture, &huge(unschedulable(pod("1", 500), "no")));
        fixture.wait(30);
        assert_eq!(fixture.used(), [0, 0]);
        assert_eq!((fixture.waiting(), fixture.closed()), (0, vec![]));
        // A new node with room does not make edgeward assume that the pod goes there.
        fixture.node(&edge_node("c", 4000));
        assert_eq!(fixture.used(), [0, 0, 0]);
        assert_eq!((fixture.waiting(), fixture.closed()), (0, vec![]));
        let nominated = unschedulable(pod("1", 500), "no");
        apply(
            &mut fixture,
            &huge(with(nominated, "/status/nominatedNodeName", "c".into())),
        );
        assert_eq!(fixture.used(), [0, 0, 500]);
        apply(&mut fixture, &huge(bound(pod("1", 500), "a")));
        assert_eq!(fixture.used(), [500, 0, 0]);
    }
}

#[test]
fn pod_with_unknown_labels_or_resources_charges_once_bound() {
    let labels: serde_json::Map<_, _> = (0..2_000).map(|i| (format!("label-{i}"), json!("value"))).collect();
    let invented = (0..2_000).map(|i| format!("example.com/r-{i:04}"));
    let requests = invented.chain([DEVICE.to_owned()]).map(|name| (name, json!("1")));
    let selecting = with(pod("1", 500), "/spec/nodeSelector", labels.into());
    let mut requesting = pod("1", 500);
    requesting["spec"]["containers"][0]["resources"]["requests"]
        .as_object_mut()
        .unwrap()
        .extend(requests);
    for pod in [selecting, requesting] {
        let mut fixture = Fixture::new();
        let mut node = edge_node("a", 4000);
        node["status"]["allocatable"][DEVICE] = "1".into();
        fixture.node(&node);
        apply(&mut fixture, &pod);
        assert_eq!(fixture.used(), [0]);
        apply(&mut fixture, &unschedulable(pod.clone(), "no"));
        fixture.wait(30);
        assert_eq!((fixture.waiting(), fixture.closed()), (0, vec![]));
        let is_requesting = pod["spec"]["nodeSelector"]["label-0"].is_null();
        apply(&mut fixture, &bound(pod, "a"));
        let snapshot = fixture.publish();
        let used = &snapshot.sites[0].nodes().next().unwrap().charges.used;
        assert_eq!((used.cpu.0, used.scalar(DEVICE)), (500, i64::from(is_requesting)));
        assert_eq!(
            used.scalars.len(),
            usize::from(is_requesting),
            "what no node has is not summed up"
        );
    }
}

#[test]
fn refusal_for_unknown_resource_sets_no_cloud_bound() {
    let refused = |name: &str| {
        let pod = bound(pod("1", 500), "cloud-0");
        let pod = with(
            pod,
            "/spec/containers/0/resources/requests",
            json!({"cpu": "500m", name: "1"}),
        );
        let message = format!("0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient {name}.");
        let pod = unschedulable(pod, &message).to_string();
        read_record(&pod, &Keys::new("example.io"), &names(), false)
            .unwrap()
            .unwrap()
            .start
    };
    assert_eq!(refused("example.com/invented"), Start::Refused(None));
    assert!(matches!(refused(DEVICE), Start::Refused(Some(bound)) if bound.amounts().len() == 2));
}

#[test]
fn gated_or_stuck_pod_with_long_constraints_keeps_no_workload() {
    let read = |values: usize, gates: Value| {
        let mut pod = with(pod("1", 500), "/spec/affinity", affinity(values));
        pod["metadata"]["resourceVersion"] = "7".into();
        pod["spec"]["schedulingGates"] = gates;
        let text = unschedulable(pod, "no").to_string();
        read_record(&text, &Keys::new("example.io"), &names(), false)
            .unwrap()
            .unwrap()
    };
    let gates = json!([{"name": "scheduling.example.io/awaiting-capacity"}, {"name": "example.com/other"}]);
    let gated = |values| read(values, gates.clone()).gated_pod.unwrap();
    assert!(gated(500).workload.is_none() && gated(500).has_other_gates);
    let workload = gated(20).workload.clone().unwrap();
    assert_eq!(
        (
            workload.constraints.affinity.map(|terms| terms.len()),
            workload.gates.len()
        ),
        (Some(1), 1)
    );
    assert!(read(500, json!([])).stuck.is_none());
    assert!(read(20, json!([])).stuck.is_some());
}

proptest! {
    #[test]
    fn record_of_huge_pod_is_bounded(pod in testkit::huge_pod()) {
        let text = pod.to_string();
        let record = read_record(&text, &Keys::new("example.io"), &names(), false).unwrap().unwrap();
        let size = |kept: &dyn std::fmt::Debug| format!("{kept:?}").len();
        prop_assert!(size(&record) < 64 * 1024, "{}", size(&record));
        // A pod with a node keeps only the resources that its node counts.
        prop_assert!(record.node.is_none() || record.request.scalars.iter().all(|(name, _)| **name == *DEVICE));
        let request = Pod::from_json(&text).unwrap().request().amounts();
        prop_assert_eq!((record.request.cpu, record.request.memory), (request.cpu, request.memory));
    }

    #[test]
    fn record_of_ordinary_pod_keeps_request_and_constraints(pod in testkit::pod()) {
        let mut pod = pod;
        let read = Pod::from_json(&pod.to_string()).map(|_| ());
        prop_assume!(read.is_ok());
        if !pod["metadata"].is_object() {
            pod["metadata"] = json!({});
        }
        pod["metadata"]["uid"] = "u".into();
        pod["metadata"]["namespace"] = "shop".into();
        let text = pod.to_string();
        let keys = Keys::new("example.io");
        let pod = Pod::from_json(&text).unwrap();
        let Some(record) = crate::pod_record::record(&pod, &keys).ok().flatten() else { return Ok(()) };
        let workload = pod.workload("shop".into(), &keys);
        prop_assert_eq!(&record.request.cpu, &pod.request().amounts().cpu);
        if let Some(placement) = &record.placement {
            prop_assert_eq!(&placement.constraints, &workload.constraints);
            prop_assert_eq!(&placement.tolerations, &workload.tolerations);
        }
    }
}
