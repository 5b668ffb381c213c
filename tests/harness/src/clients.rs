//! Clients of the API server: many that create pods at once, and one with edgeward's token.

use std::ops::Range;

use futures::future::try_join_all;
use http::Request;
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::prelude::*;
use crate::rights::BY_HAND;

/// Number of pods in a burst, and number of clients that create them.
pub const PODS: usize = 500;
const CLIENTS: usize = 50;

/// CPU requests of the pods, in millicores.
const SIZES: [u32; 3] = [100, 200, 300];

/// Selects the pods of a burst.
pub const LABEL: &str = "burst=yes";

/// Creates the pods with these numbers, each with these annotations and `spec` merged in. Each client creates its share one
/// after another. The API server chooses the names of half of the pods.
pub fn create(fixture: &Fixture<'_>, pods: Range<usize>, annotations: &Value, spec: &Value) -> Result<()> {
    fixture.runtime.block_on(created(fixture, pods, annotations, spec))
}

/// A client with cluster administrator rights.
pub async fn client(fixture: &Fixture<'_>) -> Result<Client> {
    Ok(Client::try_from(config(&fixture.kubeconfig()).await?)?)
}

/// A client with edgeward's token. Its calls do not count as rights that edgeward needs.
pub async fn by_hand(fixture: &Fixture<'_>) -> Result<Client> {
    let mut config = config(&fixture.edgeward_kubeconfig()).await?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(BY_HAND)));
    Ok(Client::try_from(config)?)
}

/// Creates the object at this path, and returns it as stored.
pub async fn post(client: &Client, path: &str, object: &Value) -> Result<Value> {
    let request = Request::post(path).header("content-type", "application/json");
    Ok(client.request(request.body(object.to_string().into_bytes())?).await?)
}

async fn config(kubeconfig: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

async fn created(fixture: &Fixture<'_>, pods: Range<usize>, annotations: &Value, spec: &Value) -> Result<()> {
    let config = config(&fixture.kubeconfig()).await?;
    let path = format!("/api/v1/namespaces/{}/pods", fixture.namespace);
    let clients = (0..CLIENTS).map(|client| {
        let (config, path, pods) = (config.clone(), path.clone(), pods.clone());
        async move {
            let connection = Client::try_from(config)?;
            for i in pods.skip(client).step_by(CLIENTS) {
                let created = post(&connection, &path, &pod(i, annotations, spec)).await;
                created.with_context(|| format!("pod {i}"))?;
            }
            anyhow::Ok(())
        }
    });
    try_join_all(clients).await.map(drop)
}

fn pod(i: usize, annotations: &Value, spec: &Value) -> Value {
    let nameless = i.is_multiple_of(2);
    let name = if nameless { "generateName" } else { "name" };
    let text = if nameless {
        "burst-".to_owned()
    } else {
        format!("burst-{i}")
    };
    let requests = json!({"cpu": format!("{}m", SIZES[i % SIZES.len()]), "memory": "64Mi"});
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {name: text, "labels": {"burst": "yes"}, "annotations": annotations},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1", "resources": {"requests": requests}}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// The pod's CPU request.
pub fn millicores(pod: &Value) -> u64 {
    let request = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str();
    request
        .and_then(|text| text.strip_suffix('m')?.parse().ok())
        .unwrap_or(0)
}
