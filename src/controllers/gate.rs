//! Removes our gate from pods without any other change. This is used when edgeward is uninstalled, and on request.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use edgeward_cluster::queue::PatchResult;
use edgeward_decision::keys::Keys;
use edgeward_decision::placement::patch::remove_gate;
use edgeward_decision::pod::Pod;
use futures::stream::{self, Stream, StreamExt as _};
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Resource as _};

use super::pod_patch::{patch, read};
use crate::inspect::Connection;
use crate::watch::raw::{Gvr, Raw};

/// Page size of the list. A page is held in memory, and the JSON of one pod may have 8 MiB.
const PAGE: u32 = 8;

/// Selects pods without a node, as all gated pods are.
const UNBOUND: &str = "spec.nodeName=";

/// How many pods are read and released concurrently.
const AT_ONCE: usize = 4;

/// How often the release of a pod is tried while the pod keeps changing.
const TRIES: usize = 10;

/// Removes the gate that a configuration names.
#[derive(Clone)]
pub struct Ungate<'a> {
    /// Connection to the cluster that has the pods.
    pub connection: &'a Connection,
    /// The keys that name the gate.
    pub keys: &'a Keys,
}

/// A pod to release.
#[derive(Debug, Clone)]
pub struct Target {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// Whether the pod came from a list and therefore existed.
    is_listed: bool,
}

/// Result for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Freed {
    /// The pod carried our gate, and it was removed.
    Released,
    /// The pod does not carry our gate, or is gone.
    AlreadyFree,
    /// The pod may still carry our gate; holds the cause.
    Failed(String),
}

impl Target {
    /// Targets the pod of this name.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_listed: false,
        }
    }
}

impl Ungate<'_> {
    /// The pods that carry our gate, in all namespaces, sorted by namespace and name. The map counts pods with a
    /// similar gate of another domain, by domain. Lists all pods without a node in pages, and keeps only the names.
    ///
    /// # Errors
    /// The API server cannot be reached, refuses the list, or sends something other than a list of pods.
    pub async fn gated(&self) -> anyhow::Result<(Vec<Target>, BTreeMap<String, usize>)> {
        let params = ListParams::default().limit(PAGE).fields(UNBOUND);
        let mut others = BTreeMap::new();
        let read = |object: Raw| {
            let pod = Pod::without_long_constraints(object.json());
            let gate = &self.keys.gate;
            let mut gates = pod.iter().flat_map(|pod| pod.gates());
            if let Some(domain) = gates.find_map(|gate| self.keys.other_domain(gate)) {
                *others.entry(domain.to_owned()).or_default() += 1;
            }
            // An unreadable pod may carry the gate; the release finds out.
            let is_gated = match &pod {
                Ok(pod) => pod.gate(gate).is_some(),
                Err(_) => object.json().contains(&**gate),
            };
            is_gated.then(|| Target {
                namespace: object.meta().namespace.clone().unwrap_or_default(),
                name: object.meta().name.clone().unwrap_or_default(),
                is_listed: true,
            })
        };
        let pods = Gvr::PODS.all(&self.connection.client);
        let gated = self.connection.list(&pods, params, read).await?;
        Ok((gated, others))
    }

    /// Deletes the MutatingWebhookConfiguration of this name; `false` if there is none. API servers notice the
    /// deletion after a moment, and reviews that they have sent already are still answered.
    ///
    /// # Errors
    /// The API server cannot be reached, or refuses the deletion.
    pub async fn unregister(&self, name: &str) -> anyhow::Result<bool> {
        let configurations = Api::<MutatingWebhookConfiguration>::all(self.connection.client.clone());
        match configurations.delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => {
                let doing = format!("cannot delete mutatingwebhookconfiguration {name}");
                Err(self.connection.failure(&doing, error))
            }
        }
    }

    /// Releases these pods, several at a time. Yields the results in the order of the pods.
    pub fn release_all<'t>(&self, pods: &'t [Target]) -> impl Stream<Item = (&'t Target, Freed)> {
        let release = move |pod: &'t Target| async move { (pod, self.release(pod).await) };
        stream::iter(pods).map(release).buffered(AT_ONCE)
    }

    /// Releases every pod that carries our gate until two lists, `pause` apart, contain none. Pods that failed are
    /// tried once and not counted. Calls `report` for each pod. Returns the number of pods with a similar gate of
    /// another domain, by domain. This does not return while new pods are being gated.
    ///
    /// # Errors
    /// The errors of [`gated`](Self::gated) and of `report`.
    pub async fn release_until_none(
        &self,
        pause: Duration,
        mut report: impl FnMut(&Target, &Freed) -> anyhow::Result<()>,
    ) -> anyhow::Result<BTreeMap<String, usize>> {
        let mut failed = HashSet::new();
        let mut was_none = false;
        loop {
            let (mut pods, others) = self.gated().await?;
            pods.retain(|pod| !failed.contains(&(pod.namespace.clone(), pod.name.clone())));
            if pods.is_empty() && was_none {
                return Ok(others);
            }
            was_none = pods.is_empty();
            let mut released = std::pin::pin!(self.release_all(&pods));
            while let Some((pod, freed)) = released.next().await {
                if matches!(freed, Freed::Failed(_)) {
                    failed.insert((pod.namespace.clone(), pod.name.clone()));
                }
                report(pod, &freed)?;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads one pod and releases it. Retries if the pod changed in between, up to `TRIES` times in all.
    pub async fn release(&self, target: &Target) -> Freed {
        let (namespace, name) = (&*target.namespace, &*target.name);
        for _ in 0..TRIES {
            let found = match read(&self.connection.client, namespace, name).await {
                Ok(pod) => pod,
                Err(PatchResult::Refused(error) | PatchResult::Unavailable(error)) => return Freed::Failed(error),
                Err(_) if target.is_listed => return Freed::AlreadyFree,
                Err(_) => return Freed::Failed("there is no such pod".to_owned()),
            };
            let pod = match Pod::without_long_constraints(found.json()) {
                Ok(pod) => pod,
                Err(error) => return Freed::Failed(format!("it cannot be read: {error}")),
            };
            let (Some(operations), Some(version)) = (remove_gate(&pod, self.keys), pod.resource_version()) else {
                return Freed::AlreadyFree;
            };
            match patch(&self.connection.client, [namespace, name], version, &operations).await {
                PatchResult::Changed => return Freed::Released,
                PatchResult::Outdated => {}
                PatchResult::Refused(error) | PatchResult::Unavailable(error) => return Freed::Failed(error),
            }
        }
        Freed::Failed(format!("it changed {TRIES} times between reading and patching"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Uri};
    use serde_json::{Value, json};

    use super::*;
    use crate::testkit::{api_server, failure};
    use edgeward_decision::config::Config;

    /// An API server with one pod, which changes before each of the first `changes` patches.
    #[derive(Default)]
    struct Server {
        pod: Value,
        /// How many lists do not contain the pod yet.
        lists: usize,
        changes: usize,
        patches: Vec<Value>,
        refusal: Option<(u16, &'static str)>,
    }

    type Shared = Arc<Mutex<Server>>;

    impl Server {
        fn answer(&mut self, method: &Method, uri: &Uri, patch: Value) -> (u16, Value) {
            if let Some((code, message)) = self.refusal {
                return failure(code, message);
            }
            match (method, uri.path()) {
                (&Method::GET, "/api/v1/pods") => {
                    // Two pages: a pod without our gate, then the gated pod.
                    let is_first = !uri.query().unwrap_or_default().contains("continue=next");
                    let other = json!({"metadata": {"namespace": "a", "name": "other"}, "spec": {}});
                    let (item, token) = match is_first {
                        true => (other, "next"),
                        false => (self.pod.clone(), ""),
                    };
                    if !is_first && self.lists > 0 {
                        self.lists -= 1;
                        return (200, json!({"metadata": {}, "items": []}));
                    }
                    (200, json!({"metadata": {"continue": token}, "items": [item]}))
                }
                (&Method::GET, "/api/v1/namespaces/shop/pods/web") if !self.pod.is_null() => (200, self.pod.clone()),
                (&Method::PATCH, "/api/v1/namespaces/shop/pods/web") if !self.pod.is_null() => {
                    self.patches.push(patch.clone());
                    if self.changes > 0 {
                        self.changes -= 1;
                        let version: usize = self.pod["metadata"]["resourceVersion"]
                            .as_str()
                            .unwrap()
                            .parse()
                            .unwrap();
                        self.pod["metadata"]["resourceVersion"] = json!((version + 1).to_string());
                    }
                    let operations: json_patch::Patch = serde_json::from_value(patch).unwrap();
                    match json_patch::patch(&mut self.pod, &operations) {
                        Ok(()) => (200, self.pod.clone()),
                        Err(error) => failure(422, &error.to_string()),
                    }
                }
                _ => failure(404, "not found"),
            }
        }
    }

    fn pod() -> Value {
        let gates = json!([{"name": "b.example/g"}, {"name": "scheduling.example.io/awaiting-capacity"}]);
        json!({
            "metadata": {"namespace": "shop", "name": "web", "resourceVersion": "7"},
            "spec": {"schedulingGates": gates, "affinity": {}},
        })
    }

    fn server(pod: Value, changes: usize) -> Shared {
        Arc::new(Mutex::new(Server {
            pod,
            changes,
            ..Server::default()
        }))
    }

    fn connection(server: &Shared) -> Connection {
        let server = Arc::clone(server);
        let client =
            api_server(move |method, uri, body| std::future::ready(server.lock().unwrap().answer(&method, &uri, body)));
        Connection::to(client, "test".to_owned())
    }

    fn ungate<'a>(connection: &'a Connection, config: &'a Config) -> Ungate<'a> {
        Ungate {
            connection,
            keys: &config.keys,
        }
    }

    #[tokio::test]
    async fn gated_pods_are_found_on_every_list_page() {
        let (server, config) = (server(pod(), 0), Config::default());
        let connection = connection(&server);
        let ungate = ungate(&connection, &config);
        let (gated, others) = ungate.gated().await.unwrap();
        assert!(others.is_empty());
        let names: Vec<_> = gated.iter().map(|pod| (&*pod.namespace, &*pod.name)).collect();
        assert_eq!(names, [("shop", "web")]);
        let freed: Vec<_> = ungate.release_all(&gated).map(|(_, freed)| freed).collect().await;
        assert_eq!(freed, [Freed::Released]);
        let mut expected = pod();
        expected["spec"]["schedulingGates"].as_array_mut().unwrap().remove(1);
        assert_eq!(server.lock().unwrap().pod, expected);
        assert!(ungate.gated().await.unwrap().0.is_empty());
        server.lock().unwrap().pod["spec"]["schedulingGates"][0]["name"] =
            json!("scheduling.acme.dev/awaiting-capacity");
        let (gated, others) = ungate.gated().await.unwrap();
        assert!(gated.is_empty());
        assert_eq!(others, [("acme.dev".to_owned(), 1)].into());
    }

    #[tokio::test]
    async fn release_until_none_stops_after_two_empty_lists() {
        let config = Config::default();
        // The number of lists before the pod appears, and whether it is released.
        for (lists, is_released) in [(0, true), (1, true), (2, false)] {
            let server = server(pod(), 0);
            server.lock().unwrap().lists = lists;
            let mut told = Vec::new();
            let report = |_: &Target, freed: &Freed| {
                told.push(freed.clone());
                Ok(())
            };
            let connection = connection(&server);
            let ungate = ungate(&connection, &config);
            let others = ungate.release_until_none(Duration::ZERO, report).await.unwrap();
            assert!(others.is_empty());
            assert_eq!(told, vec![Freed::Released; usize::from(is_released)], "{lists}");
        }
        // A pod that fails is reported once and does not block the end.
        let server = server(pod(), usize::MAX);
        let mut told = 0;
        let report = |_: &Target, freed: &Freed| {
            assert!(matches!(freed, Freed::Failed(_)));
            told += 1;
            Ok(())
        };
        let connection = connection(&server);
        let ungate = ungate(&connection, &config);
        let others = ungate.release_until_none(Duration::ZERO, report).await.unwrap();
        assert!(others.is_empty());
        assert_eq!(told, 1);
    }

    #[tokio::test]
    async fn release_of_changing_pod_is_retried_up_to_limit() {
        let config = Config::default();
        for (changes, tries) in [(0, 1), (2, 3), (TRIES - 1, TRIES)] {
            let server = server(pod(), changes);
            let freed = ungate(&connection(&server), &config)
                .release(&Target::new("shop", "web"))
                .await;
            assert_eq!(freed, Freed::Released);
            assert_eq!(server.lock().unwrap().patches.len(), tries);
        }
        let server = server(pod(), usize::MAX);
        let freed = ungate(&connection(&server), &config)
            .release(&Target::new("shop", "web"))
            .await;
        assert!(matches!(freed, Freed::Failed(why) if why.contains("10 times")));
        assert_eq!(server.lock().unwrap().patches.len(), TRIES);
    }

    #[tokio::test]
    async fn failed_release_is_reported_with_its_cause() {
        let config = Config::default();
        let mut free = pod();
        free["spec"]["schedulingGates"] = json!([{"name": "b.example/g"}]);
        let freed = ungate(&connection(&server(free, 0)), &config)
            .release(&Target::new("shop", "web"))
            .await;
        assert_eq!(freed, Freed::AlreadyFree);

        // A pod that is gone since it was listed, and a pod that never existed.
        let server = server(pod(), 0);
        let connection = connection(&server);
        let ungate = ungate(&connection, &config);
        let (listed, _) = ungate.gated().await.unwrap();
        server.lock().unwrap().pod = Value::Null;
        assert_eq!(ungate.release(&listed[0]).await, Freed::AlreadyFree);
        let missing = ungate.release(&Target::new("shop", "web")).await;
        assert_eq!(missing, Freed::Failed("there is no such pod".to_owned()));

        server.lock().unwrap().refusal = Some((403, "web is forbidden"));
        let refused = Freed::Failed("web is forbidden".to_owned());
        assert_eq!(ungate.release(&listed[0]).await, refused);
        assert_eq!(ungate.release(&Target::new("shop", "web")).await, refused);
        let error = ungate.gated().await.unwrap_err().to_string();
        assert_eq!(error, "test: cannot list pods: web is forbidden");
    }
}
