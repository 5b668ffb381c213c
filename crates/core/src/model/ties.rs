//! What ties a pod to the cluster it is created in, and what of it stays there.

use std::marker::PhantomData;

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

words! {
    /// A field of a pod that Liqo does not take along to the other cluster, though the pod runs there without.
    #[repr(u8)]
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

/// A word that has a place in a [`Set`].
pub trait Member: Copy + 'static {
    /// All of them, at most eight.
    const MEMBERS: &'static [Self];
    /// Its place among them.
    fn place(self) -> u8;
}

impl Member for Tie {
    const MEMBERS: &'static [Self] = &Self::ALL;
    fn place(self) -> u8 {
        self as u8
    }
}

impl Member for Leftover {
    const MEMBERS: &'static [Self] = &Self::ALL;
    fn place(self) -> u8 {
        self as u8
    }
}

/// A set of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Set<T>(u8, PhantomData<T>);

/// A set of [`Tie`]s.
pub type Ties = Set<Tie>;

/// A set of [`Leftover`]s.
pub type LeftBehind = Set<Leftover>;

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self(0, PhantomData)
    }
}

impl<T: Member> Set<T> {
    /// Adds `member`.
    pub fn insert(&mut self, member: T) {
        self.0 |= 1 << member.place();
    }

    /// Those that `others` does not contain.
    pub fn beyond(self, others: Self) -> Self {
        Self(self.0 & !others.0, PhantomData)
    }

    /// Whether it contains `member`.
    pub fn contains(self, member: T) -> bool {
        self.0 & (1 << member.place()) != 0
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members of the set.
    pub fn iter(self) -> impl Iterator<Item = T> {
        let members = T::MEMBERS.iter().copied();
        members.filter(move |&member| self.contains(member))
    }
}

impl<T: Member> FromIterator<T> for Set<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        let mut set = Self::default();
        members.into_iter().for_each(|member| set.insert(member));
        set
    }
}
