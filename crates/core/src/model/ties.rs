//! What ties a pod to the cluster it is created in.

use crate::words;

words! {
    /// Something a pod uses that exists only in the cluster it is created in.
    #[repr(u8)]
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

/// A set of [`Tie`]s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ties(u8);

impl Ties {
    /// Adds `tie`.
    pub fn insert(&mut self, tie: Tie) {
        self.0 |= 1 << tie as u8;
    }

    /// Those that `supported` does not contain.
    pub fn beyond(self, supported: Ties) -> Ties {
        Ties(self.0 & !supported.0)
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The ties in the set.
    pub fn iter(self) -> impl Iterator<Item = Tie> {
        Tie::ALL.into_iter().filter(move |&tie| self.0 & (1 << tie as u8) != 0)
    }
}

impl FromIterator<Tie> for Ties {
    fn from_iter<I: IntoIterator<Item = Tie>>(ties: I) -> Self {
        let mut set = Ties::default();
        ties.into_iter().for_each(|tie| set.insert(tie));
        set
    }
}
