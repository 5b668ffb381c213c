//! Pods that edgeward does not manage are not changed, and most do not even reach the webhook.

use edgeward_harness::control_plane::{CLOUD_NODE, EDGE_NODES};
use edgeward_harness::prelude::*;
use edgeward_harness::{rights, test_webhook};

use crate::placement::fleet;

e2e! { "untouched::manifest_conditions_select_expected_pods", Nodes, 72, manifest_conditions_select_expected_pods }
/// The pods that pass the manifest's selectors and conditions, as the API server evaluates them. In a namespace with policies,
/// all pods pass except those whose labels opt out. In namespaces that did not or may not opt in, none does.
fn manifest_conditions_select_expected_pods(fixture: &Fixture<'_>) -> Result<()> {
    const KUBE_SYSTEM: &str = "kube-system";
    let watcher = fixture.test_webhook(test_webhook::watches)?;
    let (with_policies, kubectl) = fixture.namespace_with_policies("policies")?;
    let (plain, _) = fixture.another_namespace("plain", json!({}))?;
    let (declined, _) = fixture.another_namespace("declined", json!({MANAGED: "false"}))?;
    // The label has no effect in the cluster's own namespaces and in edgeward's.
    let excluded = [KUBE_SYSTEM, rights::NAMESPACE];
    let label = format!("{MANAGED}=true");
    let args = [&["label", "namespace"], &excluded[..], &[&label]].concat();
    fixture.kubectl.run(&args, "")?;
    let elsewhere = [&*plain, &declined, KUBE_SYSTEM, rights::NAMESPACE];
    let namespaces = [&[&*fixture.namespace, &with_policies], &elsewhere[..]].concat();
    let _registered = fixture.register_as("zz-edgeward", &namespaces, &watcher.url, &watcher.ca)?;

    let mut expected = Vec::new();
    for (name, pod, reaches) in variants() {
        fixture.kubectl.dry_run(&pod).with_context(|| name.to_owned())?;
        if reaches {
            expected.push(name);
        }
    }
    for (name, pod, _) in variants() {
        kubectl.dry_run(&pod).with_context(|| name.to_owned())?;
        if name != "opted-out" {
            expected.push(name);
        }
    }
    for namespace in elsewhere {
        let pod = workloads::pod("managed-elsewhere", workloads::latency());
        fixture.kubectl_in(namespace).dry_run(&pod)?;
    }
    // The API server refuses a mirror pod without a node, but only after it has called the webhooks. edgeward leaves such a pod
    // alone.
    expected.push("unbound-mirror");
    let mut mirror = workloads::pod("unbound-mirror", workloads::latency());
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("0b9f1a2c");
    let refused = fixture.kubectl.attempt(&["create", "-f", "-"], &mirror.to_string())?;
    ensure!(!refused.succeeded && refused.stderr.contains("mirror"), "{refused:?}");

    let seen = watcher.seen();
    let names = seen
        .iter()
        .filter_map(|request| request["object"]["metadata"]["name"].as_str());
    let reached: Vec<&str> = names.filter(|name| *name != "probe").collect();
    ensure!(
        reached == expected,
        "reached the webhook: {reached:?}, expected: {expected:?}"
    );
    Ok(())
}

e2e! { "untouched::daemon_set_gets_pod_on_each_node", Nodes, 70, daemon_set_gets_pod_on_each_node }
/// A DaemonSet with an SLO in its template still gets a pod on every node whose taints it tolerates.
fn daemon_set_gets_pod_on_each_node(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward(&fleet::relaxed())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    let before = edgeward.reviews()?;
    let kubectl = &fixture.kubectl;
    let all = [CLOUD_NODE, EDGE_NODES[0], EDGE_NODES[1]];
    // Keeps the DaemonSet off other tests' nodes.
    let expressions = json!([{"key": "kubernetes.io/hostname", "operator": "In", "values": all}]);
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]});
    let daemon_set = |name: &str| {
        let mut daemon_set = workloads::daemon_set(name, workloads::latency());
        daemon_set["spec"]["template"]["spec"]["affinity"] =
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        daemon_set
    };
    let near = daemon_set("near");
    let mut everywhere = daemon_set("everywhere");
    everywhere["spec"]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);

    for (daemon_set, nodes) in [(&near, &all[1..]), (&everywhere, &all[..])] {
        kubectl.apply(daemon_set)?;
        let app = daemon_set["metadata"]["name"].as_str().unwrap_or_default();
        let pods = eventually(&format!("{app} runs on {nodes:?}"), BOUND, || {
            let pods = kubectl.list("pods", &format!("app={app}"))?;
            let mut bound: Vec<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
            bound.sort_unstable();
            ensure!(bound == nodes, "{bound:?}");
            Ok(pods)
        })?;
        pods.iter().try_for_each(undecided)?;
    }
    let after = edgeward.reviews()?;
    // The count includes the dry run that waited for the registration.
    ensure!(before > 0 && after == before, "{before} reviews before, {after} after");
    Ok(())
}

pub(crate) fn undecided(pod: &Value) -> Result<()> {
    let annotations = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    let ours: Vec<&String> = annotations
        .map(|(key, _)| key)
        .filter(|key| key.starts_with("scheduling."))
        .collect();
    ensure!(ours.is_empty(), "{}: annotations {ours:?}", pod["metadata"]["name"]);
    ensure!(
        pod["spec"]["nodeSelector"].is_null(),
        "nodeSelector {}",
        pod["spec"]["nodeSelector"]
    );
    Ok(())
}

/// Pods of an opted-in namespace, and whether they should reach the webhook.
fn variants() -> Vec<(&'static str, Value, bool)> {
    let pod = |name| workloads::pod(name, workloads::latency());
    let with = |name: &'static str, reaches: bool, change: &dyn Fn(&mut Value)| {
        let mut pod = pod(name);
        change(&mut pod);
        (name, pod, reaches)
    };
    let owner = |kind: &str, controller: bool| json!([{"apiVersion": "apps/v1", "kind": kind, "name": "owner", "uid": "0b9f1a2c", "controller": controller}]);
    vec![
        with("with-a-class", true, &|_| {}),
        with("no-objective", false, &|pod| {
            pod["metadata"]["annotations"] = json!({"team": "a"})
        }),
        with("nothing-at-all", false, &|pod| {
            drop(pod["metadata"].as_object_mut().map(|m| m.remove("annotations")))
        }),
        with("empty-class", true, &|pod| {
            pod["metadata"]["annotations"] = json!({"slo.example.io/class": ""})
        }),
        with("forced-without-class", true, &|pod| {
            pod["metadata"] = json!({"name": "forced-without-class", "labels": {MANAGED: "true"}});
        }),
        with("odd-label-without-class", true, &|pod| {
            pod["metadata"] = json!({"name": "odd-label-without-class", "labels": {MANAGED: "maybe"}});
        }),
        with("other-labels", true, &|pod| {
            pod["metadata"]["labels"] = json!({"app": "a"})
        }),
        with("without-a-class", true, &|pod| {
            pod["metadata"]["annotations"] = json!({"slo.example.io/deadlineMs": "500"})
        }),
        with("class-as-a-label", true, &|pod| {
            pod["metadata"] = json!({"name": "class-as-a-label", "labels": {"slo.example.io/class": "batch"}});
        }),
        with("opted-out", false, &|pod| {
            pod["metadata"]["labels"] = json!({MANAGED: "false"})
        }),
        with("bound", false, &|pod| pod["spec"]["nodeName"] = json!(EDGE_NODES[0])),
        with("of-a-daemonset", false, &|pod| {
            pod["metadata"]["ownerReferences"] = owner("DaemonSet", true)
        }),
        with("beside-a-daemonset", true, &|pod| {
            pod["metadata"]["ownerReferences"] = owner("DaemonSet", false)
        }),
        with("of-a-replicaset", true, &|pod| {
            pod["metadata"]["ownerReferences"] = owner("ReplicaSet", true)
        }),
        with("mirror", false, &|pod| {
            pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("0b9f1a2c");
            pod["spec"]["nodeName"] = json!(EDGE_NODES[0]);
        }),
        with("labelled-as-shadow", true, &|pod| {
            pod["metadata"]["labels"] = json!({"liqo.io/managed-by": "shadowpod"})
        }),
    ]
}
