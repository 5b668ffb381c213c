//! An installation of edgeward as an API server has it: registrations, rights, namespaces, and who answers behind a webhook.

mod bundle;
mod calls;
mod deployment;
mod leader;
mod pair_secret;

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::api::{ListParams, PostParams};
use kube::core::{Selector, SelectorExt as _};
use kube::{Api, Resource as _};
use serde_json::json;

use crate::api::Site;
use crate::inspect::Connection;
use crate::sources::raw::Raw;

pub use bundle::{Bundle, Serving, VerificationError};
pub use calls::Calls;
pub use leader::{Lead, Leaderless};
pub use pair_secret::{PairSecret, SELF_MANAGED};

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// An entry of a MutatingWebhookConfiguration.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Name of the configuration.
    pub configuration: String,
    /// Which of its entries, counted from 0.
    pub position: usize,
    /// When the configuration was created.
    pub created: Option<jiff::Timestamp>,
    /// Name of the entry.
    pub name: String,
    /// `Ignore` or `Fail`.
    pub failure_policy: String,
    /// How long the API server waits for an answer.
    pub timeout_seconds: i32,
    /// Whether it is for the creation of pods.
    pub creates_pods: bool,
    /// Who is called.
    pub target: Target,
    /// PEM; empty where the API server's own roots count.
    pub ca_bundle: Vec<u8>,
    /// The Certificate, `namespace/name`, from whose authority cert-manager fills in the bundle.
    pub injected: Option<String>,
    /// The namespaces whose pods come to it.
    pub namespaces: Selector,
}

/// Who is called by the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Whoever is at this URL.
    Url(String),
    /// A Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: i32,
    },
}

impl Webhook {
    /// The domain of the label by which namespaces opt in, as the selector of namespaces has it.
    pub fn domain(&self) -> Option<String> {
        let selector = LabelSelector::from(self.namespaces.clone());
        let labels = selector.match_labels.into_iter().flatten().map(|(key, _)| key);
        let expressions = selector.match_expressions.into_iter().flatten();
        let mut keys = labels.chain(expressions.map(|expression| expression.key));
        keys.find_map(|key| {
            let domain = key.strip_prefix("scheduling.")?.strip_suffix("/managed")?;
            Some(domain.to_owned())
        })
    }

    /// Whether pods of a namespace with this name and these labels come to it.
    pub fn selects(&self, name: &str, labels: &Labels) -> bool {
        let mut labels = labels.clone();
        // The API server sets it, whatever else may.
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_owned());
        self.namespaces.matches(&labels)
    }
}

/// The namespace and the name of the objects that a right is for; everywhere, and all, without.
pub type Place<'p> = (Option<&'p str>, Option<&'p str>);

/// Whose rights are asked for.
#[derive(Debug, Clone, Copy)]
pub struct User<'u> {
    /// The name.
    pub name: &'u str,
    /// The groups that the user is in, beside those of everybody and of ServiceAccounts.
    pub more_groups: &'u [String],
}

impl<'u> User<'u> {
    /// Namespace and name of a ServiceAccount.
    pub fn account(&self) -> Option<(&'u str, &'u str)> {
        self.name.strip_prefix("system:serviceaccount:")?.split_once(':')
    }

    /// All groups, as the API server would say them.
    fn groups(&self) -> Vec<String> {
        let mut groups = vec!["system:authenticated".to_owned()];
        if let Some((namespace, _)) = self.account() {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        groups.extend_from_slice(self.more_groups);
        groups
    }
}

impl Connection {
    /// The version of the API server: major, minor, and as it says it.
    ///
    /// # Errors
    /// It cannot be reached, or does not say.
    pub async fn server_version(&self) -> anyhow::Result<(u32, u32, String)> {
        let info = self.client.apiserver_version().await;
        let info = info.map_err(|error| self.failure("cannot ask for its version", error))?;
        // Some write `33+`.
        let number = |text: &str| text.trim_end_matches('+').parse().unwrap_or(0);
        Ok((number(&info.major), number(&info.minor), info.git_version))
    }

    /// The versions in which it serves our custom resources; empty where it knows nothing of them.
    ///
    /// # Errors
    /// It cannot be reached, or does not say.
    pub async fn custom_versions(&self) -> anyhow::Result<Vec<String>> {
        let groups = self.client.list_api_groups().await;
        let groups = groups.map_err(|error| self.failure("cannot list API groups", error))?;
        let ours = groups.groups.into_iter().filter(|group| group.name == Site::group(&()));
        Ok(ours
            .flat_map(|group| group.versions)
            .map(|version| version.version)
            .collect())
    }

    /// Whether a user has a right: to a verb, on a resource as kubectl writes it (plural, group and subresource). Nothing is
    /// stored.
    ///
    /// # Errors
    /// The API server cannot be reached, or does not tell us.
    pub async fn may(&self, user: User<'_>, verb: &str, resource: &str, place: Place<'_>) -> anyhow::Result<bool> {
        let (kind, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let (resource, group) = kind.split_once('.').unwrap_or((kind, ""));
        let attributes = json!({
            "group": group, "resource": resource, "subresource": subresource, "verb": verb,
            "namespace": place.0, "name": place.1,
        });
        let spec = json!({"user": user.name, "groups": user.groups(), "resourceAttributes": attributes});
        let review = serde_json::from_value(json!({ "spec": spec }))?;
        let reviews = Api::<SubjectAccessReview>::all(self.client.clone());
        let answer = reviews.create(&PostParams::default(), &review).await;
        let status = answer
            .map_err(|error| self.failure("cannot review access", error))?
            .status;
        Ok(status.is_some_and(|status| status.allowed))
    }

    /// Every mutating webhook, in the order of configurations and entries.
    ///
    /// # Errors
    /// They cannot be listed, or one cannot be read.
    pub async fn webhooks(&self) -> anyhow::Result<Vec<Webhook>> {
        let api = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let list = api.list(&ListParams::default()).await;
        let list = list.map_err(|error| self.failure("cannot list mutatingwebhookconfigurations", error))?;
        let read_all = |found: MutatingWebhookConfiguration| {
            let entries = found.webhooks.into_iter().flatten().enumerate();
            entries.map(move |(position, entry)| read(entry, &found.metadata, position))
        };
        list.items.into_iter().flat_map(read_all).collect()
    }

    /// The metadata of every namespace, by name.
    ///
    /// # Errors
    /// They cannot be listed.
    pub async fn namespaces(&self) -> anyhow::Result<BTreeMap<String, ObjectMeta>> {
        let api = Api::<Namespace>::all(self.client.clone());
        let list = api.list_metadata(&ListParams::default()).await;
        let list = list.map_err(|error| self.failure("cannot list namespaces", error))?;
        let named = list.items.into_iter().map(|namespace| namespace.metadata);
        Ok(named.filter_map(|meta| Some((meta.name.clone()?, meta))).collect())
    }

    /// The JSON text of a pod; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn pod(&self, namespace: &str, name: &str) -> anyhow::Result<Option<String>> {
        let api = Api::<Raw<Pod>>::namespaced(self.client.clone(), namespace);
        let pod = api.get_opt(name).await;
        let pod = pod.map_err(|error| self.failure(&format!("cannot get pod {namespace}/{name}"), error))?;
        Ok(pod.map(|pod| pod.json().to_owned()))
    }

    /// Where the API server finds a Service's port, `address:port`: its ready endpoints, or another name that it stands for;
    /// `None` if there is no such Service.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn endpoints(&self, namespace: &str, service: &str, port: i32) -> anyhow::Result<Option<Vec<String>>> {
        let Some(found) = self.get::<Service>(namespace, service).await? else {
            return Ok(None);
        };
        let spec = found.spec.unwrap_or_default();
        if let (Some("ExternalName"), Some(host)) = (spec.type_.as_deref(), spec.external_name) {
            return Ok(Some(vec![format!("{host}:{port}")]));
        }
        let ports = spec.ports.into_iter().flatten();
        let name = ports.filter(|found| found.port == port).find_map(|found| found.name);
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
        let mut endpoints = Vec::new();
        for slice in &self.list::<EndpointSlice>(namespace, &of_service).await? {
            let is_named =
                |found: &Option<String>| found.as_deref().unwrap_or_default() == name.as_deref().unwrap_or("");
            let mut ports = slice.ports.iter().flatten();
            let Some(port) = ports.find(|port| is_named(&port.name)).and_then(|port| port.port) else {
                continue;
            };
            let ready = crate::sources::replicas::ready_endpoints(slice);
            endpoints.extend(ready.iter().map(|address| host_port(address, port)));
        }
        Ok(Some(endpoints))
    }
}

/// `address:port` of an endpoint.
pub fn host_port(address: &str, port: i32) -> String {
    match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    }
}

fn read(entry: MutatingWebhook, metadata: &ObjectMeta, position: usize) -> anyhow::Result<Webhook> {
    let is_for = |list: &Option<Vec<String>>, one: &str| {
        let mut list = list.iter().flatten();
        list.any(|found| found == one || found == "*")
    };
    let mut rules = entry.rules.iter().flatten();
    let creates_pods = rules.any(|rule| {
        is_for(&rule.api_groups, "") && is_for(&rule.resources, "pods") && is_for(&rule.operations, "CREATE")
    });
    let target = match (entry.client_config.url, entry.client_config.service) {
        (None, Some(service)) => Target::Service {
            namespace: service.namespace,
            name: service.name,
            port: service.port.unwrap_or(443),
        },
        (url, _) => Target::Url(url.unwrap_or_default()),
    };
    let annotations = metadata.annotations.as_ref();
    Ok(Webhook {
        configuration: metadata.name.clone().unwrap_or_default(),
        position,
        created: metadata.creation_timestamp.as_ref().map(|at| at.0),
        injected: annotations.and_then(|all| all.get("cert-manager.io/inject-ca-from").cloned()),
        name: entry.name,
        failure_policy: entry.failure_policy.unwrap_or_else(|| "Fail".to_owned()),
        timeout_seconds: entry.timeout_seconds.unwrap_or(10),
        creates_pods,
        target,
        ca_bundle: entry.client_config.ca_bundle.map(|bundle| bundle.0).unwrap_or_default(),
        namespaces: entry.namespace_selector.unwrap_or_default().try_into()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    impl Webhook {
        /// The entry of `webhook/base` for namespaces without policies, registered at midnight of 2026-11-21.
        pub(crate) fn example() -> Self {
            let manifest = include_str!("../../webhook/base/mutatingwebhookconfiguration.yaml");
            let manifest: serde_json::Value = serde_saphyr::from_str(manifest).unwrap();
            let mut entries = manifest["webhooks"].as_array().unwrap().iter();
            let entry = entries.find(|entry| entry["name"] == "pods.edgeward.io").unwrap();
            let metadata = json!({"name": "zz-edgeward", "creationTimestamp": "2026-11-21T00:00:00Z"});
            let metadata = serde_json::from_value(metadata).unwrap();
            read(serde_json::from_value(entry.clone()).unwrap(), &metadata, 0).unwrap()
        }
    }

    #[test]
    fn an_entry_selects_what_its_selector_says() {
        let webhook = Webhook::example();
        assert!(webhook.creates_pods);
        assert_eq!(webhook.domain().as_deref(), Some("example.io"));
        assert_eq!((&*webhook.failure_policy, webhook.timeout_seconds), ("Ignore", 1));
        let service = Target::Service {
            namespace: "edgeward-system".into(),
            name: "edgeward".into(),
            port: 443,
        };
        assert_eq!(webhook.target, service);
        let labels = |managed: &str| Labels::from([("scheduling.example.io/managed".into(), managed.into())]);
        assert!(webhook.selects("shop", &labels("true")));
        assert!(!webhook.selects("shop", &labels("false")));
        assert!(!webhook.selects("shop", &Labels::new()));
        assert!(!webhook.selects("kube-system", &labels("true")));

        let updates = json!({"name": "other", "admissionReviewVersions": [], "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/x"},
            "rules": [{"apiGroups": ["*"], "resources": ["pods"], "operations": ["UPDATE"]}]});
        let webhook = read(serde_json::from_value(updates).unwrap(), &ObjectMeta::default(), 0).unwrap();
        assert_eq!(webhook.domain(), None);
        assert!(!webhook.creates_pods && webhook.selects("shop", &Labels::new()));
        assert_eq!((&*webhook.failure_policy, webhook.timeout_seconds), ("Fail", 10));
    }

    #[tokio::test]
    async fn a_right_is_asked_for_as_kubectl_writes_it() {
        let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let body = request.into_body().collect_bytes().await.unwrap();
            let asked: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let attributes = json!({
                "group": "edgeward.io", "resource": "sites", "subresource": "status", "verb": "patch", "namespace": "edge",
            });
            assert_eq!(asked["spec"]["resourceAttributes"], attributes);
            let groups = [
                "system:authenticated",
                "system:serviceaccounts",
                "system:serviceaccounts:edge",
                "more",
            ];
            assert_eq!(asked["spec"]["groups"], json!(groups));
            let answer = json!({"spec": {}, "status": {"allowed": true}}).to_string();
            let answer = http::Response::new(kube::client::Body::from(answer.into_bytes()));
            Ok::<_, std::convert::Infallible>(answer)
        });
        let connection = Connection::to(kube::Client::new(service, "default"), "test".to_owned());
        let user = User {
            name: "system:serviceaccount:edge:me",
            more_groups: &["more".to_owned()],
        };
        let may = connection.may(user, "patch", "sites.edgeward.io/status", (Some("edge"), None));
        assert!(may.await.unwrap());
    }

    #[test]
    fn accounts_have_a_namespace_and_a_name() {
        let account = |name| User { name, more_groups: &[] }.account();
        assert_eq!(account("system:serviceaccount:edge:me"), Some(("edge", "me")));
        assert_eq!(account("system:serviceaccount:edge"), None);
        assert_eq!(account("jane"), None);
    }
}
