//! A pod that exists, reduced to what its consumers keep of it.

mod member;
mod read;
mod refusal;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use jiff::Timestamp;

use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::group::Membership;
use edgeward_decision::model::remote_room::Start;
use edgeward_decision::model::slo::{Class, Slo, SloFault};
use edgeward_decision::model::workload::Workload;
use edgeward_kube::constraints::{NodeConstraints, Toleration};
use edgeward_kube::pod::JobRun;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::Micros;

pub use member::{Member, member};
pub use read::{read_record, record};

/// A pod that exists, reduced to what charges and queues need. [`record`] reads it.
#[derive(Debug, Clone)]
pub struct PodRecord {
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// Namespace.
    pub namespace: Box<str>,
    /// Uid of the controller, followed by its revision if it has one.
    pub controller: Option<Box<str>>,
    /// Labels, as `key=value,key=value`. Empty if that is too long.
    pub labels: Box<str>,
    /// Creation time, to the second.
    pub created: Option<jiff::Timestamp>,
    /// `spec.schedulerName`. `None` if it is not a valid scheduler name.
    pub scheduler: Option<Box<str>>,
    /// `spec.nodeName`.
    pub node: Option<Box<str>>,
    /// `status.nominatedNodeName`.
    pub nominated: Option<Box<str>>,
    /// Resources that the pod takes from its node, including a resize in place.
    pub request: Amounts,
    /// `spec.priority`.
    pub priority: i32,
    /// Whether kube-scheduler may evict pods of lower priority for this pod (`preemptionPolicy` is not `Never`).
    pub may_preempt: bool,
    /// `spec.terminationGracePeriodSeconds` of a pod without an SLO. Such a pod may be a placeholder.
    pub placeholder_grace: Option<Micros>,
    /// The pod's group, if it has one.
    pub membership: Option<Arc<Membership>>,
    /// Whether the pod's controller spreads its pods over sites.
    pub spreads: bool,
    /// Class and SLO priority, if the pod states a class.
    pub slo: Option<(Class, u8)>,
    /// Phase of the pod's life.
    pub phase: Phase,
    /// Whether the pod has failed.
    pub failed: bool,
    /// Run time of a succeeded pod of a Job: that of the container that ran longest, in whole seconds as Kubernetes
    /// writes them. Start and end are both truncated, so the mean over many pods is right. The time does not include
    /// waiting for a node, image pulls, init containers, or earlier runs of a restarted container.
    pub job_run: Option<JobRun>,
    /// Set if the pod is being deleted. The inner value is its deletion timestamp, to the second, if it can be parsed.
    pub terminating: Option<Option<jiff::Timestamp>>,
    /// Whether a scheduling gate keeps the pod from kube-scheduler.
    pub gated: bool,
    /// Whether the pod has started on its node.
    pub start: Start,
    /// Set if kube-scheduler found no node for the pod. The number differs when the message differs.
    pub unschedulable: Option<u64>,
    /// Id of the decision that the pod carries.
    pub decision: Option<Box<str>>,
    /// The annotations of that decision, for Events.
    pub decided: Option<Box<Decided>>,
    /// Where the pod may run. Kept while the pod has no node.
    pub placement: Option<Arc<Placement>>,
    /// The pod as the waitlist keeps it, if it has our gate.
    pub gated_pod: Option<Arc<GatedPod>>,
    /// The domain under which a gate of the pod would be ours, if edgeward uses another domain.
    pub other_domain: Option<Box<str>>,
    /// The pod as the backstop keeps it. Set if the pod states an SLO, kube-scheduler found no node for it, and it did
    /// not lose our gate without a decision.
    pub stuck: Option<Arc<StuckPod>>,
    /// Whether the pod states an SLO but carries no decision, and nothing in the pod explains that.
    pub undecided: bool,
    /// The pod as moves see it, while they are enabled.
    pub member: Option<Arc<Member>>,
}

/// Maximum number of terms, requirements, values and tolerations of a pod that is kept whole. Each takes more memory
/// than its text.
pub const MAX_ELEMENTS: usize = 128;

/// Maximum number of extended resources that are kept of a pod without a node.
pub const MAX_RESOURCES: usize = 16;

/// Where a pod may run by its spec, which includes our placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    /// nodeSelector and required node affinity.
    pub constraints: NodeConstraints,
    /// Tolerations.
    pub tolerations: Vec<Toleration>,
}

/// Phase of a pod's life, as far as charges need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not running yet, or in an unknown phase.
    Pending,
    /// Running.
    Running,
    /// Succeeded or failed. The pod charges nothing.
    Finished,
}

/// A pod with an SLO that kube-scheduler has found no node for, as it was seen.
#[derive(Debug, Clone)]
pub struct StuckPod {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// The pod as a workload, without constraints and tolerations.
    pub workload: Workload<'static>,
    /// The constraints and tolerations, including our placement.
    pub placement: Arc<Placement>,
    /// Id of the decision that the pod carries.
    pub decision: Option<DecisionId>,
    /// Reason code of the decision, by its annotation.
    pub reason: Option<Box<str>>,
}

impl StuckPod {
    /// Returns the pod as a workload, including the placement that it carries.
    pub fn workload(&self) -> Workload<'static> {
        Workload {
            constraints: self.placement.constraints.clone(),
            tolerations: self.placement.tolerations.clone(),
            ..self.workload.clone()
        }
    }
}

/// A pod that has our gate, as it was seen.
#[derive(Debug, Clone)]
pub struct GatedPod {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.namespace`.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.resourceVersion`. Decisions hold for this version of the pod.
    pub resource_version: Box<str>,
    /// The pod as a workload; [`Workload::gated_for`] is not set. `None` if the pod is not kept whole (see
    /// [`MAX_CONSTRAINTS`](edgeward_kube::pod::MAX_CONSTRAINTS)). Such a pod has no place in the release plan: it is read and decided alone when its limit
    /// is over.
    pub workload: Option<Workload<'static>>,
    /// Class, if the pod states an SLO.
    pub class: Option<Class>,
    /// Whether the pod is restricted to certain sites. Such a pod loses our gate only when it is placed at one of them.
    pub is_restricted: bool,
    /// A number that differs when the scheduling gates differ.
    pub gates: u64,
    /// Whether the pod also has a gate that is not ours.
    pub has_other_gates: bool,
    /// Creation time.
    pub created: Option<jiff::Timestamp>,
    /// Since when the pod is gated, by its annotation.
    pub stated: Option<jiff::Timestamp>,
    /// Why the pod is gated, by its annotation.
    pub reason: Option<Box<str>>,
}

/// The annotations of a decision, and the SLO it was made for. Any user can write annotations, so the pod's site is not
/// read from them, but from its spec.
#[derive(Debug, Clone)]
pub struct Decided {
    /// `metadata.name`.
    pub name: Box<str>,
    /// Id of the decision. A gated pod has none; it gets a number that differs when the reason differs.
    pub id: DecisionId,
    /// Reason code, as found.
    pub reason: Box<str>,
    /// Time of the decision.
    pub at: Timestamp,
    /// WAN RTT of the decision in milliseconds, as found.
    pub rtt_ms: Option<Box<str>>,
    /// Explanation of the decision, as found. `None` if it is missing or too long to be ours.
    pub explain: Option<Box<str>>,
    /// SLO of the pod, if it states one.
    pub slo: Option<Slo>,
    /// Faults of the SLO.
    pub faults: Vec<SloFault>,
}

impl Decided {
    /// A number that differs when the decision id or the reason differs.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.id.0, &self.reason).hash(&mut hasher);
        hasher.finish()
    }
}
