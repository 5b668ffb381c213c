//! The Deployment that runs edgeward, and what its replicas are started with.

use anyhow::Context as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::inspect::Connection;
use crate::sources::namespaced_name::NamespacedName;

impl Connection {
    /// The ConfigMap that the newest replicas of this Deployment read.
    ///
    /// # Errors
    /// The Deployment cannot be read, or names none.
    pub async fn configured(&self, deployment: &NamespacedName) -> anyhow::Result<NamespacedName> {
        let found = self.get::<Deployment>(&deployment.namespace, &deployment.name).await?;
        let found = found.with_context(|| format!("Deployment {deployment} does not exist"))?;
        let pod = found.spec.and_then(|spec| spec.template.spec);
        let map = pod.as_ref().and_then(config_map);
        let map = map.with_context(|| format!("Deployment {deployment} names no ConfigMap"))?;
        Ok(NamespacedName::parse(map, &deployment.namespace))
    }
}

/// `[NAMESPACE/]NAME` of the ConfigMap that a pod's `serve` reads.
fn config_map(pod: &PodSpec) -> Option<&str> {
    pod.containers
        .iter()
        .find_map(|container| option(container, "--config-map")?)
}

/// An option on a container's command line, with its value behind a `=` or in the next word.
pub(super) fn option<'c>(container: &'c Container, name: &str) -> Option<Option<&'c str>> {
    let mut words = [&container.command, &container.args].into_iter().flatten().flatten();
    let inline = words.find_map(|word| {
        let rest = word.strip_prefix(name)?;
        let inline = rest.strip_prefix('=');
        (rest.is_empty() || inline.is_some()).then_some(inline)
    })?;
    Some(inline.or_else(|| words.next().map(String::as_str)))
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
