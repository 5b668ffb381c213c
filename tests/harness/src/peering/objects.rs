//! What `liqoctl` and Liqo's chart would make, as objects.

use serde_json::{Value, json};

use crate::control_plane::VIRTUAL_NODE;

pub const REMOTE: &str = "liqo.io/remote-cluster-id";

/// By which name the others know the cluster where the pods are created.
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

const OFFLOADING: &str = "offloading.liqo.io";
const AUTHENTICATION: &str = "authentication.liqo.io";
const TAINT: &str = "virtual-node.liqo.io/not-allowed";

fn namespace(name: &str, labels: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn tenant(id: &str) -> (String, Value) {
    let name = format!("{LIQO}-tenant-{id}");
    let labels = json!({REMOTE: id, "liqo.io/tenant-namespace": "true"});
    (name.clone(), namespace(&name, labels))
}

pub(super) fn provider() -> [Value; 4] {
    let (at, tenant) = tenant(CONSUMER);
    let metadata = |name: &str| json!({"name": name, "namespace": at, "labels": {REMOTE: CONSUMER}});
    [
        namespace(LIQO, json!({})),
        tenant,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata("liqo-binding-liqo-remote-controlplane"),
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "liqo-remote-controlplane",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": CONTROL_PLANE}],
        }),
        json!({
            "apiVersion": format!("{AUTHENTICATION}/v1beta1"),
            "kind": "Tenant",
            "metadata": metadata(CONSUMER),
            "spec": {"clusterID": CONSUMER, "authzPolicy": "TolerateNoHandshake", "tenantCondition": "Active"},
        }),
    ]
}

/// In the consumer, before it is peered. Of the Deployment of a virtual kubelet no pod is made: its arguments are those of a process.
pub(super) fn consumer() -> [Value; 3] {
    [
        namespace(LIQO, json!({})),
        json!({
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": LIQO},
            "handler": LIQO,
            "scheduling": {
                "nodeSelector": {VIRTUAL_NODE: "virtual-node"},
                "tolerations": [{"key": TAINT, "operator": "Exists", "effect": "NoExecute"}],
            },
        }),
        json!({
            "apiVersion": format!("{OFFLOADING}/v1beta1"),
            "kind": "VkOptionsTemplate",
            "metadata": {"name": TEMPLATE, "namespace": LIQO},
            "spec": {
                "createNode": true,
                "disableNetworkCheck": true,
                "containerImage": "none",
                "metricsEnabled": false,
                "replicas": 0,
                "extraArgs": ["--certificate-type=self-signed", "--disable-ip-reflection=true"],
            },
        }),
    ]
}

/// In the consumer: the namespace of this provider's tenancy, and the identity that its control plane has there.
pub(super) fn tenant_namespace(provider: &str, kubeconfig: &str) -> [Value; 2] {
    let (at, tenant) = tenant(provider);
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": format!("kubeconfig-controlplane-{provider}"),
            "namespace": at,
            "labels": {"liqo.io/identity-type": "ControlPlane", REMOTE: provider},
            "annotations": {"liqo.io/remote-tenant-namespace": format!("{LIQO}-tenant-{}", CONSUMER)},
        },
        "stringData": {"kubeconfig": kubeconfig},
    });
    [tenant, secret]
}

/// Asks a provider for so many cores, of which a virtual node of this name is made.
pub(super) fn resource_slice(provider: &str, name: &str, cores: u32) -> Value {
    json!({
        "apiVersion": format!("{AUTHENTICATION}/v1beta1"),
        "kind": "ResourceSlice",
        "metadata": {
            "name": name,
            "namespace": format!("{LIQO}-tenant-{provider}"),
            "annotations": {"liqo.io/create-virtual-node": "true"},
            "labels": {REMOTE: provider, "liqo.io/remoteID": provider, "liqo.io/replication": "true"},
        },
        "spec": {
            "class": "default",
            "providerClusterID": provider,
            "resources": {"cpu": cores.to_string(), "memory": "256Gi", "pods": "500"},
        },
    })
}

pub(super) fn offloading(namespace: &str, strategy: Strategy) -> Value {
    json!({
        "apiVersion": format!("{OFFLOADING}/v1beta1"),
        "kind": "NamespaceOffloading",
        "metadata": {"name": "offloading", "namespace": namespace},
        "spec": {
            "podOffloadingStrategy": format!("{strategy:?}"),
            "namespaceMappingStrategy": "DefaultName",
            "clusterSelector": {"nodeSelectorTerms": []},
        },
    })
}

/// Those of the chart, for a server on this port of loopback. Without Liqo's label on them, by which it would write the CA of a
/// Service of its own.
pub(super) fn webhooks(port: u16, ca: &str) -> [Value; 2] {
    const CHANGES: [&str; 2] = ["CREATE", "UPDATE"];
    const ALL: [&str; 3] = ["CREATE", "UPDATE", "DELETE"];
    let hook = |name: &str, path: &str, group: &str, resource: &str, operations: &[&str]| {
        let version = if group.is_empty() { "v1" } else { "v1beta1" };
        json!({
            "name": format!("{name}.liqo.io"),
            "admissionReviewVersions": ["v1", "v1beta1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": ca},
            "rules": [{
                "operations": operations,
                "apiGroups": [group],
                "apiVersions": [version],
                "resources": [resource],
            }],
        })
    };
    let mut pods = hook("pod.mutate", "/mutate/pod", "", "pods", &CHANGES[..1]);
    pods["namespaceSelector"] = json!({"matchLabels": {"liqo.io/scheduling-enabled": "true"}});
    let tenants = |path: &str| hook("tenant.validate", path, AUTHENTICATION, "tenants", &CHANGES);
    let configuration = |kind: &str, hooks: Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}WebhookConfiguration"),
            "metadata": {"name": "liqo-webhook"},
            "webhooks": hooks,
        })
    };
    let mutating = json!([
        pods,
        hook("shadowpod.mutate", "/mutate/shadowpods", OFFLOADING, "shadowpods", &ALL),
        hook(
            "fc.mutate",
            "/mutate/foreign-cluster",
            "core.liqo.io",
            "foreignclusters",
            &CHANGES
        ),
        hook(
            "virtualnode.mutate",
            "/mutate/virtualnodes",
            OFFLOADING,
            "virtualnodes",
            &CHANGES
        ),
        tenants("/mutate/tenants"),
    ]);
    let validating = json!([
        hook(
            "nsoff.validate",
            "/validate/namespace-offloading",
            OFFLOADING,
            "namespaceoffloadings",
            &CHANGES
        ),
        hook(
            "shadowpod.validate",
            "/validate/shadowpods",
            OFFLOADING,
            "shadowpods",
            &ALL
        ),
        hook(
            "resourceslice.validate",
            "/validate/resourceslices",
            AUTHENTICATION,
            "resourceslices",
            &CHANGES
        ),
        tenants("/validate/tenants"),
    ]);
    [
        configuration("Mutating", mutating),
        configuration("Validating", validating),
    ]
}
