//! Inspects an installation of edgeward: webhook registrations, access rights, namespaces, and the endpoints behind a
//! webhook.

mod calls;
mod deployment;
mod leader;

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::core::{Selector, SelectorExt as _};
use serde_json::json;

use crate::inspect::Connection;
use crate::tls::Service;

pub use calls::Calls;
pub use deployment::SELF_MANAGED;
pub use leader::{Lead, Leaderless};

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// An entry of a MutatingWebhookConfiguration.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// The metadata of the configuration.
    pub metadata: ObjectMeta,
    /// The entry itself.
    pub entry: MutatingWebhook,
}

impl Webhook {
    /// Name of the configuration.
    pub fn configuration(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Creation time of the configuration.
    pub fn created(&self) -> Option<jiff::Timestamp> {
        self.metadata.creation_timestamp.as_ref().map(|at| at.0)
    }

    /// The Service that is called, and its port; `None` if a URL is called.
    pub fn service(&self) -> Option<(Service, i32)> {
        let called = self.entry.client_config.service.clone()?;
        let service = Service {
            name: called.name,
            namespace: called.namespace,
        };
        Some((service, called.port.unwrap_or(443)))
    }

    /// The called Service or URL as text.
    pub fn target(&self) -> String {
        match self.service() {
            Some((Service { namespace, name }, port)) => format!("Service {namespace}/{name}, port {port}"),
            None => self.entry.client_config.url.clone().unwrap_or_default(),
        }
    }

    /// The `caBundle` in PEM. It is empty if the API server uses its own roots.
    pub fn ca_bundle(&self) -> &[u8] {
        self.entry.client_config.ca_bundle.as_ref().map_or(&[], |pem| &pem.0)
    }

    /// Whether the entry is called for the creation of pods.
    pub fn creates_pods(&self) -> bool {
        let is_for = |list: &Option<Vec<String>>, one: &str| {
            let mut list = list.iter().flatten();
            list.any(|found| found == one || found == "*")
        };
        let mut rules = self.entry.rules.iter().flatten();
        rules.any(|rule| {
            is_for(&rule.api_groups, "") && is_for(&rule.resources, "pods") && is_for(&rule.operations, "CREATE")
        })
    }

    /// The domain of the label that opts namespaces in, from the namespace selector.
    pub fn domain(&self) -> Option<String> {
        let selector = self.entry.namespace_selector.clone()?;
        let labels = selector.match_labels.into_iter().flatten().map(|(key, _)| key);
        let expressions = selector.match_expressions.into_iter().flatten();
        let mut keys = labels.chain(expressions.map(|expression| expression.key));
        keys.find_map(|key| {
            let domain = key.strip_prefix("scheduling.")?.strip_suffix("/managed")?;
            Some(domain.to_owned())
        })
    }

    /// Whether the entry is called for pods of a namespace with this name and these labels.
    pub fn selects(&self, name: &str, labels: &Labels) -> bool {
        let mut labels = labels.clone();
        // The API server always sets this label.
        labels.insert("kubernetes.io/metadata.name".to_owned(), name.to_owned());
        let selector = self.entry.namespace_selector.clone().unwrap_or_default();
        Selector::try_from(selector).is_ok_and(|selector| selector.matches(&labels))
    }
}

/// Namespace and name of the objects that an access right covers. `None` means all.
pub type Scope<'p> = (Option<&'p str>, Option<&'p str>);

/// A user whose access rights are checked.
#[derive(Debug, Clone, Copy)]
pub struct User<'u> {
    /// Name of the user.
    pub name: &'u str,
    /// Further groups of the user, without the ones that authenticated users and ServiceAccounts always have.
    pub more_groups: &'u [String],
}

impl<'u> User<'u> {
    /// Namespace and name of the ServiceAccount, if the user is one.
    pub fn account(&self) -> Option<(&'u str, &'u str)> {
        self.name.strip_prefix("system:serviceaccount:")?.split_once(':')
    }

    /// All groups as the API server would list them.
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
    /// Whether a user may use a verb on a resource. `resource` has kubectl's form: plural, group and subresource.
    /// Nothing is stored.
    ///
    /// # Errors
    /// The API server cannot be reached, or refuses to answer.
    pub async fn may(&self, user: User<'_>, verb: &str, resource: &str, place: Scope<'_>) -> anyhow::Result<bool> {
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

    /// Lists all mutating webhooks in the order of configurations and entries.
    ///
    /// # Errors
    /// The configurations cannot be listed.
    pub async fn webhooks(&self) -> anyhow::Result<Vec<Webhook>> {
        let all = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let found = self.list(&all, ListParams::default(), Some).await?;
        Ok(found.into_iter().flat_map(entries).collect())
    }

    /// The mutating webhooks of the configuration of this name; none if there is no such.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn webhooks_of(&self, name: &str) -> anyhow::Result<Vec<Webhook>> {
        let found = self.get_from(Api::all(self.client.clone()), name).await?;
        Ok(found.map(entries).unwrap_or_default())
    }

    /// Returns the labels of every namespace by name.
    ///
    /// # Errors
    /// The namespaces cannot be listed.
    pub async fn namespaces(&self) -> anyhow::Result<BTreeMap<String, Labels>> {
        let all = Api::<Namespace>::all(self.client.clone());
        let named = |found: Namespace| Some((found.metadata.name?, found.metadata.labels.unwrap_or_default()));
        let found = self.list(&all, ListParams::default(), named).await?;
        Ok(found.into_iter().collect())
    }

    /// Returns the ready endpoints of a Service as `address:port`.
    ///
    /// # Errors
    /// The endpoints cannot be listed.
    pub async fn endpoints(&self, Service { namespace, name }: &Service) -> anyhow::Result<Vec<String>> {
        let slices = Api::<EndpointSlice>::namespaced(self.client.clone(), namespace);
        let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={name}"));
        let slices = self.list(&slices, of_service, Some).await?;
        let ready = endpoints(&slices).into_iter().filter(|(_, is_ready)| *is_ready);
        Ok(ready.map(|(address, _)| address).collect())
    }
}

fn entries(found: MutatingWebhookConfiguration) -> Vec<Webhook> {
    let entries = found.webhooks.into_iter().flatten();
    let webhook = |entry| Webhook {
        metadata: found.metadata.clone(),
        entry,
    };
    entries.map(webhook).collect()
}

/// `address:port` of an endpoint.
pub fn host_port(address: &str, port: i32) -> String {
    match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    }
}

/// Name of the port in EndpointSlices, as in `deploy/base`.
const PORT: &str = "webhook";

/// `address:port` of every endpoint, and whether it is ready. An endpoint without a ready condition counts as ready.
/// An endpoint may be in two slices while it moves between them.
pub(crate) fn endpoints(slices: &[EndpointSlice]) -> BTreeMap<String, bool> {
    let mut endpoints = BTreeMap::new();
    for slice in slices {
        let ports = || slice.ports.iter().flatten();
        let named = ports().find(|port| port.name.as_deref() == Some(PORT));
        // The Service may not be the one of our manifests; accept its only port.
        let only = || ports().next().filter(|_| ports().count() == 1);
        let Some(port) = named.or_else(only).and_then(|port| port.port) else {
            continue;
        };
        for endpoint in &slice.endpoints {
            let conditions = endpoint.conditions.as_ref();
            let is_ready = conditions.and_then(|conditions| conditions.ready).unwrap_or(true);
            for address in &endpoint.addresses {
                *endpoints.entry(host_port(address, port)).or_default() |= is_ready;
            }
        }
    }
    endpoints
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testkit::api_server;

    impl Webhook {
        /// The entry of `webhook/base` for namespaces without policies, registered at midnight of 2026-11-21.
        pub(crate) fn example() -> Self {
            let manifest = include_str!("../../webhook/base/mutatingwebhookconfiguration.yaml");
            let manifest: serde_json::Value = serde_saphyr::from_str(manifest).unwrap();
            let mut entries = manifest["webhooks"].as_array().unwrap().iter();
            let entry = entries.find(|entry| entry["name"] == "pods.edgeward.io").unwrap();
            let metadata = json!({"name": "zz-edgeward", "creationTimestamp": "2026-11-21T00:00:00Z"});
            Self {
                metadata: serde_json::from_value(metadata).unwrap(),
                entry: serde_json::from_value(entry.clone()).unwrap(),
            }
        }

        /// The example entry with this name and with changes.
        pub(crate) fn changed(name: &str, change: impl FnOnce(&mut MutatingWebhook)) -> Self {
            let mut webhook = Self::example();
            webhook.entry.name = name.to_owned();
            change(&mut webhook.entry);
            webhook
        }
    }

    #[test]
    fn webhook_entry_selects_namespaces_by_its_selector() {
        let webhook = Webhook::example();
        assert!(webhook.creates_pods());
        assert_eq!(webhook.domain().as_deref(), Some("example.io"));
        assert_eq!(webhook.service().unwrap().0.dns_name(), "edgeward.edgeward-system.svc");
        let labels = |managed: &str| Labels::from([("scheduling.example.io/managed".into(), managed.into())]);
        assert!(webhook.selects("shop", &labels("true")));
        assert!(!webhook.selects("shop", &labels("false")));
        assert!(!webhook.selects("shop", &Labels::new()));
        assert!(!webhook.selects("kube-system", &labels("true")));

        let updates = json!([{"apiGroups": ["*"], "resources": ["pods"], "operations": ["UPDATE"]}]);
        let webhook = Webhook::changed("other", |entry| {
            entry.rules = serde_json::from_value(updates).unwrap();
            entry.namespace_selector = None;
        });
        assert_eq!(webhook.domain(), None);
        assert!(!webhook.creates_pods() && webhook.selects("shop", &Labels::new()));
    }

    #[tokio::test]
    async fn access_review_carries_resource_attributes_and_groups() {
        let client = api_server(|_, _, asked| {
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
            std::future::ready((200, json!({"spec": {}, "status": {"allowed": true}})))
        });
        let connection = Connection::to(client, "test".to_owned());
        let user = User {
            name: "system:serviceaccount:edge:me",
            more_groups: &["more".to_owned()],
        };
        let may = connection.may(user, "patch", "sites.edgeward.io/status", (Some("edge"), None));
        assert!(may.await.unwrap());
    }

    #[test]
    fn service_account_user_yields_namespace_and_name() {
        let account = |name| User { name, more_groups: &[] }.account();
        assert_eq!(account("system:serviceaccount:edge:me"), Some(("edge", "me")));
        assert_eq!(account("system:serviceaccount:edge"), None);
        assert_eq!(account("jane"), None);
    }
}
