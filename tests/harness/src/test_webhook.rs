//! Webhooks that run inside the test. The first only watches, the second injects a sidecar as service meshes do. Each may
//! answer with a delay.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::post;
use axum_server::Handle;
use axum_server::tls_rustls::RustlsConfig;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::runtime::Runtime;

use crate::prelude::*;
use crate::registration::Registration;

/// A webhook's answer: the operations of a JSON patch for the pod.
type Answer = Arc<dyn Fn(&Value) -> Vec<Value> + Send + Sync>;

pub struct TestWebhook {
    pub url: String,
    /// The CA for a registration's `caBundle`, in PEM.
    pub ca: String,
    seen: Seen,
    server: Handle<SocketAddr>,
}

type Seen = Arc<Mutex<Vec<Value>>>;

impl TestWebhook {
    pub(crate) fn start(
        runtime: &Runtime,
        answer: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static,
        takes: Duration,
    ) -> Result<Self> {
        let answer: Answer = Arc::new(answer);
        let authority = Authority::new()?;
        let pair = authority.server(&[])?;
        let seen = Seen::default();
        let app = Router::new()
            .route("/mutate", post(review))
            .with_state((seen.clone(), answer, takes));
        let server = Handle::new();
        let running = server.clone();
        let address = runtime.block_on(async move {
            let tls = RustlsConfig::from_pem(pair.certificate.into_bytes(), pair.key.into_bytes()).await?;
            let bound = axum_server::bind_rustls(SocketAddr::from(([127, 0, 0, 1], 0)), tls).handle(running.clone());
            tokio::spawn(bound.serve(app.into_make_service()));
            running.listening().await.context("the webhook does not listen")
        })?;
        Ok(Self {
            url: format!("https://{address}/mutate"),
            ca: authority.certificate,
            seen,
            server,
        })
    }

    /// A validating webhook configuration of this name for the pods created in a namespace.
    pub(crate) fn validating(&self, name: &str, namespace: &str) -> Value {
        self.configuration("ValidatingWebhookConfiguration", "CREATE", name, namespace)
    }

    /// Registers the webhook to change updated pods in a namespace. Does not wait until it is called.
    pub fn register_for_updates(&self, kubectl: &Kubectl, namespace: &str) -> Result<Registration> {
        let name = format!("updates-{namespace}");
        let configuration = self.configuration("MutatingWebhookConfiguration", "UPDATE", &name, namespace);
        Registration::create(kubectl, &configuration)
    }

    fn configuration(&self, kind: &str, operation: &str, name: &str, namespace: &str) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": [{
                "name": "pods.edgeward.test",
                "clientConfig": {"url": self.url, "caBundle": STANDARD.encode(&self.ca)},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": ["pods"]}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": 30,
            }],
        })
    }

    /// The `request` of each AdmissionReview so far, in order.
    pub fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for TestWebhook {
    fn drop(&mut self) {
        self.server.shutdown();
    }
}

pub fn watches(_pod: &Value) -> Vec<Value> {
    Vec::new()
}

pub fn labels(pod: &Value) -> Vec<Value> {
    let maps = ["labels", "annotations"].into_iter();
    let add = |map: &str| match pod["metadata"][map].is_object() {
        true => json!({"op": "add", "path": format!("/metadata/{map}/seen-by"), "value": "test"}),
        false => json!({"op": "add", "path": format!("/metadata/{map}"), "value": {"seen-by": "test"}}),
    };
    maps.map(add).collect()
}

async fn review(State((seen, answer, takes)): State<(Seen, Answer, Duration)>, body: String) -> impl IntoResponse {
    let mut review: Value = serde_json::from_str(&body).unwrap_or_default();
    let request = review["request"].take();
    let mut response = json!({"uid": request["uid"], "allowed": true});
    let patch = answer(&request["object"]);
    if !patch.is_empty() {
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(STANDARD.encode(Value::from(patch).to_string()));
    }
    seen.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    tokio::time::sleep(takes).await;
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
    ([(CONTENT_TYPE, "application/json")], answer.to_string())
}
