//! What ties a pod to the cluster it is created in.

/// Something a pod uses that exists only in the cluster it is created in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Tie {
    /// A PersistentVolumeClaim, or an ephemeral volume that becomes one.
    PersistentVolumeClaim,
    /// A hostPath volume.
    HostPath,
    /// The host's network namespace.
    HostNetwork,
    /// The host's process namespace.
    HostPid,
    /// The host's IPC namespace.
    HostIpc,
    /// A port of the host.
    HostPort,
    /// Dynamic resource claims.
    ResourceClaims,
}

impl Tie {
    /// Every tie.
    pub const ALL: [Tie; 7] = [
        Tie::PersistentVolumeClaim,
        Tie::HostPath,
        Tie::HostNetwork,
        Tie::HostPid,
        Tie::HostIpc,
        Tie::HostPort,
        Tie::ResourceClaims,
    ];

    /// The name used in files and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Tie::PersistentVolumeClaim => "persistentVolumeClaim",
            Tie::HostPath => "hostPath",
            Tie::HostNetwork => "hostNetwork",
            Tie::HostPid => "hostPID",
            Tie::HostIpc => "hostIPC",
            Tie::HostPort => "hostPort",
            Tie::ResourceClaims => "resourceClaims",
        }
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
