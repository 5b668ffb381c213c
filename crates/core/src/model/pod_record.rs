//! A pod that exists, reduced to what its consumers keep of it.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use jiff::Timestamp;

use super::constraints::{NodeConstraints, Toleration};
use super::decision_id::DecisionId;
use super::remote_room::Start;
use super::slo::{Class, Slo, SloFault};
use super::workload::Workload;
use crate::resources::Amounts;
use crate::units::Micros;

/// `spec.schedulerName` where a pod leaves it out: the scheduler that every cluster comes with.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// A pod that exists, reduced to what charges and queues are made of. Read by [`crate::wire::pod::Pod::record`].
#[derive(Debug, Clone)]
pub struct PodRecord {
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// Namespace.
    pub namespace: Box<str>,
    /// Uid of its controller.
    pub controller: Option<Box<str>>,
    /// Its labels, as `key=value,key=value`; empty where these are too long.
    pub labels: Box<str>,
    /// When it was created, to the second.
    pub created: Option<jiff::Timestamp>,
    /// `spec.schedulerName`; `None` where it is not the name of a scheduler.
    pub scheduler: Option<Box<str>>,
    /// `spec.nodeName`.
    pub node: Option<Box<str>>,
    /// `status.nominatedNodeName`.
    pub nominated: Option<Box<str>>,
    /// What it takes from its node, a resize in place included.
    pub request: Amounts,
    /// `spec.priority`.
    pub priority: i32,
    /// Whether kube-scheduler may evict pods of lower priority for it (`preemptionPolicy` is not `Never`).
    pub may_preempt: bool,
    /// `spec.terminationGracePeriodSeconds`, if it states no SLO: then it may be a placeholder.
    pub placeholder_grace: Option<Micros>,
    /// Its class and SLO priority, where it states a class.
    pub slo: Option<(Class, u8)>,
    /// Where it is in its life.
    pub phase: Phase,
    /// Whether it is over, and not well.
    pub failed: bool,
    /// How long its work took, if it is a Job's and succeeded: the run of the container that ran longest, in whole seconds as
    /// Kubernetes writes them. Start and end are both cut off, so the mean of many is right. Waiting for a node, pulling images, init
    /// containers and earlier runs of a restarted container do not count.
    pub job_time: Option<Micros>,
    /// Whether it is being deleted, and by when it is to be gone, to the second, if that can be read.
    pub terminating: Option<Option<jiff::Timestamp>>,
    /// Whether a scheduling gate keeps it from kube-scheduler.
    pub gated: bool,
    /// Whether it has begun on its node.
    pub start: Start,
    /// That its scheduler found no node for it, or failed: a number that differs when it says so in other words.
    pub unschedulable: Option<u64>,
    /// The id of the decision it carries.
    pub decision: Option<Box<str>>,
    /// What it says of that decision, for Events.
    pub decided: Option<Box<Decided>>,
    /// Where it may run; kept as long as it has no node.
    pub placement: Option<Arc<Placement>>,
    /// The pod as the waitlist keeps it, if it carries our gate.
    pub gated_pod: Option<Arc<GatedPod>>,
    /// The domain under which a gate that it carries would be ours, if that is another.
    pub other_domain: Option<Box<str>>,
    /// The pod as the backstop keeps it, if it states an SLO, did not lose our gate undecided, and kube-scheduler has found no
    /// node for it.
    pub stuck: Option<Arc<StuckPod>>,
    /// Whether it states an SLO and no decision, and nothing in it says why.
    pub undecided: bool,
}

/// The most bytes that the JSON text of nodeSelector, affinity and tolerations may have together in a pod that is kept whole. Of a
/// pod with more, its request and its nodeSelector are kept.
pub const MAX_CONSTRAINTS: usize = 4096;

/// The most terms, requirements, values and tolerations of a pod that is kept whole: each takes more memory than text.
pub const MAX_ELEMENTS: usize = 128;

/// The most extended resources that are kept of a pod without a node.
pub const MAX_RESOURCES: usize = 16;

/// Where a pod may run by its spec, our own placement included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Placement {
    /// nodeSelector and required node affinity.
    pub constraints: NodeConstraints<'static>,
    /// Tolerations.
    pub tolerations: Vec<Toleration<'static>>,
}

/// Where a pod is in its life, as far as charges go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not running yet.
    Pending,
    /// Running, or of a phase that we do not know.
    Running,
    /// Succeeded or failed: charges nothing.
    Finished,
}

/// A pod with an SLO that kube-scheduler has found no node for, as it was seen.
#[derive(Debug, Clone)]
pub struct StuckPod {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// What it asks for, but for constraints and tolerations.
    pub workload: Workload<'static>,
    /// These, the placement that it carries included.
    pub placement: Arc<Placement>,
    /// The decision that it carries.
    pub decision: Option<DecisionId>,
    /// Why it was decided like that, by its annotation.
    pub reason: Option<Box<str>>,
}

impl StuckPod {
    /// What it asks for, the placement that it carries included.
    pub fn workload(&self) -> Workload<'static> {
        Workload {
            constraints: self.placement.constraints.clone(),
            tolerations: self.placement.tolerations.clone(),
            ..self.workload.clone()
        }
    }
}

/// A pod that carries our gate, as it was seen.
#[derive(Debug, Clone)]
pub struct GatedPod {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.namespace`.
    pub namespace: Box<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.resourceVersion`: what is decided holds for this version.
    pub resource_version: Box<str>,
    /// What it asks for, with [`Workload::gated_for`] not set. `None` if its constraints are longer than
    /// [`MAX_CONSTRAINTS`]: then it has no place in the release plan, and is read and decided alone when its time is over.
    pub workload: Option<Workload<'static>>,
    /// Its class, where it states an SLO.
    pub class: Option<Class>,
    /// Whether it may run at some sites alone: it never loses our gate without one of them.
    pub is_restricted: bool,
    /// A number that differs when its scheduling gates do.
    pub gates: u64,
    /// Whether one of them is somebody else's.
    pub has_other_gates: bool,
    /// When it was created.
    pub created: Option<jiff::Timestamp>,
    /// Since when it is gated, by its annotation.
    pub stated: Option<jiff::Timestamp>,
    /// Why it is gated, by its annotation.
    pub reason: Option<Box<str>>,
}

/// The annotations of a decision, and the SLO it was made for. Anybody may write annotations, so where the pod runs is not
/// among them: that is in its spec.
#[derive(Debug, Clone)]
pub struct Decided {
    /// `metadata.name`.
    pub name: Box<str>,
    /// Id of the decision. A gated pod has none, and gets a number that differs when the reason does.
    pub id: DecisionId,
    /// Reason code, as found.
    pub reason: Box<str>,
    /// When it was decided.
    pub at: Timestamp,
    /// RTT behind it in milliseconds, as found.
    pub rtt_ms: Option<Box<str>>,
    /// The numbers behind it, as found; `None` also where they are too long to be ours.
    pub explain: Option<Box<str>>,
    /// What the pod asks for, where it states an SLO.
    pub slo: Option<Slo>,
    /// What is wrong with its SLO.
    pub faults: Vec<SloFault>,
}

impl Decided {
    /// A number that differs when the pod says something else: another decision, or another reason for it.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.id.0, &self.reason).hash(&mut hasher);
        hasher.finish()
    }
}
