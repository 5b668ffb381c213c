//! Whether the MutatingWebhookConfiguration that calls us is another.

use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::instruments::metrics::Metrics;
use crate::sources::watcher;

/// Tells that the configuration of this name is another, or gone, for ever. A failure is logged, counted and tried again after a
/// pause.
pub async fn follow(client: Client, name: String, changed: watch::Sender<()>, metrics: Arc<Metrics>) {
    let configurations = Api::<PartialObjectMeta<MutatingWebhookConfiguration>>::all(client);
    let mut configurations = watcher::object(configurations, &name);
    while let Some(configuration) = configurations.next().await {
        match configuration {
            Ok(_) => {
                changed.send_replace(());
            }
            Err(error) => {
                let kind = "mutatingwebhookconfigurations";
                watcher::count_and_log(kind, error, &mut String::new(), &metrics);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tokio::time::timeout;

    use super::*;

    /// What is asked for with this query: a list of one configuration, not as a stream, and no watch from where that was read.
    fn answer(query: &str) -> (u16, Value) {
        if query.contains("sendInitialEvents=true") {
            return (
                422,
                json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422, "message": ""}),
            );
        }
        if query.contains("watch=true") {
            let gone =
                json!({"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410, "message": "too old"});
            return (410, gone);
        }
        let one = json!({"metadata": {"name": "zz-edgeward", "uid": "u", "resourceVersion": "7"}});
        let kind = "MutatingWebhookConfigurationList";
        let list = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"resourceVersion": "7"}, "items": [one]});
        (200, list)
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_whose_place_is_gone_begins_with_a_list() {
        let respond = |request: Request<Body>| async move {
            let (code, body) = answer(request.uri().query().unwrap_or_default());
            Response::builder()
                .status(code)
                .body(Body::from(body.to_string().into_bytes()))
        };
        let client = Client::new(tower::service_fn(respond), "default");
        let (sender, mut changed) = watch::channel(());
        let metrics = Arc::<Metrics>::default();
        let seen_twice = async {
            changed.changed().await.unwrap();
            changed.changed().await.unwrap();
        };
        tokio::select! {
            () = follow(client, "zz-edgeward".to_owned(), sender, Arc::clone(&metrics)) => panic!("it ended"),
            seen = timeout(Duration::from_secs(60), seen_twice) => seen.unwrap(),
        }
        // The second watch may have failed as well.
        let counted = "edgeward_watch_failures_total{kind=\"mutatingwebhookconfigurations\"} ";
        assert!(metrics.encode().contains(counted), "{}", metrics.encode());
    }
}
