//! Resources that only some nodes have, and resources served by device classes.

use super::*;

const GPU: &str = "example.com/gpu";

/// A node with this many GPUs.
fn gpu_node(name: &str, label: &str, gpus: i64, is_ready: bool) -> Change {
    let node = json!({
        "metadata": {"name": name, "labels": {label: "true"}},
        "status": {"allocatable": {"cpu": "4", "memory": "1Gi", "pods": "9", GPU: gpus.to_string()},
                   "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]},
    });
    Change::Node(Box::new(edgeward_kube::node::from_json(&node.to_string()).unwrap()))
}

/// A pod that requests a GPU.
fn gpu_pod(name: &str, spec: Value) -> Value {
    let mut pod = pod(name, "batch", "100m", spec);
    pod["spec"]["containers"][0]["resources"]["requests"][GPU] = json!("1");
    pod
}

fn gated() -> Value {
    let gates = json!({"schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}]});
    gpu_pod("gated", gates)
}

/// The plan steps for gated pods in these publications.
fn steps(published: impl IntoIterator<Item = (u64, Publication)>) -> Vec<crate::queue::PlanEntry> {
    let plans = published.into_iter().filter_map(|(_, publication)| publication.plan);
    plans.flat_map(|plan| plan.entries).collect()
}

#[test]
fn device_class_resource_keeps_pod_at_edge() {
    let nodes = [
        node("edge-0", json!({"node.role/edge": "true"}), "4"),
        gpu_node("cloud-0", "node.role/cloud", 0, true),
    ];
    let mut cluster = Cluster::of(Arc::default(), &nodes);
    let asking = gpu_pod("asking", json!({}));
    assert_eq!(cluster.review(1, &asking).0, Reason::EdgeTooLarge);
    cluster.sees(&record(&gated()));
    let class = |names: &[&str]| Change::ByClaim(names.iter().map(|name| (*name).into()).collect());
    cluster.sees(&class(&[GPU]));
    let [step] = &*steps([(0, cluster.engine.publish(cluster.now))]) else {
        panic!("it is gated for nothing")
    };
    assert_eq!(step.action, PlanAction::Release);
    // The number of devices is unknown, so bound pods do not reduce a node's devices and any number of pods fits.
    for number in 0..5 {
        let bound = gpu_pod(&format!("bound-{number}"), json!({"nodeName": "edge-0"}));
        cluster.sees(&record(&bound));
    }
    cluster.engine.publish(cluster.now);
    let edge = (Reason::EdgeNotOffloadable, Some("edge".to_owned()));
    for id in 2..6 {
        assert_eq!(cluster.review(id, &asking).1, edge.1);
    }
    // A pod without a node charges one for its other resources.
    let mut large = gpu_pod("large", json!({"nodeSelector": {"node.role/edge": "true"}}));
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("3");
    cluster.sees(&record(&large));
    cluster.engine.publish(cluster.now);
    assert_eq!(cluster.shared.snapshot().sites[0].nodes[0].charges.used.cpu.0, 3_500);
    // A new node offers the device class too.
    cluster.sees(&node("edge-1", json!({"node.role/edge": "true"}), "4"));
    cluster.sees(&Change::NodeGone("edge-0".into()));
    cluster.engine.publish(cluster.now);
    assert_eq!(cluster.review(7, &asking).1, edge.1);
    cluster.sees(&class(&[]));
    cluster.engine.publish(cluster.now);
    assert_eq!(cluster.review(8, &asking).0, Reason::EdgeTooLarge);
}

#[test]
fn unbound_pod_charges_a_node_declaring_required_features() {
    let nodes = [
        node("edge-0", json!({"node.role/edge": "true"}), "4"),
        node("edge-1", json!({"node.role/edge": "true"}), "1"),
    ];
    let mut cluster = Cluster::of(Arc::default(), &nodes);
    let mut declaring = json!({
        "metadata": {"name": "edge-1", "labels": {"node.role/edge": "true"}},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"},
                   "declaredFeatures": ["UserNamespacesHostNetworkSupport"],
                   "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let spec = json!({"hostNetwork": true, "hostUsers": false, "nodeSelector": {"node.role/edge": "true"}});
    cluster.sees(&record(&pod("new", "batch", "500m", spec)));
    for expected in [[0, 500], [0, 0]] {
        cluster.sees(&Change::Node(Box::new(
            edgeward_kube::node::from_json(&declaring.to_string()).unwrap(),
        )));
        cluster.engine.publish(cluster.now);
        let snapshot = cluster.shared.snapshot();
        let used: Vec<_> = snapshot.sites[0].nodes().map(|node| node.charges.used.cpu.0).collect();
        assert_eq!(used, expected);
        declaring["status"]["declaredFeatures"] = json!(null);
    }
}

/// A node autoscaler adds a node only for a Pending pod. It ignores gated pods.
#[test]
fn gpu_pod_is_pending_once_the_only_gpu_node_is_gone() {
    let cloud = |gpus: i64| gpu_node("cloud-0", "node.role/cloud", gpus, false);
    let best = (Reason::CloudBestEffort, Some("cloud".to_owned()));
    let too_large = (Reason::EdgeTooLarge, Some("edge".to_owned()));
    for (cloud, expected) in [
        // Row 2 of the decision table: only the cloud may have a GPU.
        (Some(cloud(1)), best.clone()),
        (None, best),
        // Row 1 of the decision table: no site has a GPU, and only the pod's size excludes the edge.
        (Some(cloud(0)), too_large),
    ] {
        let other = node("edge-0", json!({"node.role/edge": "true"}), "4");
        let mut nodes = vec![other, gpu_node("edge-1", "node.role/edge", 1, true)];
        nodes.extend(cloud);
        let mut cluster = Cluster::of(Arc::default(), &nodes);
        cluster.sees(&record(&gpu_pod("full", json!({"nodeName": "edge-1"}))));
        cluster.sees(&record(&gated()));
        cluster.pass(10, true);
        cluster.sees(&Change::NodeGone("edge-1".into()));
        let [step] = &*steps([(10, cluster.engine.publish(cluster.now))]) else {
            panic!("it stays gated, not {expected:?}")
        };
        assert_eq!(step.action, PlanAction::Release);
        assert_eq!(cluster.release(&step.pod, step.since), expected);
        assert_eq!(cluster.review(1, &gpu_pod("asking", json!({}))), expected);
    }
}
