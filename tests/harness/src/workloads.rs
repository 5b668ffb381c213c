//! Small manifests for the tests, as an application team would write them.

use serde_json::{Value, json};

pub fn latency() -> Value {
    json!({"slo.example.io/class": "latency", "slo.example.io/latencyTargetMs": "300"})
}

pub fn batch() -> Value {
    json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "5000"})
}

pub fn pod(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": spec(),
    })
}

/// A pod that requests this much CPU.
pub fn pod_of(name: &str, annotations: Value, cpu: &str) -> Value {
    let mut pod = pod(name, annotations);
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
    pod
}

pub fn deployment(name: &str, replicas: u32, annotations: Value) -> Value {
    let mut deployment = controller("apps/v1", "Deployment", name, annotations);
    deployment["spec"]["replicas"] = json!(replicas);
    deployment["spec"]["selector"] = json!({"matchLabels": {"app": name}});
    deployment
}

pub fn daemon_set(name: &str, annotations: Value) -> Value {
    let mut daemon_set = controller("apps/v1", "DaemonSet", name, annotations);
    daemon_set["spec"]["selector"] = json!({"matchLabels": {"app": name}});
    daemon_set
}

pub fn job(name: &str, annotations: Value) -> Value {
    let mut job = controller("batch/v1", "Job", name, annotations);
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    job
}

fn controller(api_version: &str, kind: &str, name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"template": {"metadata": {"labels": {"app": name}, "annotations": annotations}, "spec": spec()}},
    })
}

fn spec() -> Value {
    let requests = json!({"cpu": "200m", "memory": "128Mi"});
    json!({"containers": [{"name": "app", "image": "registry.example/app:1", "resources": {"requests": requests}}]})
}
