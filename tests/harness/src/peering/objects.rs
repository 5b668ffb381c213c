//! Objects that `liqoctl` and Liqo's chart would create.

use crate::prelude::*;

pub const REMOTE: &str = "liqo.io/remote-cluster-id";

/// The name of the cluster where pods are created, as the other clusters know it.
pub(super) const CONSUMER: &str = "edge";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    Local,
    LocalAndRemote,
    Remote,
}

pub(super) const LIQO: &str = "liqo";

pub(super) const TEMPLATE: &str = "virtual-kubelet-default";

pub(super) const CONTROL_PLANE: &str = "edge-controlplane";

pub(super) const ROLES_THERE: [&str; 3] = [
    "remote-controlplane",
    "virtual-kubelet-remote",
    "virtual-kubelet-remote-clusterwide",
];

/// A part of `objects.yaml`, with values in the place of its `$NAMES`.
pub(super) fn objects(part: &str, values: &[(&str, &str)]) -> Result<Vec<Value>> {
    let mut text = include_str!("objects.yaml").to_owned();
    for (name, value) in values {
        text = text.replace(name, value);
    }
    let mut parts: Value = serde_saphyr::from_str(&text)?;
    serde_json::from_value(parts[part].take()).with_context(|| part.to_owned())
}

/// The configurations of Liqo's webhooks, for a server on this port of loopback with this CA.
pub(super) fn webhooks(port: u16, ca: &str) -> Result<[Value; 2]> {
    let configuration = |kind: &str, part: &str| {
        let hooks: Vec<(String, String, String, String, Vec<String>)> =
            serde_json::from_value(objects(part, &[])?.into())?;
        let hooks = hooks.into_iter().map(|(name, path, group, resource, operations)| {
            let (version, selector) = match &*group {
                "" => ("v1", json!({"matchLabels": {"liqo.io/scheduling-enabled": "true"}})),
                _ => ("v1beta1", json!({})),
            };
            let rule = json!({
                "operations": operations, "apiGroups": [group], "apiVersions": [version], "resources": [resource],
            });
            json!({
                "name": format!("{name}.liqo.io"),
                "admissionReviewVersions": ["v1", "v1beta1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {"url": format!("https://127.0.0.1:{port}/{path}"), "caBundle": ca},
                "rules": [rule],
                "namespaceSelector": selector,
            })
        });
        anyhow::Ok(json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}WebhookConfiguration"),
            "metadata": {"name": "liqo-webhook"},
            "webhooks": hooks.collect::<Value>(),
        }))
    };
    Ok([
        configuration("Mutating", "mutating")?,
        configuration("Validating", "validating")?,
    ])
}
