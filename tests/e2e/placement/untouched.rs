//! Pods that edgeward does not manage are not changed, and most do not even reach the webhook.

use edgeward_harness::control_plane::{CLOUD_NODE, EDGE_NODES};
use edgeward_harness::prelude::*;
use edgeward_harness::{rights, test_webhook};

use crate::placement::fleet;

e2e! { "untouched::manifest_conditions_select_expected_pods", Nodes, 72, manifest_conditions_select_expected_pods }
/// The pods that pass the manifest's selectors and conditions, as the API server evaluates them. In a namespace with policies,
/// all pods pass except those whose labels opt out.
fn manifest_conditions_select_expected_pods(fixture: &Fixture<'_>) -> Result<()> {
    let watcher = fixture.test_webhook(test_webhook::watches)?;
    let (with_policies, kubectl) = fixture.namespace_with_policies("policies")?;
    let namespaces = [fixture.namespace.as_str(), &with_policies];
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

e2e! { "untouched::unmanaged_pods_reach_no_webhook", Nodes, 71, unmanaged_pods_reach_no_webhook }
/// Pods in namespaces that did not or may not opt in, and pods in an opted-in namespace that edgeward leaves alone.
fn unmanaged_pods_reach_no_webhook(fixture: &Fixture<'_>) -> Result<()> {
    const KUBE_SYSTEM: &str = "kube-system";
    let (plain, _) = fixture.another_namespace("plain", json!({}))?;
    let (declined, _) = fixture.another_namespace("declined", json!({MANAGED: "false"}))?;
    // The label has no effect in the cluster's own namespaces and in edgeward's.
    fixture.kubectl.run(
        &[
            "label",
            "namespace",
            KUBE_SYSTEM,
            rights::NAMESPACE,
            &format!("{MANAGED}=true"),
        ],
        "",
    )?;

    let edgeward = fixture.edgeward(&fleet::relaxed())?;
    let namespaces = [
        fixture.namespace.as_str(),
        &plain,
        &declined,
        rights::NAMESPACE,
        KUBE_SYSTEM,
    ];
    let registered = fixture.register_as("zz-edgeward", &namespaces, &edgeward.url, &edgeward.ca)?;
    let before = edgeward.reviews()?;

    let mut created = Vec::new();
    for namespace in &namespaces[1..] {
        fixture
            .kubectl_in(namespace)
            .create(&workloads::pod("managed-elsewhere", workloads::latency()))?;
        created.push((*namespace, "managed-elsewhere"));
    }
    // The garbage collector deletes a pod whose owner does not exist. `daemon_set_gets_pod_on_each_node` uses real owners.
    let left_alone = variants()
        .into_iter()
        .filter(|(name, _, reaches)| !reaches && *name != "of-a-daemonset");
    for (name, pod, _) in left_alone {
        fixture.kubectl.create(&pod).with_context(|| name.to_owned())?;
        created.push((&fixture.namespace, name));
    }

    for (namespace, name) in created {
        let rounds = fixture.creation_of(namespace, name)?.rounds(&registered.name);
        ensure!(
            rounds.is_empty(),
            "{namespace}/{name}: the webhook was called in rounds {rounds:?}"
        );
        let pod = eventually(&format!("{namespace}/{name} is bound"), BOUND, || {
            let pod = fixture.kubectl_in(namespace).get("pod", name)?;
            ensure!(pod["spec"]["nodeName"].is_string(), "{}", pod["status"]);
            Ok(pod)
        })?;
        undecided(&pod)?;
    }
    let after = edgeward.reviews()?;
    // The count includes the dry run that waited for the registration.
    ensure!(before > 0 && after == before, "{before} reviews before, {after} after");
    Ok(())
}

e2e! { "untouched::daemon_set_gets_pod_on_each_node", Nodes, 70, daemon_set_gets_pod_on_each_node }
/// A DaemonSet with an SLO in its template still gets a pod on every node whose taints it tolerates.
fn daemon_set_gets_pod_on_each_node(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward(&fleet::relaxed())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    let before = edgeward.reviews()?;
    get_a_pod_on_each_node(fixture, &fixture.namespace)?;
    let after = edgeward.reviews()?;
    // The count includes the dry run that waited for the registration.
    ensure!(before > 0 && after == before, "{before} reviews before, {after} after");
    Ok(())
}

e2e! { "untouched::reviewed_daemon_set_pod_stays_unchanged", Nodes, 69, reviewed_daemon_set_pod_stays_unchanged }
/// In a namespace with policies, bound pods and DaemonSet pods also reach edgeward, which leaves them unchanged.
fn reviewed_daemon_set_pod_stays_unchanged(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward(&fleet::relaxed())?;
    let (namespace, kubectl) = fixture.namespace_with_policies("policies")?;
    let _registered = fixture.register_as("zz-edgeward", &[&namespace], &edgeward.url, &edgeward.ca)?;
    get_a_pod_on_each_node(fixture, &namespace)?;
    for (name, pod, _) in variants() {
        if ["bound", "mirror"].contains(&name) {
            undecided(&kubectl.create(&pod).with_context(|| name.to_owned())?)?;
        }
    }
    for (reason, expected) in [
        ("passthrough_daemonset", 5),
        ("passthrough_node_name", 1),
        ("passthrough_mirror", 1),
    ] {
        let counted = edgeward.count("edgeward_reviews_total", &[("reason", reason)])?;
        ensure!(counted >= expected, "{reason}: {counted}");
    }
    Ok(())
}

fn get_a_pod_on_each_node(fixture: &Fixture<'_>, namespace: &str) -> Result<()> {
    let kubectl = fixture.kubectl_in(namespace);
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
        let pods = eventually(&format!("{namespace}/{app} runs on {nodes:?}"), BOUND, || {
            let pods = kubectl.list("pods", &format!("app={app}"))?;
            let mut bound: Vec<&str> = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str()).collect();
            bound.sort_unstable();
            ensure!(bound == nodes, "{bound:?}");
            Ok(pods)
        })?;
        pods.iter().try_for_each(undecided)?;
    }
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
