//! Fields that the user wrote stay unchanged.

use edgeward_harness::control_plane::EDGE_NODES;
use edgeward_harness::prelude::*;

use crate::placement::fleet;

const PLACED: &str = "scheduling.example.io/placed";

e2e! { "constraints::own_constraints_survive", Nodes, 67, own_constraints_survive }
/// The pod's own nodeSelector, affinity and tolerations are kept and extended, and kube-scheduler follows them.
fn own_constraints_survive(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward(&fleet::relaxed())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;

    let mut pod = workloads::pod("particular", workloads::latency());
    let rule =
        |operator: &str, values: Value| json!([{"key": "node.role/edge", "operator": operator, "values": values}]);
    pod["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": EDGE_NODES[1]});
    pod["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms": [{"matchExpressions": rule("In", json!(["true"]))}]},
        "preferredDuringSchedulingIgnoredDuringExecution":
            [{"weight": 5, "preference": {"matchExpressions": rule("NotIn", json!(["false"]))}}],
    }});
    pod["spec"]["tolerations"] = json!([{"key": "site.example/quiet", "operator": "Exists", "effect": "NoExecute"}]);
    let stored = created_like_its_twin(fixture, &pod)?;

    let selector = json!({"kubernetes.io/hostname": EDGE_NODES[1], "node.role/edge": "true"});
    ensure!(
        stored["spec"]["nodeSelector"] == selector,
        "nodeSelector {}",
        stored["spec"]["nodeSelector"]
    );
    eventually("bound to the node its user chose", BOUND, || {
        let pod = fixture.kubectl.get("pod", "particular")?;
        ensure!(pod["spec"]["nodeName"] == EDGE_NODES[1], "{}", pod["status"]);
        Ok(())
    })
}

e2e! { "constraints::new_fields_survive", Nodes, new_fields_survive }
/// Fields that are newer than most clients' types. A webhook that decodes the pod into such types and writes the difference
/// would remove them.
fn new_fields_survive(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward(&fleet::overloaded())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;

    let mut pod = workloads::pod("modern", workloads::latency());
    let spec = &mut pod["spec"];
    spec["initContainers"] = json!([{
        "name": "sidecar", "image": "registry.example/sidecar:1", "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "50m"}},
    }]);
    spec["containers"][0]["resizePolicy"] = json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
    let mut fields = vec![
        "/spec/initContainers/0/restartPolicy",
        "/spec/containers/0/resizePolicy",
    ];
    // Served by default since 1.34 and 1.35. An older API server drops or refuses them.
    if fixture.kubectl.minor()? >= 35 {
        spec["resources"] = json!({"requests": {"cpu": "400m"}, "limits": {"cpu": "1"}});
        spec["hostnameOverride"] = json!("modern.example");
        spec["containers"][0]["restartPolicyRules"] =
            json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
        spec["containers"][0]["restartPolicy"] = json!("Never");
        fields.extend([
            "/spec/resources/requests/cpu",
            "/spec/hostnameOverride",
            "/spec/containers/0/restartPolicyRules",
        ]);
    }
    let stored = created_like_its_twin(fixture, &pod)?;

    ensure!(
        stored["spec"]["nodeSelector"] == json!({"node.role/cloud": "true"}),
        "{}",
        stored["spec"]
    );
    // The fields are really there, not only equal in both pods.
    for pointer in fields {
        ensure!(
            stored.pointer(pointer) == pod.pointer(pointer),
            "{pointer}: {:?}",
            stored.pointer(pointer)
        );
    }
    Ok(())
}

/// Creates the pod, and compares it with the same pod in a namespace that did not opt in.
fn created_like_its_twin(fixture: &Fixture<'_>, pod: &Value) -> Result<Value> {
    let (_, elsewhere) = fixture.another_namespace("plain", json!({}))?;
    let mut twin = elsewhere.create(pod)?;
    let mut stored = fixture.kubectl.create(pod)?;
    ensure!(
        stored["metadata"]["annotations"]["scheduling.example.io/decision"].is_string(),
        "undecided: {stored:#}"
    );
    let whole = stored.clone();
    for pod in [&mut twin, &mut stored] {
        let metadata = pod["metadata"].as_object_mut().context("metadata")?;
        for volatile in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "namespace",
            "managedFields",
        ] {
            metadata.remove(volatile);
        }
        // The service account's token volume has a random name.
        let name = pod
            .pointer("/spec/volumes/0/name")
            .and_then(Value::as_str)
            .unwrap_or("<none>")
            .to_owned();
        *pod = serde_json::from_str(&pod.to_string().replace(&name, "token"))?;
    }
    same_but_for_the_placement(&twin, &stored)?;
    Ok(whole)
}

/// Fails unless `after` equals `before` with additions to nodeSelector, tolerations, edgeward's annotations and edgeward's
/// label.
fn same_but_for_the_placement(before: &Value, after: &Value) -> Result<()> {
    let entries = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let selector = entries(&after["spec"]["nodeSelector"]);
    for (key, value) in entries(&before["spec"]["nodeSelector"]) {
        ensure!(
            selector.get(&key) == Some(&value),
            "nodeSelector lost {key}: {selector:?}"
        );
    }
    let (old, new) = (
        items(&before["spec"]["tolerations"]),
        items(&after["spec"]["tolerations"]),
    );
    ensure!(new.starts_with(&old), "tolerations {old:?} became {new:?}");
    let annotations = entries(&after["metadata"]["annotations"]);
    for (key, value) in entries(&before["metadata"]["annotations"]) {
        ensure!(
            annotations.get(&key) == Some(&value),
            "annotation {key}: {annotations:?}"
        );
    }
    ensure!(
        rest(before) == rest(after),
        "changed elsewhere: {:#}\nbecame {:#}",
        rest(before),
        rest(after)
    );
    Ok(())
}

fn rest(pod: &Value) -> Value {
    let mut pod = pod.clone();
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeSelector");
        spec.remove("tolerations");
    }
    if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|key, _| {
            !key.starts_with("scheduling.example.io/") && key != "controller.kubernetes.io/pod-deletion-cost"
        });
    }
    let mut labels = pod["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    labels.remove(PLACED);
    pod["metadata"]["labels"] = labels.into();
    pod
}
