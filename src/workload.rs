//! What is asked: one pod as a decision sees it.

pub mod constraints;
pub mod slo;

use std::borrow::Cow;

use crate::ledger::DecisionId;
use crate::resources::Amounts;
use constraints::{NodeConstraints, Toleration};
use slo::{Intent, Management};

/// A pod, reduced to what a decision reads. Borrows from the pod's JSON.
#[derive(Debug, Clone)]
pub struct Workload<'a> {
    /// Namespace of the request.
    pub namespace: Cow<'a, str>,
    /// Effective request, as kube-scheduler computes it.
    pub request: Amounts,
    /// The pod's own nodeSelector and required node affinity.
    pub constraints: NodeConstraints<'a>,
    /// The pod's own tolerations.
    pub tolerations: Vec<Toleration<'a>>,
    /// What ties the pod to the cluster it is created in.
    pub ties: Ties,
    /// `spec.priority`, 0 when absent.
    pub priority: i32,
    /// Whether kube-scheduler may evict pods of lower priority for it (`preemptionPolicy` is not `Never`).
    pub may_preempt: bool,
    /// Opt-in and opt-out of this pod.
    pub management: Management,
    /// The SLO and its faults; `None` for a pod that states none and is not forced to.
    pub intent: Option<Intent>,
    /// `spec.nodeName` is set.
    pub bound: bool,
    /// Mirror of a static pod.
    pub mirror: bool,
    /// Uid of its controller.
    pub controller: Option<Cow<'a, str>>,
    /// Controlled by a DaemonSet.
    pub daemonset: bool,
    /// Created by Liqo on behalf of another cluster.
    pub shadow: bool,
    /// Names of its scheduling gates.
    pub gates: Vec<Cow<'a, str>>,
    /// The placement of ours it already carries, if it carries all of one.
    pub placement: Option<PlacementClaim<'a>>,
}

/// The annotations of a complete placement of ours. Anybody can write them: a claim counts only together with
/// the spec of the site it names (DESIGN 4.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementClaim<'a> {
    /// `edge` or `cloud`, as found.
    pub decision: Cow<'a, str>,
    /// Site name, as found.
    pub site: Cow<'a, str>,
    /// Its id; `None` where what stands there is not one that we write.
    pub id: Option<DecisionId>,
    /// When it was written.
    pub at: jiff::Timestamp,
}

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
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
