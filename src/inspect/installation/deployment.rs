//! Reads the Deployment of edgeward, the ConfigMap that its replicas use, and the Secret that they manage.

use std::collections::BTreeMap;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::Api;
use kube::api::ListParams;

use crate::inspect::Connection;
use crate::watch::namespaced_name::NamespacedName;

/// Default Secret of `--self-managed`.
pub const SELF_MANAGED: &str = "edgeward-certificates";

impl Connection {
    /// Returns the ConfigMap that the newest replicas of this Deployment read.
    ///
    /// # Errors
    /// The Deployment cannot be read, or names no ConfigMap.
    pub async fn configured(&self, deployment: &NamespacedName) -> anyhow::Result<NamespacedName> {
        let found = self.get::<Deployment>(&deployment.namespace, &deployment.name).await?;
        let found = found.with_context(|| format!("Deployment {deployment} does not exist"))?;
        let pod = found.spec.and_then(|spec| spec.template.spec);
        let map = pod.as_ref().and_then(|pod| option(pod, "--config-map")?);
        let map = map.with_context(|| format!("Deployment {deployment} names no ConfigMap"))?;
        Ok(NamespacedName::parse(map, &deployment.namespace))
    }

    /// Returns the Secret of `--self-managed`, if a Deployment whose pods have these labels uses one.
    ///
    /// # Errors
    /// Deployments cannot be listed.
    pub async fn self_managed(
        &self,
        namespace: &str,
        selector: &BTreeMap<String, String>,
    ) -> anyhow::Result<Option<NamespacedName>> {
        if selector.is_empty() {
            return Ok(None);
        }
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), namespace);
        let secret = |deployment: Deployment| {
            let template = deployment.spec?.template;
            let labels = template.metadata?.labels?;
            let is_behind = selector.iter().all(|(key, value)| labels.get(key) == Some(value));
            let pod = template.spec.filter(|_| is_behind)?;
            Some(NamespacedName::parse(secret_of(&pod)?, namespace))
        };
        let secrets = self.list(&deployments, ListParams::default(), secret).await?;
        Ok(secrets.into_iter().next())
    }
}

/// Finds an option on the command lines of a pod's containers. Its value follows a `=` or is the next word.
fn option<'p>(pod: &'p PodSpec, name: &str) -> Option<Option<&'p str>> {
    let of_container = |container: &'p Container| {
        let mut words = [&container.command, &container.args].into_iter().flatten().flatten();
        let inline = words.find_map(|word| {
            let rest = word.strip_prefix(name)?;
            let inline = rest.strip_prefix('=');
            (rest.is_empty() || inline.is_some()).then_some(inline)
        })?;
        Some(inline.or_else(|| words.next().map(String::as_str)))
    };
    pod.containers.iter().find_map(of_container)
}

/// Returns the name of the Secret in which a pod's `serve` manages its certificate, if it does.
fn secret_of(pod: &PodSpec) -> Option<&str> {
    let name = option(pod, "--self-managed")?;
    Some(name.filter(|name| !name.starts_with('-')).unwrap_or(SELF_MANAGED))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(args: &Value) -> PodSpec {
        let containers = json!([{"name": "proxy", "args": ["--config=x"]}, {"name": "edgeward", "args": args}]);
        serde_json::from_value(json!({"containers": containers})).unwrap()
    }

    #[test]
    fn container_options_are_read_with_space_or_equals() {
        for (args, map) in [
            (json!(["serve", "--config-map", "a-1"]), Some("a-1")),
            (json!(["serve", "--config-map=b/a-1"]), Some("b/a-1")),
            (json!(["serve", "--config=/etc/edgeward"]), None),
        ] {
            assert_eq!(option(&pod(&args), "--config-map").flatten(), map);
        }
        for (args, name) in [
            (json!(["serve", "--self-managed", "--listen=[::]:8443"]), SELF_MANAGED),
            (json!(["serve", "--self-managed"]), SELF_MANAGED),
            (json!(["serve", "--self-managed=mine"]), "mine"),
        ] {
            assert_eq!(secret_of(&pod(&args)), Some(name));
        }
        assert_eq!(secret_of(&pod(&json!(["serve", "--tls-cert=/etc/a"]))), None);
    }
}
