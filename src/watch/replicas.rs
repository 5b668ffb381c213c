//! Counts our ready replicas by the EndpointSlices of our own Service.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edgeward_cluster::engine::Change;
use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::runtime::watcher::Config;

use crate::instruments::metrics::Metrics;
use crate::watch::Cluster;
use crate::watch::objects::Seen;
use crate::watch::watcher;

/// What follows if our replicas are not counted.
const UNKNOWN: &str = "our replicas cannot be counted: with more than one, what the others promise is not taken into \
                       account, and a burst may overrun the edge";

impl Cluster {
    /// Watches the EndpointSlices of a Service and sends its number of ready endpoints. Never returns. A missing
    /// Service is logged. If the slices may not be read, this is logged and counted, and nothing is sent.
    pub async fn follow_replicas(self, namespace: String, service: String, metrics: Arc<Metrics>) {
        let of_service = format!("kubernetes.io/service-name={service}");
        let of_service = Config::default().labels(&of_service).streaming_lists();
        let slices = Api::<EndpointSlice>::namespaced(self.client.clone(), &namespace);
        let mut events = watcher::events(slices, of_service);
        let (mut known, mut listed) = (Seen::default(), BTreeMap::new());
        let (mut sent, mut last_error) = (None, String::new());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    watcher::recovered(&event, &mut last_error);
                    known.apply(event, &mut listed, |slice: &EndpointSlice, _| Some(slice.clone()));
                }
                Err(error) => {
                    let error = anyhow::Error::from(error).context(UNKNOWN);
                    watcher::count_and_log("endpointslices", error, &mut last_error, &metrics);
                }
            }
            let Some(slices) = known.all() else { continue };
            let ready = count(slices.values());
            if sent.replace(ready) != Some(ready) {
                tracing::info!(ready, "replicas");
                if slices.is_empty() {
                    let error = "no EndpointSlice is of this Service; name ours with --service and --namespace";
                    tracing::warn!(namespace, service, error, "{UNKNOWN}");
                }
                self.changes.send(Change::Replicas(ready)).await;
            }
        }
    }
}

/// Counts the ready endpoints. An endpoint may be in two slices while it moves, and has one entry per address family.
/// An endpoint without a ready condition counts as ready.
fn count<'s>(slices: impl Iterator<Item = &'s EndpointSlice>) -> u32 {
    let mut families = BTreeMap::<&str, BTreeSet<&str>>::new();
    for slice in slices {
        let ready = slice.endpoints.iter().filter(|endpoint| {
            let conditions = endpoint.conditions.as_ref();
            conditions.and_then(|conditions| conditions.ready).unwrap_or(true)
        });
        let first = ready.filter_map(|endpoint| Some(endpoint.addresses.first()?.as_str()));
        families.entry(&slice.address_type).or_default().extend(first);
    }
    let most = families.values().map(BTreeSet::len).max().unwrap_or(0);
    u32::try_from(most).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;
    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;
    use crate::observer::Changes;
    use crate::platform::clock::Clock;
    use crate::testkit::Log;

    /// Generous enough for a busy machine.
    const BOUND: Duration = Duration::from_secs(30);

    /// Watches replicas at a server that answers every request like this. Ends after this many failures, or when a
    /// number is sent. Returns the number and the log.
    async fn watched(code: u16, answer: &'static str, failures: u32) -> (Option<u32>, String) {
        let log = Log::default();
        let to = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || to.clone()).finish();
        let _logged = tracing::subscriber::set_default(subscriber);
        let respond = move |request: Request<Body>| async move {
            let query = request.uri().query().unwrap_or_default();
            let (code, answer) = match code == 200 && query.contains("sendInitialEvents") {
                true => (
                    422,
                    r#"{"kind": "Status", "status": "Failure", "message": "", "reason": "Invalid", "code": 422}"#,
                ),
                false => (code, answer),
            };
            Response::builder()
                .status(code)
                .body(Body::from(answer.as_bytes().to_vec()))
        };
        let (sender, mut told) = mpsc::channel(8);
        let changes = Changes::to(sender, Clock::start());
        let cluster = Cluster::of(Client::new(tower::service_fn(respond), "default"), changes);
        let metrics = Arc::new(Metrics::new());
        let counted = format!("edgeward_watch_failures_total{{kind=\"endpointslices\"}} {failures}");
        let failed = async {
            while failures == 0 || !metrics.encode().contains(&counted) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let told = async {
            tokio::select! {
                () = cluster.follow_replicas("edgeward-system".into(), "edgewart".into(), Arc::clone(&metrics)) => None,
                () = failed => None,
                told = told.recv() => told,
            }
        };
        let told = timeout(BOUND, told).await.unwrap();
        let ready = told.map(|(_, change)| match change {
            Change::Replicas(ready) => ready,
            other => panic!("{other:?}"),
        });
        (ready, log.text())
    }

    #[tokio::test]
    async fn empty_or_forbidden_replica_list_is_logged() {
        let none = r#"{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "metadata": {"resourceVersion": "7"},
            "items": []}"#;
        let (ready, log) = watched(200, none, 0).await;
        assert_eq!(ready, Some(0));
        assert!(log.contains("WARN") && log.contains("edgewart"), "{log}");
        let forbidden = r#"{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
            "message": "endpointslices is forbidden"}"#;
        let (ready, log) = watched(403, forbidden, 2).await;
        assert_eq!(ready, None);
        assert_eq!(log.matches("our replicas cannot be counted").count(), 1, "{log}");
        assert!(log.contains("endpointslices is forbidden"), "{log}");
    }

    #[test]
    fn ready_endpoints_are_counted_once_across_ip_families() {
        let slice = json!({
            "addressType": "IPv4",
            "metadata": {"name": "a"},
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true, "terminating": true}},
                {"addresses": ["10.0.0.3"]},
                {"addresses": ["10.0.0.4"], "conditions": {}},
            ],
        });
        let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
        // The IPv6 addresses of the pods counted already.
        let mut other = slice.clone();
        other.address_type = "IPv6".into();
        for (i, endpoint) in other.endpoints.iter_mut().enumerate() {
            endpoint.addresses = vec![format!("fd00::{i}")];
        }
        assert_eq!(count([&slice, &other, &slice].into_iter()), 3);
    }
}
