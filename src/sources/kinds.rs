//! Kinds of objects that are read as their JSON, by group, version and plural: Liqo's, and one of a newer Kubernetes.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::ClusterResourceScope;
use kube::core::NamespaceResourceScope;

/// Declares a kind that is only ever read as its JSON.
macro_rules! kinds {
    ($($(#[$meta:meta])* $name:ident: $group:literal, $version:literal, $plural:literal, $scope:ty;)+) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone)]
            pub(crate) struct $name(ObjectMeta);

            impl Resource for $name {
                type DynamicType = ();
                type Scope = $scope;

                fn kind((): &()) -> Cow<'_, str> {
                    stringify!($name).into()
                }

                fn group((): &()) -> Cow<'_, str> {
                    $group.into()
                }

                fn version((): &()) -> Cow<'_, str> {
                    $version.into()
                }

                fn plural((): &()) -> Cow<'_, str> {
                    $plural.into()
                }

                fn meta(&self) -> &ObjectMeta {
                    &self.0
                }

                fn meta_mut(&mut self) -> &mut ObjectMeta {
                    &mut self.0
                }
            }
        )+
    };
}

kinds! {
    /// A remote cluster.
    ForeignCluster: "core.liqo.io", "v1beta1", "foreignclusters", ClusterResourceScope;
    /// A virtual node.
    VirtualNode: "offloading.liqo.io", "v1beta1", "virtualnodes", NamespaceResourceScope;
    /// The offloading of a namespace.
    NamespaceOffloading: "offloading.liqo.io", "v1beta1", "namespaceoffloadings", NamespaceResourceScope;
    /// The namespaces that are offloaded to a cluster.
    NamespaceMap: "offloading.liqo.io", "v1beta1", "namespacemaps", NamespaceResourceScope;
    /// The network between two clusters.
    Connection: "networking.liqo.io", "v1beta1", "connections", NamespaceResourceScope;
    /// A class of devices, which may serve an extended resource.
    DeviceClass: "resource.k8s.io", "v1", "deviceclasses", ClusterResourceScope;
}
