//! What is read of an object is the same in protobuf as in JSON.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use edgeward_core::testkit::fields::{Read, read_of};
use edgeward_core::wire::protobuf::to_json;
use edgeward_harness::clients;
use edgeward_harness::fixture::Fixture;
use edgeward_harness::wait::{BOUND, eventually};
use http::Request;
use http::header::ACCEPT;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio_util::bytes::Bytes;

/// Objects that together have every field that edgeward reads, as the API server sends them in either form.
pub(crate) fn reads_as_json(fixture: &Fixture<'_>) -> Result<()> {
    let name = fixture.namespace.as_str();
    for object in cluster_scoped(name) {
        fixture.kubectl.run(&["create", "-f", "-"], &object.to_string())?;
    }
    fixture.kubectl.patch_status("node", name, &node_status())?;
    let node = fixture.kubectl.get("node", name)?;
    for object in [claim(name), bound_pod(&node["metadata"]), gated_pod(name)] {
        fixture.kubectl.run(&["create", "-f", "-"], &object.to_string())?;
    }
    fixture.kubectl.patch_status("pod", "bound", &pod_status())?;
    let nominated = json!({"nominatedNodeName": name});
    fixture.kubectl.patch_status("pod", "gated", &nominated)?;
    fixture.kubectl.run(&["delete", "pod", "bound", "--wait=false"], "")?;

    let client = fixture.runtime.block_on(clients::client(fixture))?;
    let pods = format!("/api/v1/namespaces/{name}/pods");
    let claims = format!("/api/v1/namespaces/{name}/persistentvolumeclaims");
    for (kind, paths) in [
        ("Pod", vec![format!("{pods}/bound"), format!("{pods}/gated")]),
        ("Node", vec![format!("/api/v1/nodes/{name}")]),
        ("PersistentVolumeClaim", vec![format!("{claims}/claim")]),
        ("PersistentVolume", vec![format!("/api/v1/persistentvolumes/{name}")]),
        (
            "StorageClass",
            vec![format!("/apis/storage.k8s.io/v1/storageclasses/{name}")],
        ),
    ] {
        let mut seen = BTreeSet::new();
        for path in paths {
            let forms = eventually("the object stays as it is", BOUND, || {
                fixture.runtime.block_on(both_forms(&client, &path))
            })?;
            seen.extend(compared(kind, &forms).with_context(|| path)?);
        }
        let unseen: Vec<_> = read_of(kind).into_keys().filter(|path| !seen.contains(path)).collect();
        ensure!(unseen.is_empty(), "no {kind} has {unseen:?}");
    }
    let finalizers = json!({"metadata": {"finalizers": null}}).to_string();
    fixture.kubectl.run(&["patch", "pod", "bound", "-p", &finalizers], "")?;
    for kind in ["node", "persistentvolume", "storageclass", "runtimeclass"] {
        fixture.kubectl.run(&["delete", kind, name, "--wait=false"], "")?;
    }
    Ok(())
}

/// One version of an object: its JSON, and that of what is read of its protobuf.
async fn both_forms(client: &Client, path: &str) -> Result<[Value; 2]> {
    let json: Value = serde_json::from_slice(&get(client, path, "application/json").await?)?;
    let protobuf = get(client, path, "application/vnd.kubernetes.protobuf").await?;
    let protobuf: Value = serde_json::from_str(&to_json(&protobuf)?)?;
    let [one, other] = [&json, &protobuf].map(|object| &object["metadata"]["resourceVersion"]);
    ensure!(one == other, "it was changed between {one} and {other}");
    Ok([json, protobuf])
}

async fn get(client: &Client, path: &str, form: &str) -> Result<Bytes> {
    let request = Request::get(path).header(ACCEPT, form).body(Body::empty())?;
    let response = client.send(request).await?;
    ensure!(response.status().is_success(), "{path}: {}", response.status());
    Ok(response.into_body().collect().await?.to_bytes())
}

/// The paths of the fields that the object has and that are read, after both forms were compared.
fn compared(kind: &str, [json, protobuf]: &[Value; 2]) -> Result<Vec<String>> {
    let mut seen = vec![];
    for (path, read) in read_of(kind) {
        let [expected, found] = [json, protobuf].map(|object| at(object, &path));
        match read {
            Read::Value => ensure!(expected == found, "{path}: {expected:?} is {found:?} in protobuf"),
            Read::Presence => ensure!(
                expected.len() == found.len(),
                "{path}: {expected:?} is {found:?} in protobuf"
            ),
        }
        if !found.is_empty() {
            seen.push(path);
        }
    }
    Ok(seen)
}

/// What is at this path, of whose parts `*` is every element of a list.
fn at<'v>(object: &'v Value, path: &str) -> Vec<&'v Value> {
    let mut found = vec![object];
    for part in path.split('/').skip(1) {
        let next = found.into_iter().flat_map(|value| match part {
            "*" => value.as_array().into_iter().flatten().collect::<Vec<_>>(),
            name => value.get(name).into_iter().collect(),
        });
        found = next.filter(|value| !value.is_null()).collect();
    }
    found
}

fn cluster_scoped(name: &str) -> Vec<Value> {
    let metadata = json!({"name": name});
    let terms = node_selector();
    let taint = json!({"key": "protobuf", "value": name, "effect": "NoSchedule"});
    vec![
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {"zone": "a"}, "annotations": {"watts": "12.5"}},
            "spec": {"unschedulable": true, "taints": [taint]},
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata,
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/nowhere"},
                "storageClassName": name, "nodeAffinity": {"required": terms},
            },
        }),
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata,
            "provisioner": "example.com/nobody", "volumeBindingMode": "WaitForFirstConsumer",
        }),
        json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": metadata,
            "handler": "measured", "overhead": {"podFixed": {"cpu": "10m", "memory": "1.5Mi"}},
        }),
    ]
}

fn node_selector() -> Value {
    json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}, {"key": "old", "operator": "DoesNotExist"}]},
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["nowhere"]}]},
    ]})
}

fn node_status() -> Value {
    json!({
        "capacity": {"cpu": "4", "memory": "1Gi", "pods": "110", "example.com/gpu": "1"},
        "allocatable": {"cpu": "3920m", "memory": "1Gi", "pods": "110", "example.com/gpu": "1"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "said by a test"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n.lan"}],
    })
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "claim", "annotations": {"volume.kubernetes.io/selected-node": name}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": name, "volumeName": name,
        },
    })
}

fn container(name: &str) -> Value {
    json!({
        "name": name, "image": "nothing", "ports": [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81}],
        "resources": {"requests": {"cpu": "0.1", "memory": "128Mi"}, "limits": {"cpu": "2", "memory": "0.5Gi"}},
    })
}

/// On the node, and resized there.
fn bound_pod(node: &Value) -> Value {
    let mut sidecar = container("sidecar");
    sidecar["restartPolicy"] = json!("Always");
    sidecar["ports"] = json!([{"containerPort": 82, "hostPort": 82}]);
    let owner = json!({
        "apiVersion": "v1", "kind": "Node", "name": node["name"], "uid": node["uid"], "controller": true,
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "bound", "finalizers": ["example.com/test"], "generateName": "bou", "labels": {"app": "a", "empty": ""},
            "annotations": {"text": "{\"é\": \"\u{1}\n\"}", "empty": ""}, "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": node["name"], "containers": [container("one"), {"name": "two", "image": "nothing"}], "initContainers": [sidecar],
            "hostNetwork": true, "hostPID": true, "hostIPC": true, "automountServiceAccountToken": true,
            "tolerations": [
                {"operator": "Exists"},
                {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 0},
            ],
            "priorityClassName": "system-node-critical", "terminationGracePeriodSeconds": 600,
        },
    })
}

/// Not scheduled yet.
fn gated_pod(name: &str) -> Value {
    let terms = json!([{"labelSelector": {}, "topologyKey": "zone"}]);
    let mut one = container("one");
    one["restartPolicy"] = json!("Never");
    let template = json!({
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "",
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gated"},
        "spec": {
            "containers": [one],
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}},
            "schedulingGates": [{"name": "example.com/one"}, {"name": "example.com/two"}], "schedulerName": "another",
            "runtimeClassName": name, "nodeSelector": {"zone": "a"},
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": node_selector()},
                "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms},
            },
            "resourceClaims": [{"name": "device", "resourceClaimName": "none"}],
            "volumes": [
                {"name": "host", "hostPath": {"path": "/nowhere"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": template}}},
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
                {"name": "none", "emptyDir": {}},
            ],
        },
    })
}

fn pod_status() -> Value {
    let resources = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "2"}});
    let terminated = json!({"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:01:00Z"});
    let container = |name: &str| {
        json!({
            "name": name, "image": "nothing", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": terminated},
            "allocatedResources": {"cpu": "150m"}, "resources": resources,
        })
    };
    json!({
        "phase": "Running", "allocatedResources": {"cpu": "150m"}, "resources": resources,
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}],
        "containerStatuses": [container("one"), {"name": "two", "image": "", "imageID": "", "ready": false, "restartCount": 0}],
        "initContainerStatuses": [container("sidecar")],
    })
}
