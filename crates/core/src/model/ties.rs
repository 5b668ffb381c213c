//! What ties a pod to the cluster it is created in, and what of it stays there.

use std::collections::BTreeSet;

use crate::words;

words! {
    /// Something a pod uses that exists only in the cluster it is created in.
    pub enum Tie {
        /// A PersistentVolumeClaim, or an ephemeral volume that becomes one.
        PersistentVolumeClaim = "persistentVolumeClaim",
        /// A hostPath volume.
        HostPath = "hostPath",
        /// The host's network namespace.
        HostNetwork = "hostNetwork",
        /// The host's process namespace.
        HostPid = "hostPID",
        /// The host's IPC namespace.
        HostIpc = "hostIPC",
        /// A port of the host.
        HostPort = "hostPort",
        /// Dynamic resource claims.
        ResourceClaims = "resourceClaims",
    }
}

words! {
    /// A field of a pod that Liqo does not take along to the other cluster, though the pod runs there without.
    pub enum Leftover {
        /// Affinity to other pods.
        PodAffinity = "podAffinity",
        /// Anti-affinity to other pods.
        PodAntiAffinity = "podAntiAffinity",
        /// A scheduler other than the default one.
        SchedulerName = "schedulerName",
        /// A token of its service account that it asks for.
        ServiceAccountToken = "serviceAccountToken",
    }
}

impl Tie {
    /// What Liqo forces off, or leaves out: no word of an operator makes a pod that needs it run there.
    pub const LOST_BY_LIQO: [Tie; 4] = [Tie::HostNetwork, Tie::HostPid, Tie::HostIpc, Tie::ResourceClaims];
}

/// A set of [`Tie`]s.
pub type Ties = BTreeSet<Tie>;
