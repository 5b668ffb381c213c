//! Reads the Deployment of edgeward, the ConfigMap that its replicas use, and the Secret with their certificate.

use std::path::Path;

use anyhow::{Context as _, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec, Secret, Service as ServiceObject};
use kube::Api;
use kube::api::ListParams;

use crate::inspect::Connection;
use crate::sources::namespaced_name::NamespacedName;
use crate::tls::stored::contents;
use crate::tls::{Contents, Service};

/// Default Secret of `--self-managed`.
pub const SELF_MANAGED: &str = "edgeward-certificates";

/// The Secret mounted at the paths of `--tls-cert` and `--tls-key`, or the Secret of `--self-managed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairSecret {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Key of the certificate in the Secret.
    pub cert: String,
    /// Key of the private key in the Secret.
    pub key: String,
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
        let map = pod.as_ref().and_then(config_map);
        let map = map.with_context(|| format!("Deployment {deployment} names no ConfigMap"))?;
        Ok(NamespacedName::parse(map, &deployment.namespace))
    }
    /// Returns the configured number of replicas of a Deployment; `None` if it does not exist.
    ///
    /// # Errors
    /// Deployments cannot be listed.
    pub async fn wanted_replicas(&self, namespace: &str, name: &str) -> anyhow::Result<Option<i32>> {
        // `helm test` has the right to list, but not to get.
        let of_name = ListParams::default().fields(&format!("metadata.name={name}"));
        let found = self.deployments(namespace, of_name).await?.pop();
        Ok(found.map(|found| found.spec.and_then(|spec| spec.replicas).unwrap_or(1)))
    }

    async fn deployments(&self, namespace: &str, which: ListParams) -> anyhow::Result<Vec<Deployment>> {
        let api = Api::namespaced(self.client.clone(), namespace);
        self.list(&api, which, Some).await
    }

    /// Returns the Secrets of the serving certificates of all Deployments whose pods are behind a Service.
    /// Deployments with `--self-signed` have none.
    ///
    /// # Errors
    /// The Service cannot be read, Deployments cannot be listed, or a certificate comes from an unsupported place.
    pub async fn pair_secrets(&self, service: &Service) -> anyhow::Result<Vec<PairSecret>> {
        let namespace = &service.namespace;
        let found: Option<ServiceObject> = self.get(namespace, &service.name).await?;
        let selector = found.and_then(|found| found.spec?.selector).unwrap_or_default();
        let mut secrets = Vec::new();
        if selector.is_empty() {
            return Ok(secrets);
        }
        for deployment in self.deployments(namespace, ListParams::default()).await? {
            let template = deployment.spec.unwrap_or_default().template;
            let labels = template.metadata.unwrap_or_default().labels.unwrap_or_default();
            let is_behind = selector.iter().all(|(key, value)| labels.get(key) == Some(value));
            if let (Some(pod), true) = (template.spec, is_behind) {
                let name = deployment.metadata.name.unwrap_or_default();
                let found = find(namespace, &pod).with_context(|| format!("deployment {namespace}/{name}"))?;
                secrets.extend(found.filter(|found| !secrets.contains(found)));
            }
        }
        Ok(secrets)
    }

    /// Returns the contents of such a Secret by key; `None` if it does not exist.
    ///
    /// # Errors
    /// The Secret cannot be read.
    pub async fn contents(&self, secret: &PairSecret) -> anyhow::Result<Option<Contents>> {
        let found = self.get::<Secret>(&secret.namespace, &secret.name).await?;
        Ok(found.map(contents))
    }
}

/// Returns `[NAMESPACE/]NAME` of the ConfigMap that a pod's `serve` reads.
fn config_map(pod: &PodSpec) -> Option<&str> {
    pod.containers
        .iter()
        .find_map(|container| option(container, "--config-map")?)
}

/// Finds an option on a container's command line. Its value follows a `=` or is the next word.
fn option<'c>(container: &'c Container, name: &str) -> Option<Option<&'c str>> {
    let mut words = [&container.command, &container.args].into_iter().flatten().flatten();
    let inline = words.find_map(|word| {
        let rest = word.strip_prefix(name)?;
        let inline = rest.strip_prefix('=');
        (rest.is_empty() || inline.is_some()).then_some(inline)
    })?;
    Some(inline.or_else(|| words.next().map(String::as_str)))
}

/// Finds the Secret that a pod's `serve` reads certificate and key from.
fn find(namespace: &str, pod: &PodSpec) -> anyhow::Result<Option<PairSecret>> {
    let secret = |name: &str, cert: &str, key: &str, is_self_managed| PairSecret {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        cert: cert.to_owned(),
        key: key.to_owned(),
        is_self_managed,
    };
    for container in &pod.containers {
        let value = |name| option(container, name).map(Option::unwrap_or_default);
        if let Some(name) = value("--self-managed") {
            let is_named = !name.is_empty() && !name.starts_with('-');
            let name = if is_named { name } else { SELF_MANAGED };
            return Ok(Some(secret(name, "tls.crt", "tls.key", true)));
        }
        if value("--self-signed").is_some() {
            return Ok(None);
        }
        if let Some(cert) = value("--tls-cert") {
            let key = value("--tls-key").unwrap_or_default();
            let (name, cert) = mounted(container, pod, cert).context("--tls-cert is in no Secret that is mounted")?;
            let (_, key) = mounted(container, pod, key).context("--tls-key is in no Secret that is mounted")?;
            return Ok(Some(secret(name, cert, key, false)));
        }
    }
    bail!("no container has --tls-cert, --self-managed or --self-signed among its arguments")
}

/// Returns Secret and key of a file, if a whole Secret is mounted at its directory.
fn mounted<'p>(container: &'p Container, pod: &'p PodSpec, file: &'p str) -> Option<(&'p str, &'p str)> {
    let (directory, file) = (Path::new(file).parent()?, Path::new(file).file_name()?.to_str()?);
    let mut mounts = container.volume_mounts.iter().flatten();
    let mount = mounts.find(|mount| Path::new(&mount.mount_path) == directory && mount.sub_path.is_none())?;
    let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
    let secret = volume.secret.as_ref()?;
    // Keys may be mounted under other file names.
    let renamed = secret.items.iter().flatten().find(|item| item.path == file);
    Some((secret.secret_name.as_deref()?, renamed.map_or(file, |item| &item.key)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn named(args: &Value) -> Option<String> {
        let containers = json!([{"name": "proxy", "args": ["--config=x"]}, {"name": "edgeward", "args": args}]);
        let pod: PodSpec = serde_json::from_value(json!({"containers": containers})).unwrap();
        config_map(&pod).map(str::to_owned)
    }

    #[test]
    fn the_config_map_is_named_in_both_forms() {
        assert_eq!(named(&json!(["serve", "--config-map", "a-1"])).as_deref(), Some("a-1"));
        assert_eq!(named(&json!(["serve", "--config-map=b/a-1"])).as_deref(), Some("b/a-1"));
        assert_eq!(named(&json!(["serve", "--config=/etc/edgeward"])), None);
    }

    fn found(pod: Value) -> Result<Option<PairSecret>, String> {
        let found = find("edgeward-system", &serde_json::from_value(pod).unwrap());
        found.map_err(|error| error.to_string())
    }

    fn secret(cert: &str, key: &str) -> Result<Option<PairSecret>, String> {
        Ok(Some(PairSecret {
            namespace: "edgeward-system".into(),
            name: "edgeward-tls".into(),
            cert: cert.into(),
            key: key.into(),
            is_self_managed: false,
        }))
    }

    #[test]
    fn options_take_both_forms_and_keys_other_names() {
        let pod = |args: Value, items: Value| {
            json!({
                "containers": [
                    {"name": "proxy", "args": ["--verbose"]},
                    {"name": "edgeward", "args": args, "volumeMounts": [{"name": "tls", "mountPath": "/tls/"}]},
                ],
                "volumes": [{"name": "tls", "secret": {"secretName": "edgeward-tls", "items": items}}],
            })
        };
        let args = json!(["serve", "--tls-cert", "/tls/a.pem", "--tls-key=/tls/b.pem"]);
        let items = json!([{"key": "chain", "path": "a.pem"}, {"key": "private", "path": "b.pem"}]);
        assert_eq!(found(pod(args.clone(), items)), secret("chain", "private"));
        assert_eq!(found(pod(args, json!([]))), secret("a.pem", "b.pem"));
        let found = |args: Value| found(pod(args, json!([])));
        for (args, name) in [
            (json!(["serve", "--self-managed", "--listen=[::]:8443"]), SELF_MANAGED),
            (json!(["serve", "--self-managed=mine"]), "mine"),
        ] {
            let secret = found(args).unwrap().unwrap();
            assert!(secret.name == name && secret.is_self_managed, "{secret:?}");
        }
        assert_eq!(found(json!(["serve", "--self-signed=/tmp"])), Ok(None));
    }

    #[test]
    fn what_is_not_understood_is_said() {
        let found = |args: Value, mount: Value| {
            found(json!({
                "containers": [{"name": "edgeward", "args": args, "volumeMounts": [mount]}],
                "volumes": [
                    {"name": "tls", "secret": {"secretName": "edgeward-tls"}},
                    {"name": "projected", "projected": {"sources": [{"secret": {"name": "edgeward-tls"}}]}},
                ],
            }))
        };
        let args = json!(["serve", "--tls-cert=/tls/a.pem", "--tls-key=/tls/b.pem"]);
        assert!(found(args.clone(), json!({"name": "tls", "mountPath": "/tls"})).is_ok());
        for mount in [
            json!({"name": "tls", "mountPath": "/"}),
            json!({"name": "tls", "mountPath": "/tls/a.pem", "subPath": "a.pem"}),
            json!({"name": "tls", "mountPath": "/tls", "subPath": "dir"}),
            json!({"name": "projected", "mountPath": "/tls"}),
        ] {
            let why = found(args.clone(), mount.clone()).unwrap_err();
            assert!(why.starts_with("--tls-cert is in no Secret"), "{mount}: {why}");
        }
        let mount = json!({"name": "tls", "mountPath": "/tls"});
        let elsewhere = json!(["serve", "--tls-cert=/tls/a.pem", "--tls-key=/etc/b.pem"]);
        assert!(
            found(elsewhere, mount.clone())
                .unwrap_err()
                .starts_with("--tls-key is in no")
        );
        assert!(
            found(json!(["serve"]), mount)
                .unwrap_err()
                .starts_with("no container has")
        );
    }
}
