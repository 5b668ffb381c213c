//! What ties a pod to the cluster where it is created, and which of its fields Liqo leaves behind.

use std::collections::BTreeSet;

use crate::words;

words! {
    /// Something a pod uses that exists only in the cluster where it is created.
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
    /// A field of a pod that Liqo does not transfer to the other cluster. The pod runs there without it.
    pub enum Leftover {
        /// Affinity to other pods.
        PodAffinity = "podAffinity",
        /// Anti-affinity to other pods.
        PodAntiAffinity = "podAntiAffinity",
        /// A scheduler other than the default one.
        SchedulerName = "schedulerName",
        /// A service account token that the pod requests.
        ServiceAccountToken = "serviceAccountToken",
    }
}

impl Tie {
    /// Ties that Liqo disables or drops. A pod that needs one cannot run at a Liqo site, whatever the operator
    /// declares.
    pub const LOST_BY_LIQO: [Tie; 4] = [Tie::HostNetwork, Tie::HostPid, Tie::HostIpc, Tie::ResourceClaims];
}

/// A set of [`Tie`]s.
pub type Ties = BTreeSet<Tie>;
