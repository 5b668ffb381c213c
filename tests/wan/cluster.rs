//! A stub API server for an idle cluster.
//!
//! These tests are about the WAN, so edgeward's view of nodes and pods does not change.

use std::net::{Ipv4Addr, SocketAddr};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query};
use axum::http::StatusCode;
use axum::routing::get;
use edgeward_harness::prelude::*;
use futures::stream::{StreamExt as _, iter, once};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

pub(crate) const NAMESPACE: &str = "shop";

/// Millicores that fit the cloud's node but not the edge's free capacity. An empty edge node could hold them.
pub(crate) const CLOUD_ONLY: u32 = 500;

/// Serves watches on loopback, in the network namespace of the runtime's threads, until the runtime ends. Returns a kubeconfig.
pub(crate) fn start(runtime: &Runtime) -> Result<Value> {
    let address: Result<SocketAddr> = runtime.block_on(runtime.spawn(async {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let app = Router::new()
            .route("/api/v1/{kind}", get(watch))
            .route("/apis", get(groups));
        tokio::spawn(axum::serve(listener, app).into_future());
        Ok(address)
    }))?;
    let named = |kind: &str, body: Value| json!([{ "name": "still", kind: body }]);
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "still",
        "contexts": named("context", json!({"cluster": "still", "user": "still"})),
        "clusters": named("cluster", json!({"server": format!("http://{}", address?)})),
        "users": named("user", json!({})),
    }))
}

async fn groups() -> String {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}).to_string()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Watch {
    timeout_seconds: u64,
    #[serde(default)]
    send_initial_events: bool,
}

/// Sends the existing objects if the request asks for them, and nothing more until the watch ends.
async fn watch(Path(kind): Path<String>, Query(watch): Query<Watch>) -> Result<Body, StatusCode> {
    let (kind, objects) = objects(&kind).ok_or(StatusCode::NOT_FOUND)?;
    // The type comes first, as in a real API server's output. Parsers may rely on that.
    let event = |what: &str, object: Value| format!("{{\"type\": \"{what}\", \"object\": {object}}}\n");
    let added = |mut object: Value| {
        (object["apiVersion"], object["kind"]) = (json!("v1"), json!(kind));
        object["metadata"]["resourceVersion"] = json!("1");
        event("ADDED", object)
    };
    let metadata = json!({"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}});
    let complete = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
    let mut events: Vec<String> = objects.into_iter().map(added).collect();
    events.push(event("BOOKMARK", complete));
    if !watch.send_initial_events {
        events.clear();
    }
    let end = once(async move {
        tokio::time::sleep(Duration::from_secs(watch.timeout_seconds)).await;
        String::new()
    });
    Ok(Body::from_stream(
        iter(events).chain(end).map(Ok::<_, std::convert::Infallible>),
    ))
}

fn objects(kind: &str) -> Option<(&'static str, Vec<Value>)> {
    let node = |name: &str, cpu: &str, taints: Value| {
        let resources = json!({"cpu": cpu, "memory": "64Gi", "pods": "110"});
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        json!({
            "metadata": {"name": name, "uid": name, "labels": {format!("node.role/{name}"): "true"}},
            "spec": {"taints": taints},
            "status": {"allocatable": resources, "capacity": resources, "conditions": conditions},
        })
    };
    Some(match kind {
        "nodes" => {
            let taint = json!({"key": "cloud", "value": "cloud", "effect": "NoSchedule"});
            let (edge, cloud) = (node("edge", "1", json!([])), node("cloud", "1000", json!([taint])));
            ("Node", vec![edge, cloud])
        }
        "pods" => {
            let mut fills = pod("fills", 1_000 - CLOUD_ONLY + 1);
            fills["metadata"]["uid"] = json!("fills");
            fills["spec"]["nodeName"] = json!("edge");
            fills["status"] = json!({"phase": "Running"});
            ("Pod", vec![fills])
        }
        "namespaces" => {
            let labels = json!({"scheduling.example.io/managed": "true"});
            (
                "Namespace",
                vec![json!({"metadata": {"name": NAMESPACE, "uid": NAMESPACE, "labels": labels}})],
            )
        }
        _ => return None,
    })
}

/// A pod that requests these millicores and has a deadline of one minute.
pub(crate) fn pod(name: &str, millicores: u32) -> Value {
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"});
    let requests = json!({"cpu": format!("{millicores}m"), "memory": "64Mi"});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": slo},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1", "resources": {"requests": requests}}]},
    })
}
