//! Reads the Deployment of edgeward, the ConfigMap that its replicas use, and the Secret with their certificate.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::Api;
use kube::api::ListParams;

use crate::inspect::Connection;
use crate::watch::namespaced_name::NamespacedName;

/// Default Secret of `--self-managed`.
pub const SELF_MANAGED: &str = "edgeward-certificates";

/// The Secret that is mounted for `--tls-cert`, or the Secret of `--self-managed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairSecret {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Whether edgeward maintains the Secret and the CA in `caBundle`.
    pub is_self_managed: bool,
}

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

    /// Returns the Secrets with the serving certificates of all Deployments whose pods have these labels.
    ///
    /// # Errors
    /// Deployments cannot be listed.
    pub async fn pair_secrets(
        &self,
        namespace: &str,
        selector: &BTreeMap<String, String>,
    ) -> anyhow::Result<Vec<PairSecret>> {
        if selector.is_empty() {
            return Ok(vec![]);
        }
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), namespace);
        let pod = |deployment: Deployment| {
            let template = deployment.spec?.template;
            let labels = template.metadata?.labels?;
            let is_behind = selector.iter().all(|(key, value)| labels.get(key) == Some(value));
            template.spec.filter(|_| is_behind)
        };
        let mut secrets = Vec::new();
        for pod in self.list(&deployments, ListParams::default(), pod).await? {
            let found = secret_of(namespace, &pod);
            secrets.extend(found.filter(|found| !secrets.contains(found)));
        }
        Ok(secrets)
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

/// Returns the Secret that a pod's `serve` reads `tls.crt` and `tls.key` from, if it is one.
fn secret_of(namespace: &str, pod: &PodSpec) -> Option<PairSecret> {
    let secret = |name: &str, is_self_managed| PairSecret {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        is_self_managed,
    };
    if let Some(name) = option(pod, "--self-managed") {
        let name = name.filter(|name| !name.starts_with('-'));
        return Some(secret(name.unwrap_or(SELF_MANAGED), true));
    }
    let file = Path::new(option(pod, "--tls-cert")??);
    let mut mounts = pod
        .containers
        .iter()
        .flat_map(|container| container.volume_mounts.iter().flatten());
    let mount = mounts.find(|mount| file.starts_with(&mount.mount_path))?;
    let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
    Some(secret(volume.secret.as_ref()?.secret_name.as_deref()?, false))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(args: &Value) -> PodSpec {
        let mounts = json!([{"name": "config", "mountPath": "/etc"}, {"name": "tls", "mountPath": "/tls/"}]);
        let pod = json!({
            "containers": [
                {"name": "proxy", "args": ["--config=x"]},
                {"name": "edgeward", "args": args, "volumeMounts": mounts},
            ],
            "volumes": [{"name": "config"}, {"name": "tls", "secret": {"secretName": "edgeward-tls"}}],
        });
        serde_json::from_value(pod).unwrap()
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
            (json!(["serve", "--tls-cert=/tls/tls.crt"]), "edgeward-tls"),
        ] {
            let expected = PairSecret {
                namespace: "edgeward-system".into(),
                name: name.into(),
                is_self_managed: name != "edgeward-tls",
            };
            assert_eq!(secret_of("edgeward-system", &pod(&args)), Some(expected));
        }
        for args in [
            json!(["serve", "--tls-cert=/etc/a"]),
            json!(["serve", "--self-signed=/tls"]),
        ] {
            assert_eq!(secret_of("edgeward-system", &pod(&args)), None);
        }
    }
}
