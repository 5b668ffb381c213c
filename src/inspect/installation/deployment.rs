//! The Deployment that runs edgeward, and what its replicas are started with.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};
use kube::Api;

use crate::inspect::Connection;
use crate::sources::namespaced_name::NamespacedName;

/// From where replicas have their configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Configured {
    /// There is no such Deployment.
    NotDeployed,
    /// Its containers have no `--config-map`.
    Otherwise,
    /// From this ConfigMap.
    By(NamespacedName),
}

impl Connection {
    /// The ConfigMap that the newest replicas of this Deployment read.
    ///
    /// # Errors
    /// The Deployment cannot be read.
    pub async fn configured(&self, deployment: &NamespacedName) -> anyhow::Result<Configured> {
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), &deployment.namespace);
        let found = deployments.get_opt(&deployment.name).await;
        let found = found.map_err(|error| self.failure(&format!("cannot get the Deployment {deployment}"), error))?;
        let Some(found) = found else {
            return Ok(Configured::NotDeployed);
        };
        let pod = found.spec.and_then(|spec| spec.template.spec);
        let map = pod.as_ref().and_then(config_map);
        Ok(map.map_or(Configured::Otherwise, |map| {
            Configured::By(NamespacedName::parse(map, &deployment.namespace))
        }))
    }
}

/// `[NAMESPACE/]NAME` of the ConfigMap that a pod's `serve` reads.
fn config_map(pod: &PodSpec) -> Option<&str> {
    pod.containers.iter().find_map(|container| {
        let (inline, next) = option(container, "--config-map")?;
        inline.or(next)
    })
}

/// An option on a container's command line: its value behind a `=`, and the word after it.
pub(super) fn option<'c>(container: &'c Container, name: &str) -> Option<(Option<&'c str>, Option<&'c str>)> {
    let words = [&container.command, &container.args].into_iter().flatten().flatten();
    let words: Vec<_> = words.map(String::as_str).collect();
    let found = words.iter().enumerate().find_map(|(at, word)| {
        let rest = word.strip_prefix(name)?;
        let inline = rest.strip_prefix('=');
        (rest.is_empty() || inline.is_some()).then_some((at, inline))
    });
    found.map(|(at, inline)| (inline, words.get(at + 1).copied()))
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

    #[test]
    fn that_of_the_manifests_is_found() {
        let manifest: Value = serde_saphyr::from_str(include_str!("../../../deploy/base/deployment.yaml")).unwrap();
        let args = &manifest["spec"]["template"]["spec"]["containers"][0]["args"];
        assert_eq!(named(args).as_deref(), Some("edgeward-config"));
    }
}
