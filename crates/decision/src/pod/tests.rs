use edgeward_kube::constraints::NodeConstraints;
use edgeward_kube::pod::MAX_CONSTRAINTS;
use edgeward_kube::ties::Tie;
use serde_json::json;

use super::*;

#[test]
fn host_network_ports_default_to_host_ports() {
    let ties = |host_network: bool| {
        let port = json!({"ports": [{"containerPort": 80, "hostPort": 0}]});
        let text = json!({"spec": {"hostNetwork": host_network, "containers": [port]}}).to_string();
        let mut pod = Pod::from_json(&text).unwrap();
        pod.apply_api_defaults();
        let ties = pod.workload("ns".into(), &Keys::new("example.io")).ties;
        ties.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(ties(true), [Tie::HostNetwork, Tie::HostPort]);
    assert_eq!(ties(false), []);
}

#[test]
fn escaped_strings_unknown_fields_and_nulls_are_read() {
    let text = r#"{
        "metadata": {"annotations": {"slo.example.io/class": "la\u0074ency", "x": "a\nb", "none": null}, "labels": null,
                     "ownerReferences": [{"kind": "ReplicaSet", "controller": true, "new": {"deep": [1]}}]},
        "spec": {"future": {"field": [{}]}, "tolerations": null, "nodeSelector": null, "priority": null,
                 "containers": [{"name": "c", "futureToo": 1.5e300}]}
    }"#;
    let pod = Pod::from_json(text).unwrap();
    assert_eq!(pod.annotation("x"), Some("a\nb"));
    assert_eq!(pod.annotation("none"), Some(""));
    let workload = pod.workload("ns".into(), &Keys::new("example.io"));
    assert_eq!(workload.intent.unwrap().slo.class, crate::model::slo::Class::Latency);
    assert!(!workload.daemonset);
}

#[test]
fn daemonset_mirror_bound_and_shadow_pods_are_recognised() {
    let facts = |pod: serde_json::Value| {
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let shadow = pod.is_marked_as_shadow();
        let Workload {
            daemonset,
            mirror,
            bound,
            gates,
            ..
        } = pod.workload("ns".into(), &Keys::new("example.io"));
        [daemonset, mirror, bound, shadow, !gates.is_empty()]
    };
    let owner = |kind: &str, controller: bool| json!({"metadata": {"ownerReferences": [{"kind": kind, "controller": controller}]}, "spec": {}});
    assert_eq!(facts(owner("DaemonSet", true)), [true, false, false, false, false]);
    assert_eq!(facts(owner("DaemonSet", false)), [false; 5]);
    assert_eq!(facts(owner("Job", true)), [false; 5]);
    let others = json!({
        "metadata": {"annotations": {"kubernetes.io/config.mirror": ""}, "labels": {"liqo.io/managed-by": "shadowpod"}},
        "spec": {"nodeName": "n", "schedulingGates": [{"name": "g"}]},
    });
    assert_eq!(facts(others), [false, true, true, true, true]);
    assert_eq!(facts(json!({"spec": {"nodeName": ""}})), [false; 5]);
}

#[test]
fn local_cluster_ties_are_read_from_the_spec() {
    let ties = |spec: serde_json::Value| {
        let text = json!({ "spec": spec }).to_string();
        let pod = Pod::from_json(&text).unwrap();
        let ties = pod.workload("ns".into(), &Keys::new("example.io")).ties;
        ties.into_iter().map(Tie::as_str).collect::<Vec<_>>()
    };
    assert_eq!(
        ties(json!({
            "volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "b", "hostPath": {}}],
            "hostNetwork": true, "hostPID": true, "hostIPC": true,
            "initContainers": [{"ports": [{"containerPort": 1, "hostPort": 80}]}],
            "resourceClaims": [{"name": "gpu"}],
        })),
        Tie::ALL.map(Tie::as_str)
    );
    assert_eq!(ties(json!({"volumes": [{"ephemeral": {}}]})), ["persistentVolumeClaim"]);
    assert!(
        ties(json!({
            "volumes": [{"emptyDir": {}}, {"configMap": {"name": "x"}}], "hostNetwork": false,
            "containers": [{"ports": [{"containerPort": 80, "hostPort": 0}]}], "resourceClaims": [],
        }))
        .is_empty()
    );
}

#[test]
fn stated_placement_needs_all_identifying_annotations() {
    let claim = |without: &str| {
        let mut annotations = json!({
            "scheduling.example.io/decision": "edge", "scheduling.example.io/site": "edge",
            "scheduling.example.io/reason": "edge_feasible_slo_met", "scheduling.example.io/decision-id": "x",
            "scheduling.example.io/timestamp": "2026-01-01T00:00:00Z",
        });
        annotations
            .as_object_mut()
            .unwrap()
            .remove(&format!("scheduling.example.io/{without}"));
        let text = json!({"metadata": {"annotations": annotations}, "spec": {}}).to_string();
        Pod::from_json(&text)
            .unwrap()
            .workload("ns".into(), &Keys::new("example.io"))
            .placement
            .is_some()
    };
    assert!(claim("nothing"));
    assert!(claim("reason"));
    for needed in ["decision", "site", "decision-id", "timestamp"] {
        assert!(!claim(needed), "{needed}");
    }
}

#[test]
fn long_constraints_of_a_pod_that_exists_are_skipped() {
    let read = |selector: usize, affinity: usize, tolerations: usize| {
        let text = |length: usize| "x".repeat(length);
        let expressions = json!([{"key": "zone", "operator": "In", "values": [text(affinity)]}]);
        let terms = json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]});
        let json = json!({"spec": {
            "nodeSelector": {"disk": text(selector)},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}},
            "tolerations": [{"key": text(tolerations)}],
        }});
        let json = json.to_string();
        let workload = |pod: &Pod<'_>| {
            let workload = pod.workload("ns".into(), &Keys::new("example.io")).into_owned();
            let NodeConstraints { selector, affinity, .. } = workload.constraints;
            (selector.len(), affinity.is_some(), workload.tolerations.len())
        };
        let whole = Pod::from_json(&json).unwrap();
        assert_eq!(workload(&whole), (1, true, 1));
        assert!(whole.spec.tolerations.is_some());
        let length = whole.spec.constraints_length();
        let found = workload(&Pod::without_long_constraints(&json).unwrap());
        (length <= MAX_CONSTRAINTS, found)
    };
    assert_eq!(read(1, 1, 1), (true, (1, true, 1)));
    assert_eq!(read(1_000, 1_000, 1_500), (true, (1, true, 1)));
    assert_eq!(read(1_000, 1_000, 2_500), (false, (1, false, 0)));
    assert_eq!(read(1, 1_000_000, 1), (false, (1, false, 0)));
    assert_eq!(read(5_000, 1, 1), (false, (0, false, 0)));
}

#[test]
fn claims_with_impossible_names_are_not_looked_up() {
    let claims = |name: String, class: String| {
        let ephemeral = json!({"volumeClaimTemplate": {"spec": {"storageClassName": class}}});
        let volumes = json!([{"persistentVolumeClaim": {"claimName": name}}, {"ephemeral": ephemeral}]);
        let text = json!({"spec": {"volumes": volumes}}).to_string();
        let pod = Pod::from_json(&text).unwrap();
        pod.workload("ns".into(), &Keys::new("example.io")).volume_claims.len()
    };
    let text = |length| "x".repeat(length);
    assert_eq!(claims(text(253), text(253)), 2);
    assert_eq!(claims(text(254), text(1)), 0);
    assert_eq!(claims(text(1), text(1_000_000)), 0);
}
