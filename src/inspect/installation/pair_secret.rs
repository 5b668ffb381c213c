//! The Secret that replicas read their certificate from, found by the way they are started.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec, Secret, Service, VolumeMount};
use kube::Api;
use kube::api::ListParams;

use super::deployment::option;
use crate::inspect::Connection;

/// The Secret that `--self-managed` is without a name.
pub const SELF_MANAGED: &str = "edgeward-certificates";

/// The Secret that is mounted where `--tls-cert` and `--tls-key` lead, or that of `--self-managed`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PairSecret {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its key for the certificate.
    pub cert: String,
    /// Its key for the private key.
    pub key: String,
    /// edgeward keeps it, and the authority in `caBundle`.
    pub is_self_managed: bool,
}

impl Connection {
    /// The Secrets that pods behind a Service serve from, by the Deployments that make such pods. None of those that have
    /// `--self-signed`.
    ///
    /// # Errors
    /// The Service cannot be read, Deployments not listed, or one has its certificate from where this cannot follow.
    pub async fn pair_secrets(&self, namespace: &str, service: &str) -> anyhow::Result<BTreeSet<PairSecret>> {
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
        let found = list.items.into_iter().filter_map(|deployment| {
            let template = deployment.spec?.template;
            let labels = template.metadata?.labels?;
            let is_behind = selector.iter().all(|(key, value)| labels.get(key) == Some(value));
            let name = deployment.metadata.name.unwrap_or_default();
            let found = is_behind
                .then(|| find(namespace, &template.spec?).transpose())
                .flatten()?;
            Some(found.with_context(|| format!("deployment {namespace}/{name}")))
        });
        found.collect()
    }

    /// What such a Secret holds, by key; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn contents(&self, secret: &PairSecret) -> anyhow::Result<Option<BTreeMap<String, Vec<u8>>>> {
        let PairSecret { namespace, name, .. } = secret;
        let secrets = Api::<Secret>::namespaced(self.client.clone(), namespace);
        let found = secrets.get_opt(name).await;
        let found = found.map_err(|error| self.failure(&format!("cannot get the Secret {namespace}/{name}"), error))?;
        Ok(found.map(|found| {
            let data = found.data.into_iter().flatten();
            data.map(|(key, value)| (key, value.0)).collect()
        }))
    }
}

/// The Secret that a pod's `serve` reads certificate and key from.
fn find(namespace: &str, pod: &PodSpec) -> anyhow::Result<Option<PairSecret>> {
    let all = |name| {
        pod.containers
            .iter()
            .filter_map(move |container| option(container, name))
    };
    if let Some((name, _)) = all("--self-managed").next() {
        return Ok(Some(PairSecret {
            namespace: namespace.to_owned(),
            name: name.unwrap_or(SELF_MANAGED).to_owned(),
            cert: "tls.crt".to_owned(),
            key: "tls.key".to_owned(),
            is_self_managed: true,
        }));
    }
    if all("--self-signed").next().is_some() {
        return Ok(None);
    }
    let with_option = |container: &&Container| option(container, "--tls-cert").is_some();
    let Some(container) = pod.containers.iter().find(with_option) else {
        bail!("no container has --tls-cert, --self-managed or --self-signed among its arguments");
    };
    let at = |option_name: &str| {
        let (inline, next) = option(container, option_name)?;
        let path = inline.or(next)?;
        let (directory, file) = (Path::new(path).parent()?, Path::new(path).file_name()?.to_str()?);
        let mut mounts = container.volume_mounts.iter().flatten();
        let is_whole = |mount: &VolumeMount| mount.sub_path.is_none() && mount.sub_path_expr.is_none();
        let mount = mounts.find(|mount| Path::new(&mount.mount_path) == directory && is_whole(mount))?;
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
    let elsewhere = |option_name| format!("{option_name} is in no directory where a whole Secret is mounted");
    let (name, cert) = at("--tls-cert").with_context(|| elsewhere("--tls-cert"))?;
    let (other, key) = at("--tls-key").with_context(|| elsewhere("--tls-key"))?;
    ensure!(name == other, "--tls-cert and --tls-key are of two Secrets");
    Ok(Some(PairSecret {
        namespace: namespace.to_owned(),
        name,
        cert,
        key,
        is_self_managed: false,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
            assert!(why.starts_with("--tls-cert is in no directory"), "{mount}: {why}");
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
