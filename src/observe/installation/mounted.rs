//! The Secret that replicas read their certificate from, found by the way they are started.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec, Secret, Service};
use kube::Api;
use kube::api::ListParams;

use crate::observe::connection::Connection;

/// A Secret that is mounted where `--tls-cert` and `--tls-key` lead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mounted {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its key for the certificate.
    pub cert: String,
    /// Its key for the private key.
    pub key: String,
}

/// What such a Secret holds, in PEM; empty where it has no such key.
pub struct PairSecret {
    /// The certificate, leaf first.
    pub cert: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
}

impl Connection {
    /// The Secrets that pods behind a Service serve from, by the Deployments that make such pods. None, where these have
    /// their certificate from elsewhere.
    ///
    /// # Errors
    /// The Service cannot be read, or Deployments not listed.
    pub async fn mounted(&self, namespace: &str, service: &str) -> anyhow::Result<BTreeSet<Mounted>> {
        let services = Api::<Service>::namespaced(self.client.clone(), namespace);
        let found = services.get_opt(service).await;
        let found =
            found.map_err(|error| self.failure(&format!("cannot see the Service {namespace}/{service}"), error))?;
        let selector = found.and_then(|found| found.spec?.selector).unwrap_or_default();
        if selector.is_empty() {
            return Ok(BTreeSet::new());
        }
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), namespace);
        let list = deployments.list(&ListParams::default()).await;
        let list = list.map_err(|error| self.failure(&format!("cannot list deployments of {namespace}"), error))?;
        let mounted = list.items.into_iter().filter_map(|deployment| {
            let template = deployment.spec?.template;
            let labels = template.metadata?.labels?;
            let is_behind = selector.iter().all(|(key, value)| labels.get(key) == Some(value));
            is_behind.then(|| find(namespace, &template.spec?)).flatten()
        });
        Ok(mounted.collect())
    }

    /// What a mounted Secret holds; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn pair(&self, mounted: &Mounted) -> anyhow::Result<Option<PairSecret>> {
        let Mounted { namespace, name, .. } = mounted;
        let secrets = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let found = secrets.get_opt(name).await;
        let found = found.map_err(|error| self.failure(&format!("cannot get the Secret {namespace}/{name}"), error))?;
        Ok(found.map(|found| {
            let mut data = found.data.unwrap_or_default();
            let mut take = |key: &str| data.remove(key).map(|bytes| bytes.0).unwrap_or_default();
            PairSecret {
                cert: take(&mounted.cert),
                key: take(&mounted.key),
            }
        }))
    }
}

/// The Secret that a pod mounts where its `serve` reads certificate and key.
fn find(namespace: &str, pod: &PodSpec) -> Option<Mounted> {
    let container = pod
        .containers
        .iter()
        .find(|container| option(container, "--tls-cert").is_some())?;
    let at = |option_name: &str| {
        let path = option(container, option_name)?;
        let (directory, file) = (Path::new(path).parent()?, Path::new(path).file_name()?.to_str()?);
        let mut mounts = container.volume_mounts.iter().flatten();
        let mount = mounts.find(|mount| Path::new(&mount.mount_path) == directory)?;
        let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
        let secret = volume.secret.as_ref()?;
        // Keys may be mounted under other names.
        let items: BTreeMap<_, _> = secret
            .items
            .iter()
            .flatten()
            .map(|item| (&*item.path, &*item.key))
            .collect();
        let key = items.get(file).copied().unwrap_or(file);
        Some((secret.secret_name.clone()?, key.to_owned()))
    };
    let ((name, cert), (other, key)) = (at("--tls-cert")?, at("--tls-key")?);
    (name == other).then(|| Mounted {
        namespace: namespace.to_owned(),
        name,
        cert,
        key,
    })
}

/// The value of an option on a container's command line, in either of its forms.
fn option<'c>(container: &'c Container, name: &str) -> Option<&'c str> {
    let words = container
        .command
        .iter()
        .flatten()
        .chain(container.args.iter().flatten());
    let mut words = words.map(String::as_str);
    while let Some(word) = words.next() {
        match word.strip_prefix(name) {
            Some("") => return words.next(),
            Some(rest) if rest.starts_with('=') => return rest.strip_prefix('='),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn found(pod: Value) -> Option<Mounted> {
        find("edgeward-system", &serde_json::from_value(pod).unwrap())
    }

    fn secret(cert: &str, key: &str) -> Option<Mounted> {
        Some(Mounted {
            namespace: "edgeward-system".into(),
            name: "edgeward-tls".into(),
            cert: cert.into(),
            key: key.into(),
        })
    }

    #[test]
    fn the_secret_of_the_manifests_is_found() {
        let manifest = include_str!("../../../deploy/base/deployment.yaml");
        let manifest: Value = serde_saphyr::from_str(manifest).unwrap();
        let pod = &manifest["spec"]["template"]["spec"];
        assert_eq!(found(pod.clone()), secret("tls.crt", "tls.key"));
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
        // From no file, or from one that no Secret brings.
        assert_eq!(found(pod(json!(["serve", "--self-signed"]), json!([]))), None);
        let elsewhere = json!(["serve", "--tls-cert=/etc/a.pem", "--tls-key=/etc/b.pem"]);
        assert_eq!(found(pod(elsewhere, json!([]))), None);
    }
}
