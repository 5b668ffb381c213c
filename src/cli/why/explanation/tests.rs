use edgeward_decision::fleet_file;
use edgeward_decision::placement::decide::decide;
use edgeward_decision::placement::room::Room;
use edgeward_decision::pod::Pod;
use edgeward_kube::units;
use edgeward_kube::units::Moment;

use super::*;

/// A fleet with an edge site, whose node uses `used` CPU, and a cloud site.
fn fleet(used: &str) -> Value {
    json!({
        "sites": [
            {"name": "edge", "kind": "edge"},
            {"name": "cloud", "kind": "cloud", "wan": {"rttMs": 25, "lossPct": 0, "ageSeconds": 1}},
        ],
        "nodes": [
            {"name": "e1", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 1, "memory": "4Gi", "pods": 110},
             "used": {"cpu": used}},
            {"name": "c1", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": 64, "memory": "64Gi", "pods": 500}},
        ],
    })
}

/// Explains a pod with the annotations `decided`, this spec and this status.
fn explained(used: &str, decided: &Value, spec: Value, status: &Value, site: Option<&str>, causes: &[&str]) -> String {
    explained_under(None, used, decided, spec, status, site, causes)
}

/// Explains a pod. `leaderless` says why no replica leads.
fn explained_under(
    leaderless: Option<Leaderless>,
    used: &str,
    decided: &Value,
    spec: Value,
    status: &Value,
    site: Option<&str>,
    causes: &[&str],
) -> String {
    let config = Config::default();
    let now = units::Now {
        moment: Moment(60_000_000),
        wall: "2026-11-21T12:00:00Z".parse().unwrap(),
    };
    let mut annotations = json!({"slo.example.io/class": "latency", "slo.example.io/latencyTargetMs": "300"});
    for (key, value) in decided.as_object().into_iter().flatten() {
        annotations[format!("scheduling.example.io/{key}")] = value.clone();
    }
    let mut spec = spec;
    spec["containers"] = json!([{"name": "app", "resources": {"requests": {"cpu": "200m"}}}]);
    let pod = json!({
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1",
            "creationTimestamp": "2026-11-21T07:59:59Z", "annotations": annotations,
        },
        "spec": spec, "status": status,
    });
    let json = pod.to_string();
    let snapshot = fleet_file::read(&fleet(used), &config, now.moment).unwrap();
    let state = SchedulingState::read(&json, &config.keys, site.map(str::to_owned), now.wall).unwrap();
    let pod = Pod::from_json(&json).unwrap();
    let gated = edgeward_cluster::pod_record::record(&Pod::from_json(&json).unwrap(), &config.keys).unwrap();
    let gated = gated.and_then(|record| record.gated_pod);
    let workload = super::super::as_it_arrived(&pod, "shop", &state, &snapshot, &config);
    let verdict = decide(&workload, &Room::of(&snapshot), &config, now);
    let queue = state.gated_seconds.map(|_| Queue {
        ahead: Some(2),
        gated: 5,
        limit_over: gated
            .and_then(|pod| pod.limit(&config, now.wall))
            .filter(|end| *end < now.wall),
        leaderless,
    });
    let subject = Subject {
        namespace: "shop",
        name: "web",
        workload: &workload,
        snapshot: &snapshot,
    };
    let causes = causes.iter().map(ToString::to_string).collect();
    Explanation::new(subject, state, queue, Now::from(&verdict), causes, vec![], &config).text()
}

fn to_cloud() -> Value {
    json!({
        "decision": "cloud", "site": "cloud", "reason": "cloud_edge_no_capacity", "decision-id": "b2cba453-496d-4735-8d8b-e213408543e6",
        "timestamp": "2026-11-21T11:50:00Z", "wanRttMs": "22",
        "explain": "{\"cloud\":{\"eta\":164,\"fit\":1},\"edge\":{\"eta\":120,\"fit\":0,\"no\":[\"no_room\"]}}",
    })
}

#[test]
fn explanation_of_cloud_pod_shows_edge_fits_now() {
    let spec = json!({"nodeName": "c1", "nodeSelector": {"node.role/cloud": "true"}});
    let status = json!({"phase": "Running", "startTime": "2026-11-21T11:50:03Z"});
    let text = explained("100m", &to_cloud(), spec, &status, Some("cloud"), &[]);
    let expected = "\
shop/web runs on node c1 of site cloud: the edge has no room, and this cloud meets its time (cloud_edge_no_capacity)

asks for  latency, latency target 300 ms, priority 5, cpu 200m
decided   site cloud: the edge has no room, and this cloud meets its time (cloud_edge_no_capacity)
          at 2026-11-21T11:50:00Z, 10m ago, RTT 22 ms
          cloud: fits 1 node, ETA 164 ms
          edge: fits 0 nodes, ETA 120 ms, refused: it has no room (no_room)
is        Running, node c1, site cloud
          started at 2026-11-21T11:50:03Z
now       site edge: it fits and meets its SLO (edge_feasible_slo_met)
          edge: ETA 120 ms (queue 0 + processing 120 + WAN 0), fits 1 node, Good
          cloud: ETA 170 ms (queue 0 + processing 120 + WAN 50), fits 1 node, Good
changed   site cloud → edge
          reason cloud_edge_no_capacity → edge_feasible_slo_met
          RTT in ms 22 → 25
          edge: nodes that it fits 0 → 1
          edge: refusals no_room → none
          cloud: ETA in ms 164 → 170
";
    assert_eq!(text, expected);
}

#[test]
fn explanation_of_gated_pod_says_why_it_waits() {
    // All annotations of a gated pod (`crates/decision/src/placement/patch.rs`). It has no decision id.
    let gated = json!({"reason": "held_no_capacity", "timestamp": "2026-11-21T11:59:50Z"});
    let gates = json!([{"name": "scheduling.example.io/awaiting-capacity"}]);
    let scheduled =
        json!({"type": "PodScheduled", "status": "False", "message": "blocked due to non-empty scheduling gates"});
    let status = json!({"phase": "Pending", "conditions": [scheduled]});
    let text = explained(
        "900m",
        &gated,
        json!({"schedulingGates": gates, "nodeSelector": {"node.role/edge": "true", "disk": "fast"}}),
        &status,
        None,
        &[],
    );
    let first = "shop/web does not run: gated by edgeward for 10s: no site can be chosen for it yet; it waits behind edgeward's scheduling \
                 gate (held_no_capacity)\n";
    assert!(text.starts_with(first), "{text}");
    for line in [
        "decided   gate: ",
        "          2 of 5 gated pods are given room before it\n",
        "          kube-scheduler: blocked due to non-empty scheduling gates\n",
        // The pod stays gated, and its own constraints still count.
        "now       gate: no site can be chosen for it yet; it waits behind edgeward's scheduling gate (held_no_capacity)\n",
        "fits 0 nodes, Never: the pod's constraints and tolerations allow no node: nodes 1, the constraints allow 0 (no_matching_node)\n",
        "changed   nothing that the decision names\n",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
}

#[test]
fn explanation_starts_with_missing_leader_or_overdue_limit() {
    const GATE: &str = "scheduling.example.io/awaiting-capacity";
    let says = |at: &str, gates: &[&str], leaderless: Option<Leaderless>, expected: &str, others: &[&str]| {
        let gated = json!({"reason": "held_no_capacity", "timestamp": at});
        let gates: Vec<_> = gates.iter().map(|name| json!({"name": name})).collect();
        let pending = json!({"phase": "Pending"});
        let spec = json!({"schedulingGates": gates});
        let text = explained_under(leaderless, "100m", &gated, spec, &pending, None, &[]);
        let first = text.lines().next().unwrap();
        assert_eq!(
            first,
            format!("shop/web does not run: gated by edgeward for {expected}")
        );
        for line in others {
            assert!(text.contains(line), "no {line:?} in\n{text}");
        }
    };
    let nobody = |since: Option<&str>| {
        Some(Leaderless {
            lease: "edgeward-system/edgeward".to_owned(),
            since: since.map(|at| at.parse().unwrap()),
        })
    };
    says(
        "2026-11-21T08:00:00Z",
        &[GATE],
        nobody(Some("2026-11-21T09:00:00.123456Z")),
        "4h: it is not being released: no replica leads by the Lease edgeward-system/edgeward, since 2026-11-21T09:00:00Z; start a replica, or remove \
         its gate: edgeward release web -n shop",
        &[
            "decided   gate: no site can be chosen for it yet",
            "now       site edge: it fits and meets its SLO",
        ],
    );
    says(
        "2026-11-21T11:59:50Z",
        &[GATE],
        nobody(None),
        "10s: it is not being released: no replica leads: there is no Lease edgeward-system/edgeward; start a replica, or remove its gate: edgeward release web -n \
         shop",
        &[],
    );
    // A replica leads, or it is not known whether one does.
    says(
        "2026-11-21T11:50:00Z",
        &[GATE],
        None,
        "10m: its limit ended at 2026-11-21T11:50:30Z, and it is still gated; its Events and the log \
         of the leader say why",
        &[],
    );
    let waits = "no site can be chosen for it yet; it waits behind edgeward's scheduling gate (held_no_capacity)";
    says("2026-11-21T11:59:30Z", &[GATE], None, &format!("30s: {waits}"), &[]);
    // The limit does not count while other gates hold the pod.
    says(
        "2026-11-21T11:50:00Z",
        &[GATE, "queue.example/admitted"],
        None,
        &format!("10m (and by gates of others: queue.example/admitted): {waits}"),
        &[],
    );
}

#[test]
fn gate_of_another_edgeward_domain_is_recognized() {
    let keys = Config::default().keys;
    let state = |gate: &str| {
        let pod = json!({"metadata": {}, "spec": {"schedulingGates": [{"name": gate}]}, "status": {}});
        SchedulingState::read(&pod.to_string(), &keys, None, "2026-11-21T12:00:00Z".parse().unwrap()).unwrap()
    };
    assert_eq!(
        state("scheduling.acme.dev/awaiting-capacity")
            .other_domain(&keys)
            .as_deref(),
        Some(
            "its gate scheduling.acme.dev/awaiting-capacity is that of an edgeward with the domain acme.dev, and example.io \
             was asked about; name the edgeward that has it with --deployment, or its configuration with --config"
        )
    );
    assert_eq!(state("queue.example/admitted").other_domain(&keys), None);
}

#[test]
fn explanation_of_undecided_pod_names_the_cause() {
    let cause = "namespace shop is not labelled scheduling.example.io/managed=true";
    let spec = json!({"nodeName": "e1"});
    let text = explained(
        "100m",
        &json!({}),
        spec,
        &json!({"phase": "Running"}),
        Some("edge"),
        &[cause],
    );
    let first = format!("shop/web runs on node e1 of site edge: edgeward did not decide it: {cause}\n");
    assert!(text.starts_with(&first), "{text}");
    assert!(
        text.contains(&format!("undecided {cause}\n")) && !text.contains("changed"),
        "{text}"
    );
    assert!(
        text.contains("now       site edge: it fits and meets its SLO"),
        "{text}"
    );
}

#[test]
fn explanation_starts_with_reason_pod_does_not_run() {
    let says = |spec: Value, status: &Value, expected: &str| {
        let text = explained("100m", &to_cloud(), spec, status, Some("cloud"), &[]);
        let first = text.lines().next().unwrap();
        assert!(first.starts_with(&format!("shop/web {expected}: ")), "{first}");
    };
    let selector = || json!({"nodeSelector": {"node.role/cloud": "true"}});
    let refused = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}]);
    says(
        selector(),
        &json!({"phase": "Pending", "conditions": refused}),
        "does not run: sent to site cloud, kube-scheduler finds no node for it: 0/3 nodes are available",
    );
    says(
        selector(),
        &json!({"phase": "Pending"}),
        "does not run: sent to site cloud, kube-scheduler has not placed it yet",
    );
    let waiting =
        json!([{"name": "app", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]);
    says(
        json!({"nodeName": "c1"}),
        &json!({"phase": "Pending", "containerStatuses": waiting}),
        "is on node c1 of site cloud, but does not run whole: container app: ImagePullBackOff: no such image",
    );
    let full = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes are available"}]);
    says(
        json!({"nodeName": "c1"}),
        &json!({"phase": "Pending", "conditions": full}),
        "does not run: it is on node c1 of site cloud, and waits there: 0/4 nodes are available",
    );
    let backing_off = json!([{"type": "PodScheduled", "status": "False", "reason": "OffloadingBackOff"}]);
    says(
        json!({"nodeName": "c1"}),
        &json!({"phase": "Pending", "conditions": backing_off}),
        "does not run: it is on node c1 of site cloud, and waits there: OffloadingBackOff",
    );
    says(
        json!({"nodeName": "c1"}),
        &json!({"phase": "Succeeded"}),
        "has finished (Succeeded) on node c1 of site cloud",
    );
    says(
        json!({"schedulingGates": [{"name": "queue.example/admitted"}]}),
        &json!({"phase": "Pending"}),
        "does not run: gates of others hold it: queue.example/admitted",
    );
}

#[test]
fn annotations_contradicting_the_spec_are_noted() {
    let text = explained(
        "100m",
        &to_cloud(),
        json!({"nodeName": "e1"}),
        &json!({"phase": "Running"}),
        Some("edge"),
        &[],
    );
    let note = "note      its annotations say site cloud, its spec says site edge: other users can write annotations";
    assert!(text.contains(note), "{text}");
}
